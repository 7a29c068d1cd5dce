// Comparison of a few numbers with one value. Included once per instruction set, so everything is
// in the including file's anonymous namespace.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace gnnscale {
namespace {

// Returns a mask: bit `lane` is set if lanes[lane] == value.
template <int kLanes>
inline uint32_t equal_lanes(const uint32_t* lanes, uint32_t value) {
  uint32_t mask = 0;
#if defined(__AVX512F__)
  for (int lane = 0; lane < kLanes; lane += 16) {
    const __m512i equal = _mm512_loadu_si512(lanes + lane);
    mask |= static_cast<uint32_t>(_mm512_cmpeq_epi32_mask(equal, _mm512_set1_epi32(value))) << lane;
  }
#elif defined(__SSE2__)
  for (int lane = 0; lane < kLanes; lane += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes + lane));
    const __m128i equal = _mm_cmpeq_epi32(four, _mm_set1_epi32(static_cast<int>(value)));
    mask |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(equal))) << lane;
  }
#else
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint32_t{lanes[lane] == value} << lane;
#endif
  return mask;
}

}  // namespace
}  // namespace gnnscale
