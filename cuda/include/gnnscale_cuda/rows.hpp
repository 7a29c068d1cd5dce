// Feature rows: element types, and the order in which a group of threads reads a row.
#pragma once

#include "gnnscale_cuda/device.hpp"

namespace gnnscale {

// As DType of native/include/gnnscale/rows.hpp.
enum class RowType : int { float32 = 0, float16 = 1, bfloat16 = 2, uint8 = 3 };

// Maximum number of devices that read each other's caches: as in
// gnnscale/backend/cuda/device_cache.py.
constexpr int kMaxMembers = 16;

// Size of a hardware read, also over the link to the host.
constexpr int kLineBytes = 128;

__device__ inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {
    return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  // Subnormals are scaled by a product, which is exact.
  const float scaled = __uint_as_float(magnitude << 13) * 0x1p112F;
  return __uint_as_float(sign | __float_as_uint(scaled));
}

// Rounds to nearest, ties to even; NaN stays NaN.
__device__ inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Returns the shift of a row's words along the group's threads, so that each read except the first
// begins at a line (PyTorch-Direct, section 4.5). The shift is 0 for rows that begin at a line and
// for rows shorter than a line.
__device__ inline int64_t circular_shift(uintptr_t address, int word_bytes, int64_t num_words) {
  const int64_t words_of_line = kLineBytes / word_bytes;
  if (num_words < words_of_line) return 0;
  return static_cast<int64_t>(address % kLineBytes) / word_bytes;
}

// Returns the word read at position i: the first `shift` positions read the row's end.
__device__ inline int64_t shifted(int64_t i, int64_t shift, int64_t num_words) {
  return i < shift ? i - shift + num_words : i - shift;
}

// Returns the threads that read a row together: as many of a warp as leave few idle.
__device__ inline unsigned group_of(int64_t num_words) {
  return num_words <= 8 ? 8 : num_words <= 16 ? 16 : 32;
}

}  // namespace gnnscale
