// Scores of edges by the rows of both their ends (GATv2), and their gradient.
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
// columns of a head are added as those of edge_dot are: every instruction set gives the same bits.
void pair_scores(const PairScores& task, const MutableRows& scores, int num_threads);

// The gradients of own, z and attention from that of scores, [num_edges, num_heads]. Those of own
// are summed in the order of edges, those of z in that of destinations, those of attention over
// runs of destinations that depend on indptr alone, and then over these runs.
struct PairGradients {
  float *own, *z, *attention;
};
void pair_scores_backward(const PairScores& task, const float* grad, const PairGradients& out,
                          int num_threads);

}  // namespace gnnscale
