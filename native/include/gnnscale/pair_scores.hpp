// Scores of edges from the rows of source and destination (GATv2), and their gradient.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Rows have num_heads * width columns, head after head, all float32.
struct PairScores {
  const float* own;        // [num_dst, num_heads, width]
  const float* z;          // [num_src, num_heads, width]
  const float* attention;  // [num_heads, width]
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst, num_src, num_heads, width;
  float slope;  // of LeakyReLU below 0

  int64_t length() const { return num_heads * width; }
};

// scores[e, k] = <attention[k], LeakyReLU(own[v, k] + z[u, k])> for every edge e from u to v. The
// columns of a head are summed in the order of edge_dot, so every instruction set gives the same
// bits.
void pair_scores(const PairScores& task, const MutableRows& scores, int num_threads);

// Gradients of own, z and attention from the gradient of scores, [num_edges, num_heads]. Gradients
// of own are summed in edge order, gradients of z in destination order. Gradients of attention are
// summed over runs of destinations, which depend on indptr alone, and then over the runs.
struct PairGradients {
  float *own, *z, *attention;
};
void pair_scores_backward(const PairScores& task, const float* grad, const PairGradients& out,
                          int num_threads);

}  // namespace gnnscale
