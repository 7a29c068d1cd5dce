// Softmax over the incoming edges of each destination, one per attention head.
#pragma once

#include <cstdint>

namespace gnnscale {

// alpha[e, h] = bias[e] * exp(score[e, h]) / sum of bias[f] * exp(score[f, h]) over the edges f
// with the destination of e.
// Scores and alpha: [num_edges, num_heads]. `bias` [num_edges]; null: 1.
void edge_softmax(const int64_t* indptr, int64_t num_dst, int64_t num_heads, const float* scores,
                  const float* bias, float* alpha, int num_threads);

// grad_scores = alpha * (grad - sum over edges with the same destination of alpha * grad).
void edge_softmax_backward(const int64_t* indptr, int64_t num_dst, int64_t num_heads,
                           const float* alpha, const float* grad, float* grad_scores,
                           int num_threads);

}  // namespace gnnscale
