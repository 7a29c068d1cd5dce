// Entry points of the max aggregation kernels, one set for each instruction set.
#pragma once

#include "gnnscale/maxima.hpp"

namespace gnnscale {

struct MaximaKernels {
  // Process destinations, or sources, [begin, end).
  void (*aggregate_max)(const AggregateMax&, int64_t begin, int64_t end);
  void (*aggregate_max_backward)(const AggregateMaxBackward&, int64_t begin, int64_t end);
};

namespace baseline {
extern const MaximaKernels maxima_kernels;
}
namespace v3 {
extern const MaximaKernels maxima_kernels;
}
namespace v4 {
extern const MaximaKernels maxima_kernels;
}

}  // namespace gnnscale
