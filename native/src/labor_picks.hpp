// LABOR sampling: picks the neighbors with the smallest random numbers, which all lists share.
#pragma once

#include <cstdint>

#include "simd/pick_kernels.hpp"

namespace gnnscale {

// Picks for destinations [first, last), in list order. `positions` has capacity for all their edges
// and kPickSlack. With `has_scattered_copies`, copies of a neighbor need not follow each other.
// Returns whether all picked ids are vertices.
template <typename Vertex>
bool pick_labor(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions,
                bool has_scattered_copies = false);

// Picks the k of n < 2^63 neighbors with the smallest numbers of `key`: out[i] = begin + position
// of the i-th pick, ascending. Memory is O(k), independent of n.
template <typename Vertex>
void pick_smallest(uint64_t key, const Vertex* list, int64_t n, int64_t k, int64_t begin,
                   int64_t* out);

}  // namespace gnnscale
