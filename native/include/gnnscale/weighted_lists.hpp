// Neighbours drawn by weight in time of the order of log(degree), by sums that are kept beside the
// graph: one double for each block of 16 edges, which is half a byte an edge.
//
// Blocks are 16 edges of the whole graph, so that the weights of a block share a cache line. The
// sum of block b is that of the weights from the beginning of the list that holds the block's last
// edge, up to this edge. A list that ends within a block has no sum of its last weights: they are
// added up when it is opened.
//
// A draw is a uniform place below the sum of the list's weights. Weights are added one after the
// other as doubles, so that the place falls on an edge with probability weight / sum, but for
// degree * 2^-52. GPU kernels include this file: all functions are constexpr, and their sums have
// one order.
#pragma once

#include <cstdint>

#include "gnnscale/random.hpp"

namespace gnnscale {

inline constexpr int kWeightBlockBits = 4;
inline constexpr int64_t kWeightBlock = int64_t{1} << kWeightBlockBits;

// Draws of one list that are compared with each other, at most.
inline constexpr int64_t kMaxDrawn = 512;

// Whether k of n neighbours are drawn from sums, and what is drawn twice is rejected. Otherwise
// every neighbour gets an exponential time, which is less work if most are picked.
constexpr bool draws_from_sums(int64_t n, int64_t k) {
  return k <= kMaxDrawn && n > 4 * k && n <= int64_t{1} << 32;
}

// Draws for k of n neighbours. When they are used up, few edges have nearly all the weight, and
// those that are left get exponential times: so many draws cost about as much.
constexpr int64_t max_draws(int64_t n, int64_t k) { return 2 * k + n / 8; }

// The stream of the exponential times of a vertex whose draws have `key`.
constexpr uint64_t times_key(uint64_t key) { return combine(key, ~uint64_t{0}); }

// The sum with another weight. Weights that are not positive are never drawn: 0, and what only a
// damaged store has.
constexpr double with_weight(double sum, float weight) {
  return weight > 0 ? sum + static_cast<double>(weight) : sum;
}

// A list of neighbours whose weights may change at any time, in a file that another process
// damages: all places that are returned are within the list.
struct WeightedList {
  const float* weights;             // of all edges of the graph
  const double* sums;               // of all blocks
  int64_t begin, end;               // its edges
  int64_t first_block, last_block;  // blocks whose last edge it holds

  constexpr double total() const {
    double sum = sum_before(last_block);
    for (int64_t edge = begin_of(last_block); edge < end; ++edge) {
      sum = with_weight(sum, weights[edge]);
    }
    return sum;
  }

  // The block of the edge at a target below the total: the first whose sum is above the target, or
  // `last_block`.
  constexpr int64_t block_at(double target) const {
    int64_t block = first_block;
    for (int64_t size = num_blocks(); size > 0; size -= half_of(size)) {
      block = block_in(block, half_of(size), target);
    }
    return block;
  }

  // One step of this search, so that several may take it side by side: of blocks that begin with
  // `block`, the first `half` are left out if their last sum is not above the target.
  constexpr int64_t block_in(int64_t block, int64_t half, double target) const {
    // Whether it is, is a coin flip: no branch.
    return block + (half & -static_cast<int64_t>(!(sums[block + half - 1] > target)));
  }
  constexpr int64_t num_blocks() const { return last_block - first_block; }
  static constexpr int64_t half_of(int64_t size) { return (size + 1) / 2; }

  // The edge at a target, in this block; -1 if weights are infinite, or have changed.
  constexpr int64_t edge_at(double target, int64_t block) const {
    double sum = sum_before(block);
    const int64_t last = end_of(block);
    for (int64_t edge = begin_of(block); edge < last; ++edge) {
      sum = with_weight(sum, weights[edge]);
      if (sum > target) return edge;
    }
    return -1;
  }

  constexpr int64_t begin_of(int64_t block) const {
    return block > first_block ? block << kWeightBlockBits : begin;
  }
  constexpr int64_t end_of(int64_t block) const {
    return block < last_block ? (block + 1) << kWeightBlockBits : end;
  }
  constexpr double sum_before(int64_t block) const {
    return block > first_block ? sums[block - 1] : 0.0;
  }
};

constexpr WeightedList weighted_list(const float* weights, const double* sums, int64_t begin,
                                     int64_t degree) {
  const int64_t end = begin + degree;
  return {weights, sums, begin, end, begin >> kWeightBlockBits, end >> kWeightBlockBits};
}

// The target of a draw from weights of this total. The largest factor of 52 bits is 1 - 2^-53, so
// that the target is below the total after rounding.
constexpr double weight_target(uint64_t random, double total) {
  return (static_cast<double>(random >> 12) + 0.5) * 0x1.0p-52 * total;
}

}  // namespace gnnscale
