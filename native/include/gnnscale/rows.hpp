// Kernels over feature rows: row gather, and aggregation of neighbor rows over a CSC block.
#pragma once

#include <cstdint>
#include <functional>

namespace gnnscale {

// Element type of a row. An int8 or int4 row is a float32 scale followed by integers in two's
// complement; an element is its integer times the scale. int4 packs two elements into a byte, the
// first in the lower half; an unused upper half is ignored.
enum class DType : int { float32 = 0, float16 = 1, bfloat16 = 2, uint8 = 3, int8 = 4, int4 = 5 };

constexpr bool has_scale(DType dtype) { return dtype == DType::int8 || dtype == DType::int4; }

inline constexpr int64_t kScaleBytes = 4;

// Returns the bytes of a stride unit: one element, or one byte for rows with a scale.
constexpr int64_t element_bytes(DType dtype) {
  if (dtype == DType::float32) return 4;
  return dtype == DType::float16 || dtype == DType::bfloat16 ? 2 : 1;
}

// Returns the bytes of a row of `length` elements.
constexpr int64_t row_bytes(DType dtype, int64_t length) {
  if (dtype == DType::int8) return kScaleBytes + length;
  if (dtype == DType::int4) return kScaleBytes + (length + 1) / 2;
  return length * element_bytes(dtype);
}

// Rows of `length` elements; the stride is in elements, or in bytes for rows with a scale.
struct Rows {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t length = 0;
  int64_t stride = 0;
};

// Writable rows; compute kernels take float32 or bfloat16.
struct MutableRows {
  void* data = nullptr;
  DType dtype = DType::float32;
  int64_t length = 0;
  int64_t stride = 0;
};

// Row numbers of 32 or 64 bits; null: the identity.
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

// Columns of a group, which are adjacent in memory.
inline constexpr int64_t kWordColumns = 16;

// Row gather into column groups: out[c, i] = columns 16 c to 16 c + 15 of x[ids[i]], padded with 0;
// out is [num_words, num_rows, 16], and num_words groups cover a row.
struct GatherColumns {
  Rows x;
  RowIds ids;
  int64_t num_rows;
  int64_t num_words;
  float* out;
};

// out[i] = dst_scale[i] * sum over edges e of i: weights[e] * x[ids[indices[e]]]
//          + self_scale[i] * self[i] unless self is null;
// then 0 unless gate[i] > 0, with a gate. With `ids_per_edge` edge e reads x[ids[e]]. A null scale
// counts as 1. `self` has rows 0 to num_self - 1.
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
  // Columns first_column to x.length - 1 are aggregated; all other columns of out stay unchanged.
  int64_t first_column = 0;
  // Unless null, sums are added to row out_ids[i] of out, edge by edge. Then the row length is a
  // multiple of 16, and self and gate are null.
  const int32_t* out_ids = nullptr;
};

void gather(const Gather& task, int num_threads);
void gather_columns(const GatherColumns& task, int num_threads);
void aggregate(const Aggregate& task, int num_threads);

// Aggregates into a float32 matrix that is never fully in memory: calls use(begin, end, rows) with
// rows [begin, end), for slices that cover the matrix, from any thread and in any order. Edges read
// rows of x by their indices, without ids; out and gate are not used.
void aggregate_slices(const Aggregate& task, int num_threads,
                      const std::function<void(int64_t, int64_t, const float*)>& use);

// out[e] = <a[i], x[indices[e]]> for every edge e of destination i, all float32; out has stride
// `out_stride`. Column j is added to partial sum j modulo 16, and the partial sums in a tree of
// halves, so that every instruction set gives the same bits.
void edge_dot(const Rows& a, const Rows& x, const int64_t* indptr, const int32_t* indices,
              int64_t num_dst, float* out, int64_t out_stride, int num_threads);

}  // namespace gnnscale
