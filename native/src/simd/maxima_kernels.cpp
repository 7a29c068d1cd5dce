// Max aggregation and its gradient. Compiled once per instruction set: the compiler vectorizes the
// loops over columns, which are independent.
#include "maxima_kernels.hpp"

#include "prefetch_rows.hpp"
#include "vector.hpp"

namespace gnnscale {
namespace {

// Columns reduced as one group, whose intermediate results stay in the first-level cache.
constexpr int64_t kColumns = 512;

inline int64_t at_most(int64_t value, int64_t limit) { return value < limit ? value : limit; }

// Calls use(row) with columns of the rows of x that edges [begin, end) read.
template <typename T, typename Use>
inline void for_rows(const Rows& x, const int32_t* indices, int64_t begin, int64_t end,
                     int64_t end_of_all, int64_t first, int64_t width, Use&& use) {
  const int64_t num_bytes = width * static_cast<int64_t>(sizeof(T));
  const int64_t distance = 1 + kAheadBytes / (num_bytes + 1);
  for (int64_t edge = begin; edge < end; ++edge) {
    if (edge + distance < end_of_all) {
      prefetch_bytes(row_of<T>(x, indices[edge + distance]) + first, num_bytes);
    }
    use(row_of<T>(x, indices[edge]) + first);
  }
}

template <DType kType, bool kCounts>
void max_of_columns(const AggregateMax& task, int64_t dst, int64_t end_edge, int64_t first,
                    int64_t width) {
  using Value = element_t<kType>;
  alignas(64) float best[kColumns];
  alignas(64) float count[kColumns];
  const int64_t begin = task.indptr[dst], end = task.indptr[dst + 1];
  for (int64_t j = 0; j < width; ++j) best[j] = end > begin ? -__builtin_inff() : 0.0F;
  for (int64_t j = 0; j < width; ++j) count[j] = 0.0F;
  for_rows<Value>(task.x, task.indices, begin, end, end_edge, first, width,
                  [&](const Value* __restrict row) {
                    for (int64_t j = 0; j < width; ++j) {
                      const float value = load_one<kType>(row + j);
                      const bool larger = (value > best[j]) | (value != value);
                      if constexpr (kCounts) {
                        count[j] = larger ? 1.0F : count[j] + (value == best[j] ? 1.0F : 0.0F);
                      }
                      best[j] = larger ? value : best[j];
                    }
                  });
  auto* out = static_cast<Value*>(task.out.data) + dst * task.out.stride + first;
  for (int64_t j = 0; j < width; ++j) store_one<kType>(out + j, best[j]);
  if constexpr (kCounts) {
    float* counts = static_cast<float*>(task.counts.data) + dst * task.counts.stride + first;
    for (int64_t j = 0; j < width; ++j) counts[j] = count[j];
  }
}

void aggregate_max(const AggregateMax& task, int64_t begin, int64_t end) {
  const int64_t length = task.x.length, end_edge = task.indptr[end];
  for_computed(task.x.dtype, [&]<DType kType>() {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t first = 0; first < length; first += kColumns) {
        const int64_t width = at_most(length - first, kColumns);
        task.counts.data != nullptr
            ? max_of_columns<kType, true>(task, dst, end_edge, first, width)
            : max_of_columns<kType, false>(task, dst, end_edge, first, width);
      }
    }
  });
}

template <DType kType, DType kOut>
void shares_of_columns(const AggregateMaxBackward& task, int64_t src, int64_t end_edge,
                       int64_t first, int64_t width) {
  using Value = element_t<kType>;
  alignas(64) float sum[kColumns];
  for (int64_t j = 0; j < width; ++j) sum[j] = 0.0F;
  const Value* __restrict values = row_of<Value>(task.x, src) + first;
  const int64_t num_bytes = width * static_cast<int64_t>(sizeof(Value));
  const int64_t distance = 1 + kAheadBytes / (num_bytes + 4 * width + 1);
  for (int64_t edge = task.indptr[src]; edge < task.indptr[src + 1]; ++edge) {
    if (edge + distance < end_edge) {
      const int64_t later_dst = task.indices[edge + distance];
      prefetch_bytes(row_of<Value>(task.largest, later_dst) + first, num_bytes);
      prefetch_bytes(row_of<float>(task.shares, later_dst) + first, 4 * width);
    }
    const Value* __restrict largest = row_of<Value>(task.largest, task.indices[edge]) + first;
    const float* __restrict share = row_of<float>(task.shares, task.indices[edge]) + first;
    for (int64_t j = 0; j < width; ++j) {
      const bool has_it = load_one<kType>(values + j) == load_one<kType>(largest + j);
      sum[j] += has_it ? share[j] : 0.0F;
    }
  }
  auto* out = static_cast<element_t<kOut>*>(task.out.data) + src * task.out.stride + first;
  for (int64_t j = 0; j < width; ++j) store_one<kOut>(out + j, sum[j]);
}

void aggregate_max_backward(const AggregateMaxBackward& task, int64_t begin, int64_t end) {
  const int64_t length = task.x.length, end_edge = task.indptr[end];
  for_computed(task.x.dtype, [&]<DType kType>() {
    for_computed(task.out.dtype, [&]<DType kOut>() {
      for (int64_t src = begin; src < end; ++src) {
        for (int64_t first = 0; first < length; first += kColumns) {
          const int64_t width = at_most(length - first, kColumns);
          shares_of_columns<kType, kOut>(task, src, end_edge, first, width);
        }
      }
    });
  });
}

}  // namespace

namespace GNNSCALE_ISA {
extern const MaximaKernels maxima_kernels;
const MaximaKernels maxima_kernels{aggregate_max, aggregate_max_backward};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
