// Which neighbours of a vertex are picked by the weights of their edges.
#pragma once

#include <cstdint>

namespace gnnscale {

// How many of n weights are positive, at most `most`. Others are never picked: 0, and what only a
// damaged store has.
int64_t num_weighted(const float* weights, int64_t n, int64_t most);

// Picks k of n neighbours, of which at least k have positive weights, one after the other with
// probability proportional to the weights of those that are left; or, with replacement, of all.
// out[i] = begin + i-th pick, ascending where nothing is replaced. A function of `key` and of the
// weights; memory is of the order of k, however many neighbours there are.
void pick_weighted(uint64_t key, int64_t begin, const float* weights, int64_t n, int64_t k,
                   bool replace, int64_t* out);

}  // namespace gnnscale
