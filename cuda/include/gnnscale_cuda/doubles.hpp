// Doubles by their bits, and arithmetic with identical results on every machine: a compiler may
// fuse a product and a sum, which rounds once instead of twice.
#pragma once

#include <cstdint>

namespace gnnscale {

#if defined(__CUDACC__)
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double sum(double a, double b) { return __dadd_rn(a, b); }
__device__ inline uint64_t bits_of(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
__device__ inline double of_bits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
#else
// Host compilers are told not to fuse products and sums.
inline double product(double a, double b) { return a * b; }
inline double sum(double a, double b) { return a + b; }
inline uint64_t bits_of(double value) { return __builtin_bit_cast(uint64_t, value); }
inline double of_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }
#endif

}  // namespace gnnscale
