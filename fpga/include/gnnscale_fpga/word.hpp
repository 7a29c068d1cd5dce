// Data unit of the kernels: words of 512 bits, the width of an AXI port to device memory.
#pragma once

#include <cstdint>

#include "gnnscale_fpga/operators.hpp"

namespace gnnscale::fpga {

constexpr int kLanes = 16;  // floats of a word: PE_SIMD of HitGNN's equation 8

struct alignas(64) Word {
  float lane[kLanes];
};

inline Word filled(float value) {
  Word out;
lanes:
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    out.lane[i] = value;
  }
  return out;
}

inline Word operator+(const Word& a, const Word& b) {
  Word out;
lanes:
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float sum = a.lane[i] + b.lane[i];
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = kAdd
    out.lane[i] = sum;
  }
  return out;
}

inline Word scaled(const Word& word, float scale) {
  Word out;
lanes:
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float product = word.lane[i] * scale;
#pragma HLS bind_op variable = product op = fmul impl = maxdsp latency = kMultiply
    out.lane[i] = product;
  }
  return out;
}

// Reduces several values to one, by a tree of `combine`.
template <int count, class T, class Combine>
T tree_of(const T* values, Combine combine) {
#pragma HLS inline
  if constexpr (count == 1) {
    return values[0];
  } else {
    return combine(tree_of<count / 2>(values, combine),
                   tree_of<count - count / 2>(values + count / 2, combine));
  }
}

struct Sum {
  Word operator()(const Word& a, const Word& b) const { return a + b; }
  float operator()(float a, float b) const {
    const float sum = a + b;
#pragma HLS bind_op variable = sum op = fadd impl = fulldsp latency = kAdd
    return sum;
  }
};
struct Larger {
  float operator()(float a, float b) const { return a > b ? a : b; }
};

union Bits {
  float value;
  int32_t integer;
};

inline float float_of(int32_t bits) {
  Bits both;
  both.integer = bits;
  return both.value;
}

inline int32_t bits_of(float value) {
  Bits both;
  both.value = value;
  return both.integer;
}

// Returns the words of `count` elements, `per_word` in each.
constexpr int words_of(int count, int per_word) { return (count + per_word - 1) / per_word; }

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }

}  // namespace gnnscale::fpga
