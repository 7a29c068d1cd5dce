// Weighted sampling of a vertex's neighbors.
#pragma once

#include <cstdint>

#include "gnnscale/prefetch.hpp"
#include "gnnscale/weighted_lists.hpp"

namespace gnnscale {

// Returns the number of positive weights among n, at most `max_count`. All other edges are never
// picked: weight 0, or NaN and negative weights in a damaged store.
int64_t num_weighted(const float* weights, int64_t n, int64_t max_count);

// Weighted pick from one list: k of its neighbors, one after the other with probability
// proportional to weight among the remaining neighbors, of which at least k have positive weights;
// or, with replacement, among all. A function of `key` and the weights; memory is O(k), independent
// of the degree.
struct WeightedPick {
  WeightedList list;
  uint64_t key;
  int64_t k;
  bool replace;
  bool narrowed = false;  // the list is a part of the one that has the slots

  int64_t degree() const { return list.end - list.begin; }
  // Returns whether neighbors are drawn from slots.
  bool draws() const { return k > 0 && !narrowed && (replace || draws_from_slots(degree(), k)); }

  // Requires draws(). Writes the random numbers that select the slots of the first k draws, and
  // prefetches the slots.
  void find(int64_t* draws) const {
    for (int64_t i = 0; i < k; ++i) {
      const uint64_t random = block_random(key, static_cast<uint64_t>(i));
      draws[i] = static_cast<int64_t>(random);
      prefetch_far(list.slots + list.slot_at(random));
    }
  }

  // Replaces the random numbers by the slots of the draws' blocks, and prefetches slots not yet
  // fetched.
  void open(int64_t* draws) const {
    for (int64_t i = 0; i < k; ++i) {
      const auto random = static_cast<uint64_t>(draws[i]);
      draws[i] = list.aliased_at(random);
      if (draws[i] != list.slot_at(random)) prefetch_far(list.slots + draws[i]);
    }
  }

  // Replaces the slots by the picked edges: drawn edges in draw order, edges picked without draws
  // in list order.
  void finish(int64_t* out) const;
};

}  // namespace gnnscale
