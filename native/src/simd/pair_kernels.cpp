// Edge scores from the rows of both ends, and their gradient. Compiled once per instruction set:
// the compiler vectorizes loops over columns that have no reduction across columns.
#include "pair_kernels.hpp"

#include "partial_sums.hpp"
#include "prefetch_rows.hpp"
#include "vector.hpp"

namespace gnnscale {
namespace {

// Returns the prefetch distance in edges.
inline int64_t prefetch_distance(const PairScores& task) {
  return 1 + kAheadBytes / (4 * task.length() + 1);
}

void scores(const PairScores& task, int64_t begin, int64_t end, const MutableRows& out) {
  const int64_t length = task.length(), heads = task.num_heads, width = task.width;
  const int64_t distance = prefetch_distance(task), end_edge = task.indptr[end];
  for (int64_t dst = begin; dst < end; ++dst) {
    const float* own_row = task.own + dst * length;
    for (int64_t edge = task.indptr[dst]; edge < task.indptr[dst + 1]; ++edge) {
      if (edge + distance < end_edge) {
        prefetch_bytes(task.z + task.indices[edge + distance] * length, 4 * length);
      }
      const float* z = task.z + task.indices[edge] * length;
      float* of_edge = static_cast<float*>(out.data) + edge * out.stride;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head * width;
        of_edge[head] = sum_in_halves(width, [&]<typename V>(int64_t j) {
          const V pair = load_as<V>(own_row + first + j) + load_as<V>(z + first + j);
          return load_as<V>(task.attention + first + j) * (pair > 0 ? pair : pair * task.slope);
        });
      }
    }
  }
}

// For one edge and head: adds the gradient of LeakyReLU's argument, without the factor `attention`,
// and with kAttention also the contribution to attention's gradient.
template <bool kAttention>
inline void add_gradients(const float* __restrict own_row, const float* __restrict z, int64_t width,
                          float grad, float slope, float* __restrict sum,
                          float* __restrict attention) {
  const float negative_grad = grad * slope;
  for (int64_t j = 0; j < width; ++j) {
    const float pair = own_row[j] + z[j];
    const float pair_grad = pair > 0 ? grad : negative_grad;
    sum[j] += pair_grad;
    if constexpr (kAttention) attention[j] += pair_grad * pair;
  }
}

inline void multiply(float* __restrict row, const float* __restrict factors, int64_t length) {
  for (int64_t j = 0; j < length; ++j) row[j] *= factors[j];
}

void backward_of_dst(const PairScores& task, const float* grad, int64_t begin, int64_t end,
                     float* grad_own, float* grad_attention) {
  const int64_t length = task.length(), heads = task.num_heads, width = task.width;
  const int64_t distance = prefetch_distance(task), end_edge = task.indptr[end];
  for (int64_t dst = begin; dst < end; ++dst) {
    const float* own_row = task.own + dst * length;
    float* out = grad_own + dst * length;
    __builtin_memset(out, 0, 4 * length);
    for (int64_t edge = task.indptr[dst]; edge < task.indptr[dst + 1]; ++edge) {
      if (edge + distance < end_edge) {
        prefetch_bytes(task.z + task.indices[edge + distance] * length, 4 * length);
      }
      const float* z = task.z + task.indices[edge] * length;
      for (int64_t head = 0, first = 0; head < heads; ++head, first += width) {
        add_gradients<true>(own_row + first, z + first, width, grad[edge * heads + head],
                            task.slope, out + first, grad_attention + first);
      }
    }
    multiply(out, task.attention, length);
  }
}

void backward_of_src(const PairScores& task, const float* grad, const EdgesOfSources& by_source,
                     int64_t begin, int64_t end, float* grad_z) {
  const int64_t length = task.length(), heads = task.num_heads, width = task.width;
  const int64_t distance = prefetch_distance(task), end_entry = by_source.indptr[end];
  for (int64_t src = begin; src < end; ++src) {
    const float* z = task.z + src * length;
    float* out = grad_z + src * length;
    __builtin_memset(out, 0, 4 * length);
    for (int64_t entry = by_source.indptr[src]; entry < by_source.indptr[src + 1]; ++entry) {
      if (entry + distance < end_entry) {
        prefetch_bytes(task.own + by_source.destinations[entry + distance] * length, 4 * length);
        __builtin_prefetch(grad + by_source.edges[entry + distance] * heads, 0, 2);
      }
      const float* own_row = task.own + by_source.destinations[entry] * length;
      const float* of_edge = grad + by_source.edges[entry] * heads;
      for (int64_t head = 0, first = 0; head < heads; ++head, first += width) {
        add_gradients<false>(own_row + first, z + first, width, of_edge[head], task.slope,
                             out + first, nullptr);
      }
    }
    multiply(out, task.attention, length);
  }
}

}  // namespace

namespace GNNSCALE_ISA {
extern const PairKernels pair_kernels;
const PairKernels pair_kernels{scores, backward_of_dst, backward_of_src};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
