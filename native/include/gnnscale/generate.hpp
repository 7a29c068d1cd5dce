// Synthetic topologies.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"

namespace gnnscale {

// Undirected edges, each once, (src[e], dst[e]).
struct EdgeList {
  Array<int32_t> src, dst;
};

// R-MAT (Chakrabarti, Zhan and Faloutsos, SDM 2004): `num_edges` distinct undirected edges without
// loops over randomly numbered vertices. a, b, c are the probabilities of the first three
// quadrants.
EdgeList rmat_edges(int64_t num_vertices, int64_t num_edges, double a, double b, double c,
                    uint64_t seed, int num_threads);

// The same in pieces, for more edges than memory holds: the draws number `first` to
// first + num_draws - 1, src <= dst in the numbering of the recursion. Loops are all 0-0.
EdgeList rmat_draws(int64_t num_vertices, double a, double b, double c, uint64_t seed,
                    uint64_t first, int64_t num_draws, int num_threads);

// The number that each vertex of the recursion gets in the graph.
Array<int32_t> rmat_numbering(int64_t num_vertices, uint64_t seed);

// Degree-corrected planted partition (Karrer and Newman, Phys. Rev. E 2011): one end is drawn by
// `weight`; the other by `weight` within the same community with probability `within`, else by
// `weight` over all vertices. Loops are drawn again; duplicates may occur.
EdgeList planted_partition_edges(const int32_t* community, const float* weight,
                                 int64_t num_vertices, int64_t num_edges, double within,
                                 uint64_t seed);

}  // namespace gnnscale
