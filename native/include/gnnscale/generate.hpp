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

// Degree-corrected planted partition (Karrer and Newman, Phys. Rev. E 2011): one end is drawn by
// `weight`; the other by `weight` within the same community with probability `within`, else by
// `weight` over all vertices. Loops are drawn again; duplicates may occur.
EdgeList planted_partition_edges(const int32_t* community, const float* weight,
                                 int64_t num_vertices, int64_t num_edges, double within,
                                 uint64_t seed);

}  // namespace gnnscale
