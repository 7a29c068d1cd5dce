// In-neighbor lists of a graph in untrusted memory, checked as they are read.
#pragma once

#include <cstdint>

#include "gnnscale/checks.hpp"

namespace gnnscale {

// Adjacency lists that may be in a file which another process damages at any time: every value is
// checked as it is read, and no value is read twice.
template <typename Vertex>
struct Topology {
  int64_t num_vertices;
  int64_t num_edges;
  const int64_t* indptr;
  const Vertex* indices;

  // Offset and length of a vertex's list. Throws TopologyError.
  struct List {
    int64_t begin, degree;
  };
  List list(Vertex v) const;

  // Returns the neighbor at `index`, which is below num_edges. Throws TopologyError if the neighbor
  // is no vertex.
  Vertex neighbor(int64_t index) const {
    const Vertex u = indices[index];
    if (u < 0 || u >= num_vertices) [[unlikely]]
      refuse(u);
    return u;
  }

  [[noreturn]] void refuse(Vertex u) const;
};

}  // namespace gnnscale
