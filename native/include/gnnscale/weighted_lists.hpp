// Weighted sampling of neighbors in constant time, by alias tables (Vose, IEEE TSE 1991) next to
// the graph: 32 bytes for each block of 16 edges, or 2 bytes an edge, and 32 bytes for each vertex.
//
// Blocks are 16 consecutive edges of the whole graph, so the neighbors of a block share a cache
// line. A list has a slot for every block that it overlaps, and for the block in which it ends even
// if it has no edge in that block: the slots of vertex v begin at v + (first block of its list),
// and no two lists share a slot.
//
// A draw takes a uniform slot, and then either the slot's own block or its alias, with a
// probability rounded to 2^-32. Within the block it draws a part: every edge has as many parts as
// its weight in 255ths of the block's largest weight, rounded up. An edge's last part is rejected
// with the probability of the rounding, which needs the weights, and another part is drawn; all
// other parts need no weights.
//
// GPU kernels include this file: all functions are constexpr, with a fixed order of additions.
#pragma once

#include <cstdint>

#include "gnnscale/random.hpp"

// GPU compilers would otherwise unroll the loops until no registers remain.
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
  // Probability of the slot's own block in kSlotBits, index of the alias block in 31 bits, and
  // kSlotFilled. Before filling: the bits of a non-negative double.
  uint64_t alias;
  uint8_t parts[kWeightBlock];  // of each edge; 0 for edges of other lists
  float largest;                // largest weight of its block
  int32_t num_parts;            // of all edges
};
static_assert(sizeof(WeightSlot) == 32);

inline constexpr int kSlotBits = 32;
inline constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;
inline constexpr uint64_t kSlotFilled = uint64_t{1} << 63;

inline constexpr int kMaxParts = 255;
// At least 255 of 270 parts are accepted. After this many rejections the weights must have changed.
inline constexpr int kMaxTries = 20;

// More edges might have a list whose blocks cannot be numbered in 31 bits.
inline constexpr int64_t kMaxWeighted = int64_t{1} << 34;

// Maximum number of draws of one list that are compared with each other.
inline constexpr int64_t kMaxDrawn = 512;

// Returns whether k of n neighbors are drawn from slots with rejection of duplicates. Otherwise
// every neighbor gets an exponential time, which is cheaper if most neighbors are picked.
constexpr bool draws_from_slots(int64_t n, int64_t k) {
  return k <= kMaxDrawn && n > 4 * k && n <= int64_t{1} << 32;
}

// Returns the maximum number of draws for k of n neighbors, which cost about as much as exponential
// times. A list that exceeds it has nearly all its weight in few edges; exponential times then
// select the remaining picks.
constexpr int64_t max_draws(int64_t n, int64_t k) { return 2 * k + n / 8; }

// Returns the key of a vertex's exponential times, whose draws have `key`.
constexpr uint64_t times_key(uint64_t key) { return combine(key, ~uint64_t{0}); }

// The i-th draw has two random numbers: one selects the block, the other the part within it.
constexpr uint64_t block_random(uint64_t key, uint64_t i) { return draw(key, 2 * i); }
constexpr uint64_t edge_random(uint64_t key, uint64_t i) { return draw(key, 2 * i + 1); }

// Returns the part of a draw, below num_parts.
constexpr int part_at(uint64_t random, int num_parts) {
  return static_cast<int>((random >> 32) * static_cast<uint64_t>(num_parts) >> 32);
}

// Returns whether a draw of an edge's last part is accepted, with the share of the part that the
// weight fills. The block's largest weight has kMaxParts parts.
constexpr bool keeps_last(uint64_t random, float weight, float largest, int num_parts) {
  const double filled = static_cast<double>(weight) * kMaxParts / static_cast<double>(largest);
  const double uniform = (static_cast<double>(random & kSlotMask) + 0.5) * 0x1.0p-32;
  return uniform < filled - (num_parts - 1);
}

// Returns the random number that follows one with a rejected part.
constexpr uint64_t next_random(uint64_t random) { return mix(random + kGolden); }

constexpr int64_t num_weight_slots(int64_t num_vertices, int64_t num_edges) {
  return num_vertices + (num_edges >> kWeightBlockBits);
}

// Weighted adjacency list. Weights may change at any time, in a file that another process damages:
// all returned positions are within the list regardless.
struct WeightedList {
  const float* weights;     // of all edges of the graph
  const WeightSlot* slots;  // of this list's blocks
  int64_t begin, end;       // range of its edges

  constexpr int64_t first_block() const { return begin >> kWeightBlockBits; }
  constexpr int64_t num_blocks() const { return (end >> kWeightBlockBits) - first_block() + 1; }

  // Returns the slot that a draw selects first.
  constexpr int64_t slot_at(uint64_t random) const {
    return static_cast<int64_t>(below(random, static_cast<uint64_t>(num_blocks())));
  }

  // Returns the slot of the draw's block after aliasing.
  constexpr int64_t aliased_at(uint64_t random) const {
    const int64_t own_slot = slot_at(random), last = num_blocks() - 1;
    // The random number's remainder within the slot.
    const uint64_t remainder = random * static_cast<uint64_t>(last + 1) >> kSlotBits;
    const uint64_t alias = slots[own_slot].alias;
    const auto named = static_cast<int64_t>((alias & ~kSlotFilled) >> kSlotBits);
    const int64_t other = named < last ? named : last;
    // The comparison is unpredictable: no branch.
    const int64_t is_other = -static_cast<int64_t>(!(remainder < (alias & kSlotMask)));
    return own_slot ^ ((own_slot ^ other) & is_other);
  }

  // Returns the edge that a draw selects in the slot's block; -1 if weights are infinite or have
  // changed.
  constexpr int64_t edge_in(int64_t slot, uint64_t random) const {
    const int64_t first = (first_block() + slot) << kWeightBlockBits;
    const uint8_t* parts = slots[slot].parts;
    const int num_parts = slots[slot].num_parts;
    if (num_parts == 0) return -1;
    GNNSCALE_UNROLLED_ONCE
    for (int i = 0; i < kMaxTries; ++i, random = next_random(random)) {
      int part = part_at(random, num_parts), lane = 0;
      GNNSCALE_UNROLLED_ONCE
      while (part >= parts[lane] && lane < kWeightBlock - 1) part -= parts[lane++];
      const int64_t edge = first + lane;
      if (edge < begin || edge >= end) return -1;
      const bool is_last = part + 1 == parts[lane];
      if (!is_last || keeps_last(random, weights[edge], slots[slot].largest, parts[lane]))
        return edge;
    }
    return -1;
  }

  // First edge of this list in a slot's block.
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

// Fills the slots of one list, in place and without additional memory.
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
    // Without positive weights, or with infinite ones, every slot keeps its own block.
    const double scale = total > 0 && total <= kMaxDouble ? static_cast<double>(size_) / total : 0;
    for (int64_t i = 0; i < size_; ++i) set_share(i, scale > 0 ? share_of(i) * scale : 1.0);
  }

  // Fills each block's deficit to the average from a block with a surplus, in the order of blocks.
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

  // Divides a block's weights into parts. Returns the sum of the weights.
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
      if (!(weight > 0)) continue;  // 0, NaN or negative (a damaged store): never drawn
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

  // Completes a block below the average, and each earlier block that then falls below the average.
  constexpr void complete(int64_t i) {
    for (int64_t small = i; small <= i;) {
      while (large_ < size_ && (is_filled(large_) || share_of(large_) < 1)) ++large_;
      if (large_ == size_) return fill(small, 1, small);  // equals the average up to rounding
      const double share = share_of(small), remaining = share_of(large_) - (1 - share);
      fill(small, share, large_);
      set_share(large_, remaining);
      if (!(remaining < 1)) return;
      small = large_;
    }
  }

  constexpr void fill(int64_t i, double own_slot, int64_t other) {
    const double scaled = own_slot * 0x1.0p32;
    const uint64_t fraction = scaled < 0x1.0p32 ? static_cast<uint64_t>(scaled) : kSlotMask;
    slots_[i].alias = kSlotFilled | static_cast<uint64_t>(other) << kSlotBits | fraction;
  }

  WeightSlot* slots_;
  int64_t size_, large_ = 0;  // blocks before `large_` are at most average
};

}  // namespace gnnscale
