// Which neighbours LABOR picks: those of the smallest numbers, which vertices have in common.
#pragma once

#include <cstdint>

#include "simd/pick_kernels.hpp"

namespace gnnscale {

// Picks for destinations [first, last), in the order of their lists. `positions` has room for all
// their edges and kPickSlack. Returns whether all that was picked is a vertex.
template <typename Vertex>
bool pick_labor(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions);

// Picks the k of n < 2^63 neighbours whose numbers by `key` are smallest: out[i] = begin + place of
// the i-th, ascending. Memory is of the order of k, however many neighbours there are.
template <typename Vertex>
void pick_smallest(uint64_t key, const Vertex* list, int64_t n, int64_t k, int64_t begin,
                   int64_t* out);

}  // namespace gnnscale
