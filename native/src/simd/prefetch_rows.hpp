// Prefetching of rows some way ahead of the one that is read. Included once per instruction set, as
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

// Bytes of rows on their way while one is read. More misses can be under way to the second-level
// cache than to the first, so that is where rows are prefetched to, and so far ahead.
constexpr int64_t kAheadBytes = 10240;

// To GCC, a function that only prefetches has no effect, and it drops the calls of one that it does
// not inline. The empty statement is an effect.
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
