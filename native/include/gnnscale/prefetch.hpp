// Fetching what is read soon.
#pragma once

namespace gnnscale {

// Fetches the cache line of an address. To GCC, a function that only prefetches has no effect, and
// it drops the calls of one that it does not inline. The empty statement is an effect.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// Into the second-level cache only: the first has room for a few dozen lines on their way.
inline void prefetch_far(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}

}  // namespace gnnscale
