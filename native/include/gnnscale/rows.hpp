// Kernels over feature rows: gather, and aggregation of neighbours' rows over a CSC block.
#pragma once

#include <cstdint>
#include <functional>

namespace gnnscale {

// A row of int8 or int4 is bytes: a float32 scale, then whole numbers in two's complement. An
// element is its number times the scale. int4 has two elements in a byte, the first in the lower
// half; a half that is left over is not read.
enum class DType : int { float32 = 0, float16 = 1, bfloat16 = 2, uint8 = 3, int8 = 4, int4 = 5 };

constexpr bool has_scale(DType dtype) { return dtype == DType::int8 || dtype == DType::int4; }

inline constexpr int64_t kScaleBytes = 4;

// Bytes of what strides count: an element, or a byte of a row with a scale.
constexpr int64_t element_bytes(DType dtype) {
  if (dtype == DType::float32) return 4;
  return dtype == DType::float16 || dtype == DType::bfloat16 ? 2 : 1;
}

// Bytes of a row of `length` elements.
constexpr int64_t row_bytes(DType dtype, int64_t length) {
  if (dtype == DType::int8) return kScaleBytes + length;
  if (dtype == DType::int4) return kScaleBytes + (length + 1) / 2;
  return length * element_bytes(dtype);
}

// Rows of `length` elements, `stride` elements apart, or bytes if they have a scale.
struct Rows {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t length = 0;
  int64_t stride = 0;
};

// The same, written to: float32 or bfloat16 where the kernels compute it.
struct MutableRows {
  void* data = nullptr;
  DType dtype = DType::float32;
  int64_t length = 0;
  int64_t stride = 0;
};

// Row numbers of 32 or 64 bits; none means the identity.
struct RowIds {
  const void* data = nullptr;
  bool wide = false;

  template <typename Use>
  auto operator[](Use row) const -> int64_t {
    if (data == nullptr) return row;
    return wide ? static_cast<const int64_t*>(data)[row] : static_cast<const int32_t*>(data)[row];
  }
};

// out[i] = x[ids[i]] for i in [0, num_rows).
struct Gather {
  Rows x;
  RowIds ids;
  int64_t num_rows;
  MutableRows out;
};

// Columns of a group, which are beside each other in memory.
inline constexpr int64_t kWordColumns = 16;

// out[c, i] = columns 16 c to 16 c + 15 of x[ids[i]], 0 beyond its last one; [num_words, num_rows,
// 16], at least as many words as hold a row.
struct GatherColumns {
  Rows x;
  RowIds ids;
  int64_t num_rows;
  int64_t num_words;
  float* out;
};

// out[i] = dst_scale[i] * sum over edges e of i: weights[e] * x[ids[indices[e]]], or x[ids[e]]
// with `ids_per_edge`,
//          + self_scale[i] * self[i], if given; then 0 unless gate[i] > 0, if given.
// A scale that is not given counts as 1. `self` holds rows 0 to num_self - 1.
struct Aggregate {
  Rows x;
  RowIds ids;
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst;
  const float* weights = nullptr;
  int64_t weight_stride = 1;
  bool ids_per_edge = false;
  const float* dst_scale = nullptr;
  Rows self{};
  RowIds self_ids{};
  const float* self_scale = nullptr;
  int64_t num_self = 0;
  Rows gate{};
  MutableRows out{};
  // Columns first_column to x.length - 1 are aggregated; others of out stay.
  int64_t first_column = 0;
  // Where given, sums are added to what row out_ids[i] of out holds, edge after edge. Rows are then
  // of a multiple of 16 columns, and there is neither self nor gate.
  const int32_t* out_ids = nullptr;
};

void gather(const Gather& task, int num_threads);
void gather_columns(const GatherColumns& task, int num_threads);
void aggregate(const Aggregate& task, int num_threads);

// As aggregate into a float32 matrix that is not in memory as a whole: calls use(begin, end, rows)
// with rows [begin, end) of it, for slices that cover it, from any thread and in any order. Edges
// read rows of x by their indices, without ids, destinations are rows of self, and there is neither
// out nor gate.
void aggregate_slices(const Aggregate& task, int num_threads,
                      const std::function<void(int64_t, int64_t, const float*)>& use);

// out[e] = <a[i], x[indices[e]]> for every edge e of destination i, all float32; `out_stride`
// apart. Column j is added to partial sum j modulo 16, and these in a tree of halves, so that every
// instruction set gives the same bits.
void edge_dot(const Rows& a, const Rows& x, const int64_t* indptr, const int32_t* indices,
              int64_t num_dst, float* out, int64_t out_stride, int num_threads);

}  // namespace gnnscale
