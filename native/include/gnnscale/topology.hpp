// In-neighbour lists of a graph as others keep them, checked while they are read.
#pragma once

#include <cstdint>

#include "gnnscale/checks.hpp"

namespace gnnscale {

// Neighbour lists that may lie in a file which another process damages at any time: what is read of
// them is checked as it is read, and nothing is read twice.
template <typename Vertex>
struct Topology {
  int64_t num_vertices;
  int64_t num_edges;
  const int64_t* indptr;
  const Vertex* indices;

  // Where the neighbours of a vertex begin, and their number. Throws TopologyError.
  struct List {
    int64_t begin, degree;
  };
  List list(Vertex v) const;

  // The neighbour at `place`, which is below num_edges. Throws TopologyError if it is no vertex.
  Vertex neighbor(int64_t place) const {
    const Vertex u = indices[place];
    if (u < 0 || u >= num_vertices) [[unlikely]]
      refuse(u);
    return u;
  }

  [[noreturn]] void refuse(Vertex u) const;
};

}  // namespace gnnscale
