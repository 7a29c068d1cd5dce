// Edge coefficients of linear aggregations, and the per-vertex numbers that they need: equal to
// gnnscale/nn/conv/linear.py, rounded as NumPy rounds.
#include "gnnscale_cuda/device.hpp"

namespace gnnscale {
namespace {

enum class Rule : int64_t { symmetric = 0, mean = 1, sum = 2 };

// Pointers may be null unless marked "never null".
struct CoefficientsTask {
  int64_t rule;
  const int64_t* indptr;   // never null
  const int32_t* indices;  // never null
  const float *importance, *edge_weights, *weight_sums, *degrees;
  const int64_t *num_dst, *num_edges;       // on the device; never null
  float *weights, *dst_scale, *self_scale;  // outputs; null: not needed
};

// Returns the in-degree or weight sum of a source; its square root for symmetric normalization.
__device__ inline float root_of(const CoefficientsTask& task, int64_t source) {
  const float* sums = task.weight_sums != nullptr ? task.weight_sums : task.degrees;
  return __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(sums[source], 1.0F)));
}

__device__ inline float at_least(float value, float least) { return value > least ? value : least; }

// Returns the factor that makes the expectation of a sampled sum the full sum (sum_scale).
__device__ inline float sum_scale(const CoefficientsTask& task, int64_t dst) {
  const bool by_weight = task.weight_sums != nullptr && task.edge_weights == nullptr;
  const float full = (by_weight ? task.weight_sums : task.degrees)[dst];
  const auto num_drawn = static_cast<float>(task.indptr[dst + 1] - task.indptr[dst]);
  return __fdiv_rn(full, at_least(num_drawn, 1.0F));
}

// Returns the divisor that turns the sum over a destination's edges into their mean.
__device__ inline float total_of(const CoefficientsTask& task, int64_t dst) {
  constexpr float kTiny = 0x1p-126F;
  const int64_t begin = task.indptr[dst], end = task.indptr[dst + 1];
  if (task.edge_weights != nullptr) {
    if (task.importance != nullptr) return at_least(task.weight_sums[dst], kTiny);
    double sum = 0;
    for (int64_t edge = begin; edge < end; ++edge)
      sum += static_cast<double>(task.edge_weights[edge]);
    return at_least(static_cast<float>(sum), kTiny);
  }
  if (task.importance != nullptr) return at_least(task.degrees[dst], 1.0F);
  return at_least(static_cast<float>(end - begin), 1.0F);
}

__device__ inline float dst_scale_of(const CoefficientsTask& task, int64_t dst) {
  const auto rule = static_cast<Rule>(task.rule);
  if (rule == Rule::mean) return __fdiv_rn(1.0F, total_of(task, dst));
  const float scale = task.importance == nullptr ? sum_scale(task, dst) : 1.0F;
  return rule == Rule::sum ? scale : __fmul_rn(root_of(task, dst), scale);
}

__device__ inline float weight_of(const CoefficientsTask& task, int64_t edge) {
  float factor = 1.0F;
  if (task.importance != nullptr) factor = task.importance[edge];
  if (task.edge_weights != nullptr) factor = __fmul_rn(factor, task.edge_weights[edge]);
  if (static_cast<Rule>(task.rule) != Rule::symmetric) return factor;
  return __fmul_rn(root_of(task, task.indices[edge]), factor);
}

}  // namespace
}  // namespace gnnscale

extern "C" __global__ void __launch_bounds__(256)
    coefficients(int64_t rule, const int64_t* indptr, const int32_t* indices,
                 const float* importance, const float* edge_weights, const float* weight_sums,
                 const float* degrees, const int64_t* num_dst, const int64_t* num_edges,
                 float* weights, float* dst_scale, float* self_scale) {
  using gnnscale::kThreads;
  const gnnscale::CoefficientsTask task = {rule,         indptr,      indices,   importance,
                                           edge_weights, weight_sums, degrees,   num_dst,
                                           num_edges,    weights,     dst_scale, self_scale};
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t dst = thread; dst < *task.num_dst; dst += stride) {
    if (task.dst_scale != nullptr) task.dst_scale[dst] = gnnscale::dst_scale_of(task, dst);
    if (task.self_scale != nullptr) {
      const float root = gnnscale::root_of(task, dst);
      task.self_scale[dst] = __fmul_rn(root, root);
    }
  }
  if (task.weights == nullptr) return;
  for (int64_t edge = thread; edge < *task.num_edges; edge += stride) {
    task.weights[edge] = gnnscale::weight_of(task, edge);
  }
}
GNNSCALE_EXPORT(coefficients);

// Per-vertex numbers by local id, float32: from a table, or in-degrees from `indptr` or from a
// degree table; 0 after the last vertex. Two of the three tables are null.
extern "C" __global__ void __launch_bounds__(256)
    vertex_floats(const float* table, const int64_t* indptr, const uint32_t* degrees,
                  const void* vertices, int32_t wide, const int64_t* count, int64_t capacity,
                  float* out) {
  using gnnscale::kThreads;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < capacity; i += stride) {
    float value = 0.0F;
    if (i < *count) {
      const int64_t vertex = wide != 0 ? static_cast<const int64_t*>(vertices)[i]
                                       : static_cast<const int32_t*>(vertices)[i];
      value = table != nullptr    ? table[vertex]
              : indptr != nullptr ? static_cast<float>(indptr[vertex + 1] - indptr[vertex])
                                  : static_cast<float>(degrees[vertex]);
    }
    out[i] = value;
  }
}
GNNSCALE_EXPORT(vertex_floats);
