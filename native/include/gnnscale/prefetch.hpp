// Prefetching into the processor's caches.
#pragma once

namespace gnnscale {

// Prefetches the cache line of an address. GCC considers a function that only prefetches free of
// effects, and drops calls that it does not inline; the empty asm statement is an effect.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// Prefetches into the second-level cache only: the first level tracks only a few dozen misses.
inline void prefetch_far(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}

}  // namespace gnnscale
