// CUDA C++ built-ins for g++: see block.hpp and launch.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "host/block.hpp"
#include "host/launch.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// A block's threads run on one thread of the host.
#define __shared__ static thread_local

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace gnnscale::cuda_host {

struct Index {
  struct {
    operator unsigned() const { return here.thread; }
  } x;
};
struct BlockIndex {
  struct {
    operator unsigned() const { return here.block_index; }
  } x;
};
struct BlockSize {
  struct {
    operator unsigned() const { return here.block_size; }
  } x;
};
struct GridSize {
  struct {
    operator unsigned() const { return here.grid; }
  } x;
};

template <typename T>
T exchanged(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = here.block->collective(Collective::shuffle, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline unsigned lane() { return here.thread % kWarp; }

template <typename T, typename Change>
T changed(T* address, Change&& change) {
  std::atomic_ref<T> atomic(*address);
  T old = atomic.load(std::memory_order_relaxed);
  while (!atomic.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace gnnscale::cuda_host

inline constexpr gnnscale::cuda_host::Index threadIdx{};
inline constexpr gnnscale::cuda_host::BlockIndex blockIdx{};
inline constexpr gnnscale::cuda_host::BlockSize blockDim{};
inline constexpr gnnscale::cuda_host::GridSize gridDim{};
inline constexpr int warpSize = 32;

inline void __syncthreads() { gnnscale::cuda_host::here.block->sync_threads(); }
inline void __syncwarp(unsigned mask = ~0u) {
  using namespace gnnscale::cuda_host;
  here.block->collective(Collective::meet, mask, 0, lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace gnnscale::cuda_host;
  return static_cast<unsigned>(
      here.block->collective(Collective::ballot, mask, predicate != 0, lane()));
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  using namespace gnnscale::cuda_host;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(here.block->collective(Collective::match, mask, bits, lane()));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

// Shuffles within groups of `width` lanes; as in CUDA, a lane whose source is outside keeps its
// value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const auto own_lane = static_cast<int>(gnnscale::cuda_host::lane());
  return gnnscale::cuda_host::exchanged(
      mask, value, static_cast<unsigned>(own_lane / width * width + (source & (width - 1))));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned own_lane = gnnscale::cuda_host::lane();
  return gnnscale::cuda_host::exchanged(
      mask, value, own_lane % static_cast<unsigned>(width) >= delta ? own_lane - delta : own_lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned own_lane = gnnscale::cuda_host::lane(), size = static_cast<unsigned>(width);
  return gnnscale::cuda_host::exchanged(
      mask, value, own_lane % size + delta < size ? own_lane + delta : own_lane);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned own_lane = gnnscale::cuda_host::lane(), size = static_cast<unsigned>(width);
  const unsigned other = own_lane ^ static_cast<unsigned>(lanes);
  return gnnscale::cuda_host::exchanged(mask, value,
                                        other / size <= own_lane / size ? other : own_lane);
}

template <typename T>
T atomicAdd(T* address, T value) {
  return gnnscale::cuda_host::changed(address, [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMin(T* address, T value) {
  return gnnscale::cuda_host::changed(address, [&](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicMax(T* address, T value) {
  return gnnscale::cuda_host::changed(address, [&](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicOr(T* address, T value) {
  return gnnscale::cuda_host::changed(address, [&](T old) { return static_cast<T>(old | value); });
}
template <typename T>
T atomicExch(T* address, T value) {
  return gnnscale::cuda_host::changed(address, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, T compare, T value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_relaxed);
  return compare;
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
// Rounded separately: compilers must not fuse them.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }

namespace gnnscale {

// Acquire loads and release stores between blocks.
template <typename T>
T load_acquire(const T* address) {
  return std::atomic_ref<T>(*const_cast<T*>(address)).load(std::memory_order_acquire);
}
template <typename T>
void store_release(T* address, T value) {
  std::atomic_ref<T>(*address).store(value, std::memory_order_release);
}
// Relaxed loads and stores that may race with other threads.
template <typename T>
T load_relaxed(const T* address) {
  return std::atomic_ref<T>(*const_cast<T*>(address)).load(std::memory_order_relaxed);
}
template <typename T>
void store_relaxed(T* address, T value) {
  std::atomic_ref<T>(*address).store(value, std::memory_order_relaxed);
}
// Called while waiting for another block.
inline void spin() { cuda_host::here.block->spin(); }
// Returns the time of a clock that all kernels share.
inline int64_t nanoseconds() {
  using std::chrono::nanoseconds, std::chrono::steady_clock;
  const auto now = steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(now).count();
}

}  // namespace gnnscale
