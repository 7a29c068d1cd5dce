// Which neighbours of a vertex are picked by the weights of their edges.
#pragma once

#include <cstdint>

#include "gnnscale/prefetch.hpp"
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
  // Whether any neighbour is drawn from slots.
  bool draws() const { return k > 0 && (replace || draws_from_slots(degree(), k)); }

  // Of a pick that draws: writes the random numbers by which its first k draws find slots, and
  // fetches these.
  void find(int64_t* draws) const {
    for (int64_t i = 0; i < k; ++i) {
      const uint64_t random = block_random(key, static_cast<uint64_t>(i));
      draws[i] = static_cast<int64_t>(random);
      prefetch_far(list.slots + list.slot_at(random));
    }
  }

  // Replaces these numbers by the slots of the draws' blocks, and fetches those that were not
  // found.
  void open(int64_t* draws) const {
    for (int64_t i = 0; i < k; ++i) {
      const auto random = static_cast<uint64_t>(draws[i]);
      draws[i] = list.aliased_at(random);
      if (draws[i] != list.slot_at(random)) prefetch_far(list.slots + draws[i]);
    }
  }

  // Writes the edges that are picked in place of the slots: in the order in which they are drawn,
  // and those without a draw in the order of the list.
  void finish(int64_t* out) const;
};

}  // namespace gnnscale
