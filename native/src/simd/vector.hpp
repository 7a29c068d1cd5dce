// Vectors of floats, as wide as the instruction set that this file is compiled for, and their
// conversion from and to the types that rows are stored in. Included once per instruction set, so
// everything is in the including file's anonymous namespace and nothing comes from the standard
// library: a shared inline function could otherwise be linked in from the wrong instruction set.
#pragma once

#if defined(__F16C__) || defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef uint32_t VecU32 __attribute__((vector_size(kWidth * 4)));
typedef uint16_t VecU16 __attribute__((vector_size(kWidth * 2)));
typedef uint8_t VecU8 __attribute__((vector_size(kWidth)));

template <DType>
struct Element;
template <>
struct Element<DType::float32> {
  using type = float;
};
template <>
struct Element<DType::float16> {
  using type = uint16_t;
};
template <>
struct Element<DType::bfloat16> {
  using type = uint16_t;
};
template <>
struct Element<DType::uint8> {
  using type = uint8_t;
};
template <DType kType>
using element_t = typename Element<kType>::type;

inline float bits_to_float(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

// IEEE binary16 → binary32. Subnormals are scaled by a product, which is exact.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return bits_to_float(sign | float_to_bits(bits_to_float(magnitude << 13) * 0x1p112F));
}

template <DType kType>
inline float load_one(const element_t<kType>* from) {
  if constexpr (kType == DType::float32) return *from;
  if constexpr (kType == DType::float16) return half_to_float(*from);
  if constexpr (kType == DType::bfloat16) return bits_to_float(static_cast<uint32_t>(*from) << 16);
  if constexpr (kType == DType::uint8) return static_cast<float>(*from);
}

template <DType kType>
inline Vec load(const element_t<kType>* from) {
  Vec out;
  if constexpr (kType == DType::float32) {
    __builtin_memcpy(&out, from, sizeof out);
  } else if constexpr (kType == DType::float16) {
#if defined(__AVX512F__)
    out = (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    out = (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    for (int lane = 0; lane < kWidth; ++lane) out[lane] = half_to_float(from[lane]);
#endif
  } else if constexpr (kType == DType::bfloat16) {
    VecU16 raw;
    __builtin_memcpy(&raw, from, sizeof raw);
    const VecU32 bits = __builtin_convertvector(raw, VecU32) << 16;
    __builtin_memcpy(&out, &bits, sizeof out);
  } else {
    // gcc's convertvector takes the bytes apart one by one, which is four times slower.
#if defined(__AVX512F__)
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    out = (Vec)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(raw));
#elif defined(__AVX2__)
    const __m128i raw = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    out = (Vec)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(raw));
#else
    VecU8 raw;
    __builtin_memcpy(&raw, from, sizeof raw);
    out = __builtin_convertvector(raw, Vec);
#endif
  }
  return out;
}

// float32 → bfloat16, to nearest, ties to even; NaN stays NaN.
inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <DType kType>
inline void store_one(element_t<kType>* to, float value) {
  if constexpr (kType == DType::float32) *to = value;
  if constexpr (kType == DType::bfloat16) *to = to_bfloat16(value);
}

template <DType kType>
inline void store(element_t<kType>* to, Vec value) {
  if constexpr (kType == DType::float32) {
    __builtin_memcpy(to, &value, sizeof value);
  } else {
    VecU32 bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const VecU32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const VecU32 quiet = bits >> 16 | 0x40;
    const VecU32 is_nan = (VecU32)((bits & 0x7fffffff) > 0x7f800000);
    const VecU16 out = __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), VecU16);
    __builtin_memcpy(to, &out, sizeof out);
  }
}

// Calls use.operator()<Type>() with the dtype, float32 or bfloat16, as a template argument.
template <typename Use>
inline void for_computed(DType dtype, Use&& use) {
  if (dtype == DType::bfloat16) return use.template operator()<DType::bfloat16>();
  return use.template operator()<DType::float32>();
}

}  // namespace
}  // namespace gnnscale
