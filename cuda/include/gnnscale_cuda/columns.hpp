// One or four columns of a row as float32, converted from the row's type.
#pragma once

#include "gnnscale_cuda/rows.hpp"

namespace gnnscale {

// kColumns adjacent elements of a row.
template <int kColumns>
struct Columns {
  float at[kColumns];
};

// Loads elements `i` to `i + kColumns - 1` of a row with kBytes an element. Four elements must be
// aligned to their total size.
template <int kBytes, int kColumns>
__device__ inline Columns<kColumns> load_columns(const uint8_t* row, RowType type, int64_t i) {
  Columns<kColumns> out;
  if constexpr (kBytes == 4) {
    if constexpr (kColumns == 4) {
      const float4 word = reinterpret_cast<const float4*>(row)[i / 4];
      out.at[0] = word.x, out.at[1] = word.y, out.at[2] = word.z, out.at[3] = word.w;
    } else {
      out.at[0] = reinterpret_cast<const float*>(row)[i];
    }
  } else if constexpr (kBytes == 2) {
    uint16_t halves[kColumns];
    if constexpr (kColumns == 4) {
      const uint2 word = reinterpret_cast<const uint2*>(row)[i / 4];
      halves[0] = static_cast<uint16_t>(word.x), halves[1] = static_cast<uint16_t>(word.x >> 16);
      halves[2] = static_cast<uint16_t>(word.y), halves[3] = static_cast<uint16_t>(word.y >> 16);
    } else {
      halves[0] = reinterpret_cast<const uint16_t*>(row)[i];
    }
    GNNSCALE_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      out.at[k] = type == RowType::float16
                      ? half_to_float(halves[k])
                      : __uint_as_float(static_cast<uint32_t>(halves[k]) << 16);
    }
  } else if constexpr (kColumns == 4) {
    const uint32_t word = reinterpret_cast<const uint32_t*>(row)[i / 4];
    GNNSCALE_UNROLL
    for (int k = 0; k < 4; ++k) out.at[k] = static_cast<float>(word >> 8 * k & 0xff);
  } else {
    out.at[0] = static_cast<float>(row[i]);
  }
  return out;
}

// Rows that kernels compute: float32 or bfloat16.
template <int kColumns>
__device__ inline Columns<kColumns> load_computed(const uint8_t* row, RowType type, int64_t i) {
  return type == RowType::float32 ? load_columns<4, kColumns>(row, type, i)
                                  : load_columns<2, kColumns>(row, type, i);
}

template <int kColumns>
__device__ inline void store_computed(uint8_t* row, RowType type, int64_t i,
                                      const Columns<kColumns>& value) {
  if (type == RowType::float32) {
    if constexpr (kColumns == 4) {
      reinterpret_cast<float4*>(row)[i / 4] =
          float4{value.at[0], value.at[1], value.at[2], value.at[3]};
    } else {
      reinterpret_cast<float*>(row)[i] = value.at[0];
    }
    return;
  }
  if constexpr (kColumns == 4) {
    const auto pair = [&](int k) {
      return static_cast<uint32_t>(to_bfloat16(value.at[k])) |
             static_cast<uint32_t>(to_bfloat16(value.at[k + 1])) << 16;
    };
    reinterpret_cast<uint2*>(row)[i / 4] = uint2{pair(0), pair(2)};
  } else {
    reinterpret_cast<uint16_t*>(row)[i] = to_bfloat16(value.at[0]);
  }
}

}  // namespace gnnscale
