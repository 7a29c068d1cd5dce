// Common header of all kernels: CUDA's own built-ins, or their replacement on the host.
#pragma once

#if defined(__CUDACC__)

#include <cstdint>

namespace gnnscale {

// Acquire loads and release stores between blocks.
__device__ inline uint64_t load_acquire(const uint64_t* address) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline void store_release(uint64_t* address, uint64_t value) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
// Relaxed loads and stores that may race with other threads.
template <typename T>
__device__ inline T load_relaxed(const T* address) {
  return *static_cast<const volatile T*>(address);
}
template <typename T>
__device__ inline void store_relaxed(T* address, T value) {
  *static_cast<volatile T*>(address) = value;
}
// Called while waiting for another block.
__device__ inline void spin() { __nanosleep(20); }
// Returns the time of a device clock that all kernels share.
__device__ inline int64_t nanoseconds() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace gnnscale

#define GNNSCALE_EXPORT(name) static_assert(true)
#define GNNSCALE_UNROLL _Pragma("unroll")

#else
#include "host/cuda_on_host.hpp"
#define GNNSCALE_UNROLL
#endif

namespace gnnscale {

constexpr unsigned kAllLanes = ~0u;
// Threads of a block, for every kernel.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

}  // namespace gnnscale
