// Prefetching of rows at a distance ahead of reads. Included once per instruction set, as
// vector.hpp is.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kCacheLine = 64;

template <typename T>
inline const T* row_of(const Rows& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.stride;
}

// Prefetch distance in bytes. Rows are prefetched into the second-level cache, which supports more
// outstanding misses than the first, so the distance can be this large.
constexpr int64_t kAheadBytes = 10240;

// GCC considers a function that only prefetches free of effects, and drops calls that it does not
// inline; the empty asm statement is an effect.
inline void prefetch_bytes(const void* from, int64_t num_bytes) {
  const char* byte = static_cast<const char*>(from);
  for (int64_t offset = 0; offset < num_bytes; offset += kCacheLine) {
    __builtin_prefetch(byte + offset, 0, 2);
  }
  __builtin_prefetch(byte + num_bytes - 1, 0, 2);
  asm volatile("");
}

}  // namespace
}  // namespace gnnscale
