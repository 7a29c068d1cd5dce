// Conversion of a topology to an undirected simple graph, and to METIS's text format.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"

namespace gnnscale {

// Adjacency lists in the types of a graph store.
template <typename Vertex>
struct Lists {
  const int64_t* indptr;
  const Vertex* indices;
  int64_t num_vertices;
};

// Undirected simple graph: no self-loops, no repeated neighbor, both directions of every edge,
// ascending lists.
template <typename Vertex>
struct Undirected {
  bool unchanged = false;  // whether the input was simple already; arrays are then empty
  Array<int64_t> indptr;
  Array<Vertex> indices;
  int64_t num_loops = 0;       // self-loops dropped
  int64_t num_duplicates = 0;  // repeated entries dropped
  int64_t num_one_way = 0;     // edges whose reverse was added
};

// Offsets and ids must have been checked. The result does not depend on num_threads.
template <typename Vertex>
Undirected<Vertex> make_undirected(const Lists<Vertex>& lists, int num_threads);

// Graph for METIS's text format; null weights are not written.
template <typename Vertex>
struct MetisText {
  Lists<Vertex> lists;
  const int64_t* vertex_weights;  // [num_vertices]
  const int32_t* edge_weights;    // [num_edges]
};

// Writes `graph` to the open file `fd`; returns the number of bytes. Throws system_error.
template <typename Vertex>
int64_t write_metis(int fd, const MetisText<Vertex>& graph, int num_threads);

}  // namespace gnnscale
