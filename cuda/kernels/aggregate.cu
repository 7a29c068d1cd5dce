// Sums of neighbor rows over the edges of a block. Rows are read by local id or, from a feature
// table, by vertex: gather and aggregation fused. Sums follow the edge order in float32, with
// products and sums rounded separately, so they are bit-identical to
// native/src/simd/row_kernels.cpp.
#include "gnnscale_cuda/columns.hpp"

namespace gnnscale {
namespace {

// Edges of a destination whose rows are in flight together.
constexpr int kAhead = 4;

// Pointers may be null unless marked "never null".
struct AggregateTask {
  const uint8_t* x;           // rows that edges read; never null
  int64_t row_bytes, type;    // RowType
  int64_t width;              // columns
  const int64_t* indptr;      // never null
  const int32_t* indices;     // local ids of sources; never null
  const void* vertices;       // rows of x by local id
  int64_t wide;               // whether vertices have 64 bits
  const float* weights;       // one for each edge and head
  int64_t heads, head_width;  // heads of a row, and columns of each head
  const float *dst_scale, *self_scale;
  const uint8_t* own;  // own rows of destinations, of x's type: added or concatenated
  int64_t own_row_bytes;
  const uint8_t* gate;  // of out's type: out is 0 where it is not positive
  int64_t gate_row_bytes;
  uint8_t* out;  // never null
  int64_t out_row_bytes, out_type;
  uint8_t* own_out;        // out begins after its columns; null if own rows are added
  int64_t capacity;        // rows of out; those after the last destination are zeroed
  const int64_t* num_dst;  // on the device; never null
  const int64_t* num_own;  // destinations with an own row; null without own rows
};

__device__ inline int64_t row_at(const AggregateTask& task, int64_t source) {
  if (task.vertices == nullptr) return source;
  return task.wide != 0 ? static_cast<const int64_t*>(task.vertices)[source]
                        : static_cast<const int32_t*>(task.vertices)[source];
}

template <int kColumns>
__device__ inline void add(Columns<kColumns>& sum, const Columns<kColumns>& value) {
  GNNSCALE_UNROLL
  for (int k = 0; k < kColumns; ++k) sum.at[k] = __fadd_rn(sum.at[k], value.at[k]);
}

template <int kColumns>
__device__ inline void scale(Columns<kColumns>& value, float factor) {
  GNNSCALE_UNROLL
  for (int k = 0; k < kColumns; ++k) value.at[k] = __fmul_rn(value.at[k], factor);
}

// Returns the sum over the edges of destination `dst`, from column `i`.
template <int kBytes, int kColumns>
__device__ inline Columns<kColumns> sum_edges(const AggregateTask& task, int64_t dst, int64_t i) {
  const auto type = static_cast<RowType>(task.type);
  Columns<kColumns> sum{};
  const int64_t head = task.heads == 1 ? 0 : i / task.head_width;
  const int64_t end = task.indptr[dst + 1];
  int64_t edge = task.indptr[dst];
  for (; edge + kAhead <= end; edge += kAhead) {
    Columns<kColumns> values[kAhead];
    GNNSCALE_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int64_t row = row_at(task, task.indices[edge + k]);
      values[k] = load_columns<kBytes, kColumns>(task.x + row * task.row_bytes, type, i);
    }
    GNNSCALE_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (task.weights != nullptr) scale(values[k], task.weights[(edge + k) * task.heads + head]);
      add(sum, values[k]);
    }
  }
  for (; edge < end; ++edge) {
    const int64_t row = row_at(task, task.indices[edge]);
    auto value = load_columns<kBytes, kColumns>(task.x + row * task.row_bytes, type, i);
    if (task.weights != nullptr) scale(value, task.weights[edge * task.heads + head]);
    add(sum, value);
  }
  return sum;
}

// Adds the own row of a destination, from column `i`.
template <int kBytes, int kColumns>
__device__ inline Columns<kColumns> own_columns(const AggregateTask& task, int64_t dst, int64_t i) {
  const int64_t row = row_at(task, dst);
  return load_columns<kBytes, kColumns>(task.own + row * task.own_row_bytes,
                                        static_cast<RowType>(task.type), i);
}

template <int kBytes, int kColumns>
__device__ inline void write_columns(const AggregateTask& task, int64_t dst, bool exists,
                                     int64_t i) {
  const auto out_type = static_cast<RowType>(task.out_type);
  Columns<kColumns> sum{}, own_values{};
  if (exists) {
    sum = sum_edges<kBytes, kColumns>(task, dst, i);
    if (task.dst_scale != nullptr) scale(sum, task.dst_scale[dst]);
    if (task.num_own != nullptr && dst < *task.num_own) {
      own_values = own_columns<kBytes, kColumns>(task, dst, i);
      if (task.own_out == nullptr) {
        if (task.self_scale != nullptr) scale(own_values, task.self_scale[dst]);
        add(sum, own_values);
      }
    }
    if (task.gate != nullptr) {
      const auto gate = load_computed<kColumns>(task.gate + dst * task.gate_row_bytes, out_type, i);
      GNNSCALE_UNROLL
      for (int k = 0; k < kColumns; ++k) sum.at[k] = gate.at[k] > 0 ? sum.at[k] : 0.0F;
    }
  }
  store_computed<kColumns>(task.out + dst * task.out_row_bytes, out_type, i, sum);
  if (task.own_out != nullptr) {
    store_computed<kColumns>(task.own_out + dst * task.out_row_bytes, out_type, i, own_values);
  }
}

// A group of threads processes a destination, each thread some columns.
template <int kBytes, int kColumns>
__device__ void aggregate(const AggregateTask& task) {
  const int64_t parts = task.width / kColumns;
  const unsigned size = group_of(parts), lane = threadIdx.x % size;
  const int64_t num_groups = gridDim.x * int64_t{kThreads} / size;
  const int64_t num_dst = *task.num_dst;
  int64_t dst = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / size;
  for (; dst < task.capacity; dst += num_groups) {
    for (int64_t part = lane; part < parts; part += size) {
      write_columns<kBytes, kColumns>(task, dst, dst < num_dst, part * kColumns);
    }
  }
}

}  // namespace
}  // namespace gnnscale

// Passes the task by kernel arguments: nothing needs to be copied before a launch.
#define GNNSCALE_AGGREGATE(kernel, bytes, columns)                                                 \
  extern "C" __global__ void __launch_bounds__(256, 3)                                             \
      kernel(const uint8_t* x, int64_t row_bytes, int64_t type, int64_t width,                     \
             const int64_t* indptr, const int32_t* indices, const void* vertices, int64_t wide,    \
             const float* weights, int64_t heads, const float* dst_scale, const float* self_scale, \
             const uint8_t* own, int64_t own_row_bytes, const uint8_t* gate,                       \
             int64_t gate_row_bytes, uint8_t* out, int64_t out_row_bytes, int64_t out_type,        \
             uint8_t* own_out, int64_t capacity, const int64_t* num_dst, const int64_t* num_own) { \
    gnnscale::aggregate<bytes, columns>({x,                                                        \
                                         row_bytes,                                                \
                                         type,                                                     \
                                         width,                                                    \
                                         indptr,                                                   \
                                         indices,                                                  \
                                         vertices,                                                 \
                                         wide,                                                     \
                                         weights,                                                  \
                                         heads,                                                    \
                                         width / heads,                                            \
                                         dst_scale,                                                \
                                         self_scale,                                               \
                                         own,                                                      \
                                         own_row_bytes,                                            \
                                         gate,                                                     \
                                         gate_row_bytes,                                           \
                                         out,                                                      \
                                         out_row_bytes,                                            \
                                         out_type,                                                 \
                                         own_out,                                                  \
                                         capacity,                                                 \
                                         num_dst,                                                  \
                                         num_own});                                                \
  }                                                                                                \
  GNNSCALE_EXPORT(kernel)

GNNSCALE_AGGREGATE(aggregate_4_4, 4, 4);
GNNSCALE_AGGREGATE(aggregate_4_1, 4, 1);
GNNSCALE_AGGREGATE(aggregate_2_4, 2, 4);
GNNSCALE_AGGREGATE(aggregate_2_1, 2, 1);
GNNSCALE_AGGREGATE(aggregate_1_4, 1, 4);
GNNSCALE_AGGREGATE(aggregate_1_1, 1, 1);

// Prepares the transpose of a block: each edge's sort key is its source, `num_src` after the last
// edge. Also writes the destination of each edge, 0 after the last one.
extern "C" __global__ void __launch_bounds__(256)
    block_edges(const int64_t* indptr, const int32_t* indices, const int64_t* num_dst,
                const int64_t* num_edges, int64_t capacity, int32_t num_src, int32_t* keys,
                int32_t* destinations) {
  using gnnscale::kThreads;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t edge = thread; edge < capacity; edge += stride) {
    const bool exists = edge < *num_edges;
    keys[edge] = exists ? indices[edge] : num_src;
    if (!exists) destinations[edge] = 0;
  }
  // One warp a destination.
  for (int64_t dst = thread / 32; dst < *num_dst; dst += stride / 32) {
    for (int64_t edge = indptr[dst] + threadIdx.x % 32; edge < indptr[dst + 1]; edge += 32) {
      destinations[edge] = static_cast<int32_t>(dst);
    }
  }
}
GNNSCALE_EXPORT(block_edges);

// Edges in the order of `order`: their destinations, and weights[e] * dst_scale[destination].
extern "C" __global__ void __launch_bounds__(256)
    transposed_edges(const int64_t* order, const int32_t* destinations, const float* weights,
                     const float* dst_scale, int64_t capacity, int32_t* out, float* out_weights) {
  using gnnscale::kThreads;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < capacity; i += stride) {
    const int64_t edge = order[i];
    const int32_t dst = destinations[edge];
    out[i] = dst;
    if (out_weights == nullptr) continue;
    const float weight = weights == nullptr ? 1.0F : weights[edge];
    out_weights[i] = dst_scale == nullptr ? weight : __fmul_rn(weight, dst_scale[dst]);
  }
}
GNNSCALE_EXPORT(transposed_edges);
