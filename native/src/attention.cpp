#include "gnnscale/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 256;

}  // namespace

void edge_softmax(const int64_t* indptr, int64_t num_dst, int64_t num_heads, const float* scores,
                  const float* bias, float* alpha, int num_threads) {
  parallel_for(num_dst, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t head = 0; head < num_heads; ++head) {
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          largest = std::max(largest, scores[edge * num_heads + head]);
        }
        float total = 0.0F;
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          float value = std::exp(scores[edge * num_heads + head] - largest);
          if (bias != nullptr) value *= bias[edge];
          alpha[edge * num_heads + head] = value;
          total += value;
        }
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          alpha[edge * num_heads + head] /= total;
        }
      }
    }
  });
}

void edge_softmax_backward(const int64_t* indptr, int64_t num_dst, int64_t num_heads,
                           const float* alpha, const float* grad, float* grad_scores,
                           int num_threads) {
  parallel_for(num_dst, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t head = 0; head < num_heads; ++head) {
        float total = 0.0F;
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          total += alpha[edge * num_heads + head] * grad[edge * num_heads + head];
        }
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          const int64_t at = edge * num_heads + head;
          grad_scores[at] = alpha[at] * (grad[at] - total);
        }
      }
    }
  });
}

}  // namespace gnnscale
