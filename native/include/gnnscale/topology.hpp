// In-neighbor lists of a graph in untrusted memory, checked as they are read.
#pragma once

#include <cstdint>

#include "gnnscale/checks.hpp"
#include "gnnscale/graph_types.hpp"

namespace gnnscale {

// Adjacency lists that may be in a file which another process damages at any time: every value is
// checked as it is read, and no value is read twice.
template <typename Vertex>
struct Topology {
  int64_t num_vertices;
  int64_t num_edges;
  const int64_t* indptr;
  const Vertex* indices;

  // Offset and length of list `row`, of vertex `row` unless edges have types. Throws TopologyError.
  struct List {
    int64_t begin, degree;
  };
  List list(int64_t row) const {
    const int64_t begin = indptr[row], end = indptr[row + 1];
    if (begin < 0 || end < begin || end > num_edges) [[unlikely]] {
      refuse_list(row, begin, end);
    }
    return {begin, end - begin};
  }

  // Returns the neighbor at `index`, which is below num_edges. Throws TopologyError if the neighbor
  // is no vertex.
  Vertex neighbor(int64_t index) const {
    const Vertex u = indices[index];
    if (u < 0 || u >= num_vertices) [[unlikely]]
      refuse(u);
    return u;
  }

  [[noreturn]] void refuse_list(int64_t row, int64_t begin, int64_t end) const;
  [[noreturn]] void refuse(Vertex u) const;
  // As refuse, for a neighbor that is no vertex of a type.
  [[noreturn]] void refuse(Vertex u, const VertexType& type) const;
};

}  // namespace gnnscale
