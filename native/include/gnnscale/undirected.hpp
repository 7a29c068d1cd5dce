// The undirected simple graph below a topology, and its text for partitioners of other projects.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"

namespace gnnscale {

// Lists of neighbours in the types that stores have.
template <typename Vertex>
struct Lists {
  const int64_t* indptr;
  const Vertex* indices;
  int64_t num_vertices;
};

// No loops, no neighbour twice, both directions of every edge, lists ascending.
template <typename Vertex>
struct Undirected {
  bool unchanged = false;  // the lists given were such already, and the arrays are empty
  Array<int64_t> indptr;
  Array<Vertex> indices;
  int64_t num_loops = 0;       // entries dropped
  int64_t num_duplicates = 0;  // further entries dropped
  int64_t num_one_way = 0;     // edges whose reverse was added
};

// Offsets and ids have been checked. The answer does not depend on num_threads.
template <typename Vertex>
Undirected<Vertex> make_undirected(const Lists<Vertex>& lists, int num_threads);

// A graph as METIS's manual writes it down; no weights if null.
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
