// ReLU and dropout, with the draws of native/src/simd/activation_kernels.cpp.
#include "gnnscale/random.hpp"
#include "gnnscale_cuda/columns.hpp"

namespace gnnscale {
namespace {

// Columns that a 64-bit draw decides, 16 bits each.
constexpr int kOfDraw = 4;

template <int kColumns>
__device__ void relu_dropout(uint8_t* x, RowType type, int64_t row_bytes, int64_t width,
                             const void* vertices, bool wide, const int64_t* count,
                             int64_t capacity, uint64_t key, uint32_t drop, float scale) {
  const int64_t parts = (width + kOfDraw - 1) / kOfDraw;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < capacity * parts;
       i += stride) {
    const int64_t row = i / parts, part = i % parts;
    uint8_t* values = x + row * row_bytes;
    const bool exists = row < *count;
    uint64_t bits = ~uint64_t{0};
    if (exists && drop != 0) {
      const int64_t vertex = wide ? static_cast<const int64_t*>(vertices)[row]
                                  : static_cast<const int32_t*>(vertices)[row];
      bits = draw(combine(key, static_cast<uint64_t>(vertex)), static_cast<uint64_t>(part));
    }
    GNNSCALE_UNROLL
    for (int k = 0; k < kOfDraw; k += kColumns) {
      const int64_t column = part * kOfDraw + k;
      if (column >= width) break;
      Columns<kColumns> value{};
      if (exists) value = load_computed<kColumns>(values, type, column);
      GNNSCALE_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const bool is_kept = (bits >> 16 * (k + j) & 0xffff) >= drop;
        value.at[j] = !is_kept || value.at[j] <= 0 ? 0.0F : __fmul_rn(value.at[j], scale);
      }
      store_computed<kColumns>(values, type, column, value);
    }
  }
}

template <int kColumns>
__device__ void relu_dropout_backward(const uint8_t* y, const uint8_t* grad, uint8_t* out,
                                      RowType type, int64_t size, float scale) {
  const int64_t stride = gridDim.x * int64_t{kThreads};
  const int64_t parts = size / kColumns;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < parts; i += stride) {
    const auto open = load_computed<kColumns>(y, type, i * kColumns);
    auto value = load_computed<kColumns>(grad, type, i * kColumns);
    GNNSCALE_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      value.at[k] = open.at[k] > 0 ? __fmul_rn(value.at[k], scale) : 0.0F;
    }
    store_computed<kColumns>(out, type, i * kColumns, value);
  }
}

}  // namespace
}  // namespace gnnscale

#define GNNSCALE_ACTIVATION(columns)                                                             \
  extern "C" __global__ void __launch_bounds__(256, 3) relu_dropout_##columns(                   \
      uint8_t* x, int32_t type, int64_t row_bytes, int64_t width, const void* vertices,          \
      int32_t wide, const int64_t* count, int64_t capacity, uint64_t seed, const uint64_t* step, \
      uint64_t layer, uint32_t drop, float scale) {                                              \
    const uint64_t key = gnnscale::stream_key(gnnscale::Stream::dropout, seed, *step, layer);    \
    gnnscale::relu_dropout<columns>(x, static_cast<gnnscale::RowType>(type), row_bytes, width,   \
                                    vertices, wide != 0, count, capacity, key, drop, scale);     \
  }                                                                                              \
  GNNSCALE_EXPORT(relu_dropout_##columns);                                                       \
  extern "C" __global__ void __launch_bounds__(256, 3)                                           \
      relu_dropout_backward_##columns(const uint8_t* y, const uint8_t* grad, uint8_t* out,       \
                                      int32_t type, int64_t size, float scale) {                 \
    gnnscale::relu_dropout_backward<columns>(y, grad, out, static_cast<gnnscale::RowType>(type), \
                                             size, scale);                                       \
  }                                                                                              \
  GNNSCALE_EXPORT(relu_dropout_backward_##columns)

GNNSCALE_ACTIVATION(4);
GNNSCALE_ACTIVATION(1);
