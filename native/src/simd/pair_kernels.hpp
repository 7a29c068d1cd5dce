// Entry points of the pair score kernels, one set for each instruction set.
#pragma once

#include "gnnscale/pair_scores.hpp"

namespace gnnscale {

// Edges by source: their destinations, and their edge numbers.
struct EdgesOfSources {
  const int64_t* indptr;
  const int32_t* destinations;
  const int64_t* edges;
};

struct PairKernels {
  // Processes destinations [begin, end).
  void (*scores)(const PairScores&, int64_t begin, int64_t end, const MutableRows& scores);
  // Writes the gradients of own rows, and adds to the gradient of attention.
  void (*backward_of_dst)(const PairScores&, const float* grad, int64_t begin, int64_t end,
                          float* grad_own, float* grad_attention);
  // Processes sources [begin, end).
  void (*backward_of_src)(const PairScores&, const float* grad, const EdgesOfSources&,
                          int64_t begin, int64_t end, float* grad_z);
};

namespace baseline {
extern const PairKernels pair_kernels;
}
namespace v3 {
extern const PairKernels pair_kernels;
}
namespace v4 {
extern const PairKernels pair_kernels;
}

}  // namespace gnnscale
