// Dropout mask: the pure function of (seed, step, layer, vertex, column) in
// native/include/gnnscale/random.hpp. tests/backend/fpga/test_kernels.py compares the two.
#pragma once

#include <cstdint>

#include "gnnscale_fpga/word.hpp"

namespace gnnscale::fpga {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t kDropoutStream = 0xd1342543de82ef95;
constexpr int kColumnsPerDraw = 4;  // 16 random bits each

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr uint64_t combine(uint64_t key, uint64_t word) { return mix(key + (word + 1) * kGolden); }

constexpr uint64_t dropout_key(uint64_t seed, uint64_t step, uint64_t layer) {
  return combine(combine(mix(seed ^ kDropoutStream), step), layer);
}

// Draws of a row word.
constexpr int kDraws = kLanes / kColumnsPerDraw;
struct Draws {
  uint64_t draw[kDraws];
};

// Returns the draws of word `column` of the row of `vertex`, by twelve 64-bit products: combine()
// of each draw's number would take one more product for every draw but the first.
inline Draws draws_of(uint64_t key, uint64_t vertex, int column) {
  const uint64_t row_key = combine(key, vertex);
  const uint64_t first = row_key + static_cast<uint64_t>(column * kDraws) * kGolden;
  Draws out;
draws:
  for (int i = 0; i < kDraws; ++i) {
#pragma HLS unroll
    out.draw[i] = mix(first + static_cast<uint64_t>(i + 1) * kGolden);
  }
  return out;
}

// Drops features of a word; kept features are not scaled.
inline Word dropped(const Word& row, const Draws& draws, uint32_t drop) {
  Word out;
lanes:
  for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
    const uint64_t draw = draws.draw[lane / kColumnsPerDraw];
    const auto random = static_cast<uint32_t>(draw >> (16 * (lane % kColumnsPerDraw))) & 0xffffU;
    out.lane[lane] = random < drop ? 0.0F : row.lane[lane];
  }
  return out;
}

}  // namespace gnnscale::fpga
