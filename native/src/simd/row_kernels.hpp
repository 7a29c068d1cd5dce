// The kernels' entry points, one set for each instruction set they are compiled for.
#pragma once

#include "gnnscale/rows.hpp"

namespace gnnscale {

struct RowKernels {
  const char* name;
  void (*gather)(const Gather&, int64_t begin, int64_t end);
  void (*aggregate)(const Aggregate&, int64_t begin, int64_t end);
  float (*dot)(const float* a, const float* b, int64_t length);
};

namespace baseline {
extern const RowKernels row_kernels;
}
namespace v3 {
extern const RowKernels row_kernels;
}
namespace v4 {
extern const RowKernels row_kernels;
}

}  // namespace gnnscale
