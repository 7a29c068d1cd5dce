// Which features are dropped: the pure function of
// native/include/gnnscale/random.hpp, of (seed, step, layer, vertex, column).
// tests/backend/fpga/test_kernels.py compares the two.
#pragma once

#include <cstdint>

#include "gnnscale_fpga/word.hpp"

namespace gnnscale::fpga {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t kDropoutStream = 0xd1342543de82ef95;
constexpr int kColumnsPerDraw = 4;  // of 16 random bits each

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr uint64_t combine(uint64_t key, uint64_t word) { return mix(key + (word + 1) * kGolden); }

constexpr uint64_t dropout_key(uint64_t seed, uint64_t step, uint64_t layer) {
  return combine(combine(mix(seed ^ kDropoutStream), step), layer);
}

// Drops features of word `column` of the row of `vertex`; what is kept is
// multiplied with `scale`.
inline Word dropped(const Word& row, uint64_t key, uint64_t vertex, int column, uint32_t drop,
                    float scale) {
  const uint64_t row_key = combine(key, vertex);
  Word out;
draws:
  for (int i = 0; i < kLanes / kColumnsPerDraw; ++i) {
#pragma HLS unroll
    const uint64_t draw = combine(row_key, column * (kLanes / kColumnsPerDraw) + i);
    for (int lane = 0; lane < kColumnsPerDraw; ++lane) {
#pragma HLS unroll
      const auto random = static_cast<uint32_t>(draw >> (16 * lane)) & 0xffffU;
      const float value = row.lane[i * kColumnsPerDraw + lane];
      out.lane[i * kColumnsPerDraw + lane] = random < drop ? 0.0F : value * scale;
    }
  }
  return out;
}

}  // namespace gnnscale::fpga
