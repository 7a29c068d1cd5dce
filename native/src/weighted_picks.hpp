// Which neighbours of a vertex are picked by the weights of their edges.
#pragma once

#include <cstdint>

#include "gnnscale/weighted_lists.hpp"

namespace gnnscale {

// How many of n weights are positive, at most `most`. Others are never picked: 0, and what only a
// damaged store has.
int64_t num_weighted(const float* weights, int64_t n, int64_t most);

// What is picked from one list: k of its neighbours, of which at least k have positive weights, one
// after the other with probability proportional to the weights of those that are left; or, with
// replacement, of all. A function of `key` and of the weights; memory is of the order of k, however
// many neighbours there are.
struct WeightedPick {
  WeightedList list;
  uint64_t key;
  int64_t k;
  bool replace;

  int64_t degree() const { return list.end - list.begin; }
  // Whether any neighbour is drawn from sums.
  bool draws() const { return k > 0 && (replace || draws_from_sums(degree(), k)); }

  // Begins to pick: makes the first k draws, and writes the target and the block of each. What the
  // blocks hold is read by `finish`, and may be fetched before.
  void begin(double* targets, int64_t* blocks) const;

  // Writes the edges that are picked in place of the blocks: in the order in which they are drawn,
  // and those without a draw in the order of the list.
  void finish(const double* targets, int64_t* out) const;
};

}  // namespace gnnscale
