// Attention over the edges of a block, with the arithmetic of native/src/attention.cpp: neither
// compiler fuses products and sums.
#include "gnnscale_cuda/device.hpp"
#include "gnnscale_cuda/doubles.hpp"

namespace gnnscale {
namespace {

// Returns e^x to within 0.5001 ulp, bit-identical to the native function.
__device__ inline float exponential(float x) {
  if (!(x > -150.0F)) return x <= -150.0F ? 0.0F : x;  // NaN propagates
  constexpr double kLog2e = 0x1.71547652b82fep0, kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kShift = 0x1.8p52;
  const double power = (x < 150.0F ? x : 150.0F) * kLog2e;
  const double shifted = power + kShift;
  const double r = (power - (shifted - kShift)) * kLn2;
  const double r2 = r * r, r4 = r2 * r2;
  const double low = (1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  const double high = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  const double mantissa = low + r4 * (high + r4 * (1.0 / 40320 + r * (1.0 / 362880)));
  return static_cast<float>(of_bits(bits_of(mantissa) + (bits_of(shifted) << 52)));
}

__device__ inline int64_t thread_of_grid() { return blockIdx.x * int64_t{kThreads} + threadIdx.x; }
__device__ inline int64_t threads_of_grid() { return gridDim.x * int64_t{kThreads}; }

}  // namespace
}  // namespace gnnscale

// Prepends a self-loop to each destination's edges. One warp a destination.
extern "C" __global__ void __launch_bounds__(256)
    self_edges(const int64_t* indptr, const int32_t* indices, const float* importance,
               const int64_t* num_dst, const int64_t* num_edges, int64_t* out_indptr,
               int32_t* out_indices, float* out_importance, int64_t* out_num_edges) {
  const int64_t thread = gnnscale::thread_of_grid(), count = *num_dst;
  if (thread == 0) {
    out_indptr[count] = indptr[count] + count;
    *out_num_edges = *num_edges + count;
  }
  for (int64_t dst = thread / 32; dst < count; dst += gnnscale::threads_of_grid() / 32) {
    const int64_t begin = indptr[dst], end = indptr[dst + 1];
    if (threadIdx.x % 32 == 0) {
      out_indptr[dst] = begin + dst;
      out_indices[begin + dst] = static_cast<int32_t>(dst);
      if (out_importance != nullptr) out_importance[begin + dst] = 1.0F;
    }
    for (int64_t edge = begin + threadIdx.x % 32; edge < end; edge += 32) {
      out_indices[edge + dst + 1] = indices[edge];
      if (out_importance != nullptr) out_importance[edge + dst + 1] = importance[edge];
    }
  }
}
GNNSCALE_EXPORT(self_edges);

// out[e] = src[u] + dst[v], 0 after the last edge. One warp a destination.
extern "C" __global__ void __launch_bounds__(256)
    edge_scores(const int64_t* indptr, const int32_t* indices, const float* src, const float* dst,
                int64_t num_heads, const int64_t* num_dst, const int64_t* num_edges,
                int64_t capacity, float* out) {
  const int64_t thread = gnnscale::thread_of_grid(), stride = gnnscale::threads_of_grid();
  for (int64_t i = *num_edges * num_heads + thread; i < capacity * num_heads; i += stride) {
    out[i] = 0.0F;
  }
  for (int64_t v = thread / 32; v < *num_dst; v += stride / 32) {
    const int64_t begin = indptr[v] * num_heads, end = indptr[v + 1] * num_heads;
    for (int64_t i = begin + threadIdx.x % 32; i < end; i += 32) {
      const int64_t edge = i / num_heads, head = i % num_heads;
      out[i] = src[indices[edge] * num_heads + head] + dst[v * num_heads + head];
    }
  }
}
GNNSCALE_EXPORT(edge_scores);

// Softmax of each destination's edges; 0 after the last edge. One thread for each destination and
// head.
extern "C" __global__ void __launch_bounds__(256)
    edge_softmax(const int64_t* indptr, const float* scores, const float* bias, int64_t num_heads,
                 const int64_t* num_dst, const int64_t* num_edges, int64_t capacity, float* alpha) {
  const int64_t thread = gnnscale::thread_of_grid(), stride = gnnscale::threads_of_grid();
  for (int64_t i = *num_edges * num_heads + thread; i < capacity * num_heads; i += stride) {
    alpha[i] = 0.0F;
  }
  for (int64_t i = thread; i < *num_dst * num_heads; i += stride) {
    const int64_t dst = i / num_heads, head = i % num_heads;
    const int64_t begin = indptr[dst], end = indptr[dst + 1];
    float largest = __uint_as_float(0xff800000U), total = 0.0F;
    for (int64_t edge = begin; edge < end; ++edge) {
      const float score = scores[edge * num_heads + head];
      largest = largest < score ? score : largest;
    }
    for (int64_t edge = begin; edge < end; ++edge) {
      float value = gnnscale::exponential(scores[edge * num_heads + head] - largest);
      if (bias != nullptr) value *= bias[edge];
      alpha[edge * num_heads + head] = value;
      total += value;
    }
    for (int64_t edge = begin; edge < end; ++edge) alpha[edge * num_heads + head] /= total;
  }
}
GNNSCALE_EXPORT(edge_softmax);

// Gradient of edge_softmax's scores from the gradient of its result.
extern "C" __global__ void __launch_bounds__(256)
    edge_softmax_backward(const int64_t* indptr, const float* alpha, const float* grad,
                          int64_t num_heads, const int64_t* num_dst, const int64_t* num_edges,
                          int64_t capacity, float* out) {
  const int64_t thread = gnnscale::thread_of_grid(), stride = gnnscale::threads_of_grid();
  for (int64_t i = *num_edges * num_heads + thread; i < capacity * num_heads; i += stride) {
    out[i] = 0.0F;
  }
  for (int64_t i = thread; i < *num_dst * num_heads; i += stride) {
    const int64_t dst = i / num_heads, head = i % num_heads;
    float total = 0.0F;
    for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
      total += alpha[edge * num_heads + head] * grad[edge * num_heads + head];
    }
    for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
      const int64_t at = edge * num_heads + head;
      out[at] = alpha[at] * (grad[at] - total);
    }
  }
}
GNNSCALE_EXPORT(edge_softmax_backward);

// out[e, h] = <a[v, h], x[u, h]>; 0 after the last edge. Half a warp for each edge and head: column
// j is added to partial sum j % 16, and the partial sums in a tree of halves, as in native code.
extern "C" __global__ void __launch_bounds__(256, 3)
    edge_dot(const float* a, const float* x, const int32_t* indices, const int32_t* destinations,
             int64_t num_heads, int64_t width, const int64_t* num_edges, int64_t capacity,
             float* out) {
  constexpr int kHalf = 16;
  const int64_t thread = gnnscale::thread_of_grid(), stride = gnnscale::threads_of_grid();
  const int64_t used = *num_edges * num_heads, lane = threadIdx.x % kHalf;
  // Both halves of a warp run every iteration, so that all lanes meet at its shuffles.
  for (int64_t first = thread / 32 * 2; first < capacity * num_heads; first += stride / kHalf) {
    const int64_t i = first + threadIdx.x % 32 / kHalf;
    float sum = 0.0F;
    if (i < used) {
      const int64_t edge = i / num_heads, head = i % num_heads;
      const float* a_row = a + (destinations[edge] * num_heads + head) * width;
      const float* x_row = x + (indices[edge] * num_heads + head) * width;
      for (int64_t j = lane; j < width; j += kHalf) sum += a_row[j] * x_row[j];
    }
    for (int distance = kHalf / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(gnnscale::kAllLanes, sum, distance);
    }
    if (lane == 0 && i < capacity * num_heads) out[i] = sum;
  }
}
GNNSCALE_EXPORT(edge_dot);
