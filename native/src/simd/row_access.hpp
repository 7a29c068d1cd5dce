// Prefetching of rows, and their dot product. Included once per instruction set, as vector.hpp is.
#pragma once

#include <cstdint>

#include "vector.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kCacheLine = 64;

// To the second-level cache: more misses can be under way to it than to the first.
inline void prefetch_bytes(const void* from, int64_t num_bytes) {
  const char* byte = static_cast<const char*>(from);
  for (int64_t offset = 0; offset < num_bytes; offset += kCacheLine) {
    __builtin_prefetch(byte + offset, 0, 2);
  }
  __builtin_prefetch(byte + num_bytes - 1, 0, 2);
}

typedef float Four __attribute__((vector_size(16)));

inline Four load_four(const float* from) {
  Four out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}

// Column j is added to partial sum j modulo 16, and these in a tree of halves: the same additions
// in the same order on every instruction set, whatever the width of its vectors.
inline float dot(const float* a, const float* b, int64_t length) {
  constexpr int kPartial = 16, kVectors = kPartial / kWidth;
  Vec sum[kVectors] = {};
  int64_t j = 0;
  for (; j + kPartial <= length; j += kPartial) {
    for (int k = 0; k < kVectors; ++k) {
      const int64_t at = j + k * kWidth;
      sum[k] += load<DType::float32>(a + at) * load<DType::float32>(b + at);
    }
  }
  Four partial[4];
  __builtin_memcpy(partial, sum, sizeof partial);
  for (; j + 4 <= length; j += 4) partial[j / 4 % 4] += load_four(a + j) * load_four(b + j);
  for (; j < length; ++j) partial[j / 4 % 4][j % 4] += a[j] * b[j];
  const Four total = (partial[0] + partial[2]) + (partial[1] + partial[3]);
  return (total[0] + total[2]) + (total[1] + total[3]);
}

}  // namespace
}  // namespace gnnscale
