// A feature row in its storage type. Included once per instruction set, as vector.hpp is.
#pragma once

#include "vector.hpp"

namespace gnnscale {
namespace {

template <>
struct Element<DType::int8> {
  using type = uint8_t;
};
template <>
struct Element<DType::int4> {
  using type = uint8_t;
};

typedef int8_t VecS8 __attribute__((vector_size(kWidth)));

inline int int4_of(uint64_t bits, int64_t index) {
  return static_cast<int>((bits >> (4 * index) & 15) ^ 8) - 8;
}

// Returns a vector's number of int4 from `column` on, the first in the lowest bits. Reads only
// bytes that have them, since memory may end with the row.
inline uint64_t int4_bits(const uint8_t* elements, int64_t column) {
  constexpr int kBytes = kWidth / 2;
  const uint8_t* from = elements + (column >> 1);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, from, kBytes);
  if ((column & 1) != 0) bits = bits >> 4 | static_cast<uint64_t>(from[kBytes]) << (8 * kBytes - 4);
  return bits;
}

inline Vec from_int8(const uint8_t* from) {
#if defined(__AVX512F__)
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(raw));
#elif defined(__AVX2__)
  const __m128i raw = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(raw));
#else
  VecS8 raw;
  __builtin_memcpy(&raw, from, sizeof raw);
  return __builtin_convertvector(raw, Vec);
#endif
}

inline Vec from_int4(uint64_t bits) {
  // Each lane gets the word of eight int4, shifts its own to the top, and shifts it back with its
  // sign.
#if defined(__AVX512F__)
  const __m512i words = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i to_top = _mm512_set_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m128i raw = _mm_cvtsi64_si128(static_cast<int64_t>(bits));
  const __m512i nibbles = _mm512_permutexvar_epi32(words, _mm512_castsi128_si512(raw));
  return (Vec)_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_sllv_epi32(nibbles, to_top), 28));
#elif defined(__AVX2__)
  const __m256i to_top = _mm256_set_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i nibbles = _mm256_set1_epi32(static_cast<int>(bits));
  return (Vec)_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sllv_epi32(nibbles, to_top), 28));
#else
  Vec out;
  for (int lane = 0; lane < kWidth; ++lane) out[lane] = static_cast<float>(int4_of(bits, lane));
  return out;
#endif
}

template <DType kType>
class StoredRow {
 public:
  explicit StoredRow(const element_t<kType>* row) : elements_(row) {
    if constexpr (has_scale(kType)) {
      __builtin_memcpy(&scale_, row, sizeof scale_);
      elements_ += kScaleBytes;
    }
  }

  // Loads a vector from `column` on.
  Vec load(int64_t column) const {
    if constexpr (kType == DType::int8) {
      return from_int8(elements_ + column) * scale_;
    } else if constexpr (kType == DType::int4) {
      return from_int4(int4_bits(elements_, column)) * scale_;
    } else {
      return gnnscale::load<kType>(elements_ + column);
    }
  }

  float load_one(int64_t column) const {
    if constexpr (kType == DType::int8) {
      return static_cast<float>(static_cast<int8_t>(elements_[column])) * scale_;
    } else if constexpr (kType == DType::int4) {
      return static_cast<float>(int4_of(elements_[column >> 1], column & 1)) * scale_;
    } else {
      return gnnscale::load_one<kType>(elements_ + column);
    }
  }

 private:
  const element_t<kType>* elements_;
  float scale_ = 1.0F;
};

// Returns the first byte that a reader of columns from `column` on needs; the scale precedes all
// elements.
template <DType kType>
inline int64_t first_byte(int64_t column) {
  return column == 0 ? 0 : row_bytes(kType, column);
}

}  // namespace
}  // namespace gnnscale
