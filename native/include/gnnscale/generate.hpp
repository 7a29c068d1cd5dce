// Synthetic topologies.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"

namespace gnnscale {

// Undirected edges (src[e], dst[e]), each listed once.
struct EdgeList {
  Array<int32_t> src, dst;
};

// R-MAT (Chakrabarti, Zhan and Faloutsos, SDM 2004): `num_edges` distinct undirected edges without
// self-loops, over randomly numbered vertices. a, b, c are the probabilities of the first three
// quadrants.
EdgeList rmat_edges(int64_t num_vertices, int64_t num_edges, double a, double b, double c,
                    uint64_t seed, int num_threads);

// R-MAT in pieces, for more edges than memory holds: draws `first` to first + num_draws - 1, with
// src <= dst, in the numbering of the recursion. Every self-loop is returned as 0-0.
EdgeList rmat_draws(int64_t num_vertices, double a, double b, double c, uint64_t seed,
                    uint64_t first, int64_t num_draws, int num_threads);

// Returns the graph's vertex id of each vertex of the recursion.
Array<int32_t> rmat_numbering(int64_t num_vertices, uint64_t seed);

// Degree-corrected planted partition (Karrer and Newman, Phys. Rev. E 2011): one end is drawn by
// `weight`; the second end by `weight` from the same community with probability `within`, otherwise
// by `weight` from all vertices. Self-loops are drawn again; duplicates may occur.
EdgeList planted_partition_edges(const int32_t* community, const float* weight,
                                 int64_t num_vertices, int64_t num_edges, double within,
                                 uint64_t seed);

}  // namespace gnnscale
