// Neighbours drawn by weight in constant time, by alias tables (Vose, IEEE TSE 1991) that are kept
// beside the graph: 32 bytes for each block of 16 edges, which is 2 bytes an edge, and for each
// vertex.
//
// Blocks are 16 edges of the whole graph, so that the neighbours of a block share a cache line. A
// list has a slot for every block that it touches, and for the one in which it ends also if that
// has none of its edges: the slots of vertex v begin at v + (the first block of its list), and no
// two lists share one.
//
// A draw takes a slot, all of them alike, and then this slot's block or the other one that it
// names, by a probability that is rounded to 2^-32. Of this block it takes a part: every edge has
// as many as its weight in 255ths of the block's largest one, rounded up. A last part is rejected
// by what was rounded, which needs the weights, and another one is drawn; other parts need none.
//
// GPU kernels include this file: all functions are constexpr, and their sums have one order.
#pragma once

#include <cstdint>

#include "gnnscale/random.hpp"

// For GPUs, whose compiler unrolls loops until it has no registers left.
#if defined(__CUDACC__)
#define GNNSCALE_UNROLLED_ONCE _Pragma("unroll 1")
#else
#define GNNSCALE_UNROLLED_ONCE
#endif

namespace gnnscale {

inline constexpr int kWeightBlockBits = 4;
inline constexpr int64_t kWeightBlock = int64_t{1} << kWeightBlockBits;

// A block of a list.
struct alignas(32) WeightSlot {
  // The probability of this block in kSlotBits, the number of the other block in the list in 31,
  // and kSlotFilled. Before it is filled it has the bits of a double, which is not negative.
  uint64_t alias;
  uint8_t parts[kWeightBlock];  // of each edge; 0 of those of other lists
  float largest;                // weight of its block
  int32_t num_parts;            // of all edges
};
static_assert(sizeof(WeightSlot) == 32);

inline constexpr int kSlotBits = 32;
inline constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;
inline constexpr uint64_t kSlotFilled = uint64_t{1} << 63;

inline constexpr int kMaxParts = 255;
// Of all parts at least 255 of 270 are not rejected. After so many rejections weights have changed.
inline constexpr int kMaxTries = 20;

// More edges might have a list whose blocks cannot be numbered in 31 bits.
inline constexpr int64_t kMaxWeighted = int64_t{1} << 34;

// Draws of one list that are compared with each other, at most.
inline constexpr int64_t kMaxDrawn = 512;

// Whether k of n neighbours are drawn from slots, and what is drawn twice is rejected. Otherwise
// every neighbour gets an exponential time, which is less work if most are picked.
constexpr bool draws_from_slots(int64_t n, int64_t k) {
  return k <= kMaxDrawn && n > 4 * k && n <= int64_t{1} << 32;
}

// Draws for k of n neighbours. When they are used up, few edges have nearly all the weight, and
// those that are left get exponential times: so many draws cost about as much.
constexpr int64_t max_draws(int64_t n, int64_t k) { return 2 * k + n / 8; }

// The stream of the exponential times of a vertex whose draws have `key`.
constexpr uint64_t times_key(uint64_t key) { return combine(key, ~uint64_t{0}); }

// The two random numbers of the i-th draw: one for its block, one for its part of that.
constexpr uint64_t block_random(uint64_t key, uint64_t i) { return draw(key, 2 * i); }
constexpr uint64_t edge_random(uint64_t key, uint64_t i) { return draw(key, 2 * i + 1); }

// The part of a draw, below their number.
constexpr int part_at(uint64_t random, int num_parts) {
  return static_cast<int>((random >> 32) * static_cast<uint64_t>(num_parts) >> 32);
}

// Whether a draw of the last part of an edge is kept. It is, by the share of the part that the
// weight fills, if the largest weight of its block has kMaxParts.
constexpr bool keeps_last(uint64_t random, float weight, float largest, int num_parts) {
  const double filled = static_cast<double>(weight) * kMaxParts / static_cast<double>(largest);
  const double place = (static_cast<double>(random & kSlotMask) + 0.5) * 0x1.0p-32;
  return place < filled - (num_parts - 1);
}

// The random number after one whose part is rejected.
constexpr uint64_t next_random(uint64_t random) { return mix(random + kGolden); }

constexpr int64_t num_weight_slots(int64_t num_vertices, int64_t num_edges) {
  return num_vertices + (num_edges >> kWeightBlockBits);
}

// A list of neighbours whose weights may change at any time, in a file that another process
// damages: all places that are returned are within the list.
struct WeightedList {
  const float* weights;     // of all edges of the graph
  const WeightSlot* slots;  // of the blocks of this list
  int64_t begin, end;       // its edges

  constexpr int64_t first_block() const { return begin >> kWeightBlockBits; }
  constexpr int64_t num_blocks() const { return (end >> kWeightBlockBits) - first_block() + 1; }

  // The slot that a draw finds first.
  constexpr int64_t slot_at(uint64_t random) const {
    return static_cast<int64_t>(below(random, static_cast<uint64_t>(num_blocks())));
  }

  // The slot of its block.
  constexpr int64_t aliased_at(uint64_t random) const {
    const int64_t own = slot_at(random), last = num_blocks() - 1;
    // What is left of the random number within the slot.
    const uint64_t place = random * static_cast<uint64_t>(last + 1) >> kSlotBits;
    const uint64_t alias = slots[own].alias;
    const auto named = static_cast<int64_t>((alias & ~kSlotFilled) >> kSlotBits);
    const int64_t other = named < last ? named : last;
    // Which of them is a coin flip: no branch.
    const int64_t is_other = -static_cast<int64_t>(!(place < (alias & kSlotMask)));
    return own ^ ((own ^ other) & is_other);
  }

  // The edge of a draw that the block of this slot has; -1 if weights are infinite, or have
  // changed.
  constexpr int64_t edge_in(int64_t slot, uint64_t random) const {
    const int64_t first = (first_block() + slot) << kWeightBlockBits;
    const uint8_t* parts = slots[slot].parts;
    const int num_parts = slots[slot].num_parts;
    if (num_parts == 0) return -1;
    GNNSCALE_UNROLLED_ONCE
    for (int i = 0; i < kMaxTries; ++i, random = next_random(random)) {
      int left = part_at(random, num_parts), lane = 0;
      GNNSCALE_UNROLLED_ONCE
      while (left >= parts[lane] && lane < kWeightBlock - 1) left -= parts[lane++];
      const int64_t edge = first + lane;
      if (edge < begin || edge >= end) return -1;
      const bool is_last = left + 1 == parts[lane];
      if (!is_last || keeps_last(random, weights[edge], slots[slot].largest, parts[lane]))
        return edge;
    }
    return -1;
  }

  // The edges of this list in the block of a slot.
  constexpr int64_t begin_of(int64_t slot) const {
    return slot > 0 ? (first_block() + slot) << kWeightBlockBits : begin;
  }
  constexpr int64_t end_of(int64_t slot) const {
    const int64_t last = (first_block() + slot + 1) << kWeightBlockBits;
    return last < end ? last : end;
  }
};

constexpr WeightedList weighted_list(const float* weights, const WeightSlot* slots, int64_t vertex,
                                     int64_t begin, int64_t degree) {
  const int64_t first_slot = vertex + (begin >> kWeightBlockBits);
  return {weights, slots + first_slot, begin, begin + degree};
}

// Fills the slots of one list, in place and without further memory.
class SlotFiller {
 public:
  constexpr SlotFiller(const WeightedList& list, WeightSlot* slots)
      : slots_(slots), size_(list.num_blocks()) {
    double total = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const double sum = divide(list, i);
      set_share(i, sum);
      total += sum;
    }
    // Without positive weights, and with infinite ones, every slot keeps its block.
    const double scale = total > 0 && total <= kMaxDouble ? static_cast<double>(size_) / total : 0;
    for (int64_t i = 0; i < size_; ++i) set_share(i, scale > 0 ? share_of(i) * scale : 1.0);
  }

  // Gives what a block lacks of the average to one that has more, in the order of blocks.
  constexpr void fill() {
    for (int64_t i = 0; i < size_; ++i) {
      if (!is_filled(i) && share_of(i) < 1) complete(i);
    }
    for (int64_t i = 0; i < size_; ++i) {
      if (!is_filled(i)) fill(i, 1, i);
    }
  }

 private:
  static constexpr double kMaxDouble = 0x1.fffffffffffffp1023;

  // Divides a block in parts. Returns the sum of its weights.
  constexpr double divide(const WeightedList& list, int64_t i) {
    uint8_t* parts = slots_[i].parts;
    for (int64_t lane = 0; lane < kWeightBlock; ++lane) parts[lane] = 0;
    const int64_t end = list.end_of(i);
    float largest = 0;
    for (int64_t edge = list.begin_of(i); edge < end; ++edge) {
      if (list.weights[edge] > largest) largest = list.weights[edge];
    }
    slots_[i].largest = largest;
    slots_[i].num_parts = 0;
    double sum = 0;
    for (int64_t edge = list.begin_of(i); edge < end; ++edge) {
      const float weight = list.weights[edge];
      if (!(weight > 0)) continue;  // never drawn: 0, and what only a damaged store has
      sum += static_cast<double>(weight);
      parts[edge & (kWeightBlock - 1)] = parts_of(weight, largest);
      slots_[i].num_parts += parts_of(weight, largest);
    }
    return sum;
  }

  static constexpr uint8_t parts_of(float weight, float largest) {
    const double filled = static_cast<double>(weight) * kMaxParts / static_cast<double>(largest);
    if (!(filled > 1)) return 1;
    const int whole = filled < kMaxParts ? static_cast<int>(filled) : kMaxParts;
    return static_cast<uint8_t>(filled > whole && whole < kMaxParts ? whole + 1 : whole);
  }

  constexpr bool is_filled(int64_t i) const { return (slots_[i].alias & kSlotFilled) != 0; }
  constexpr double share_of(int64_t i) const { return __builtin_bit_cast(double, slots_[i].alias); }
  constexpr void set_share(int64_t i, double share) {
    slots_[i].alias = __builtin_bit_cast(uint64_t, share);
  }

  // Completes a block below the average, and each before it that then falls below the average.
  constexpr void complete(int64_t i) {
    for (int64_t small = i; small <= i;) {
      while (large_ < size_ && (is_filled(large_) || share_of(large_) < 1)) ++large_;
      if (large_ == size_) return fill(small, 1, small);  // but for rounding it has the average
      const double share = share_of(small), left = share_of(large_) - (1 - share);
      fill(small, share, large_);
      set_share(large_, left);
      if (!(left < 1)) return;
      small = large_;
    }
  }

  constexpr void fill(int64_t i, double own, int64_t other) {
    const double place = own * 0x1.0p32;
    const uint64_t below = place < 0x1.0p32 ? static_cast<uint64_t>(place) : kSlotMask;
    slots_[i].alias = kSlotFilled | static_cast<uint64_t>(other) << kSlotBits | below;
  }

  WeightSlot* slots_;
  int64_t size_, large_ = 0;  // blocks before `large_` have no more than the average
};

}  // namespace gnnscale
