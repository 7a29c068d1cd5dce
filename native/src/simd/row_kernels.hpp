// The kernels' entry points, one set for each instruction set they are compiled for.
#pragma once

#include "gnnscale/rows.hpp"

namespace gnnscale {

struct RowKernels {
  const char* name;
  void (*gather)(const Gather&, int64_t begin, int64_t end);
  void (*aggregate)(const Aggregate&, int64_t begin, int64_t end);
  float (*dot)(const float* a, const float* b, int64_t length);
  // x = x > 0 and kept ? x * scale : 0, in place; an element is kept where its 16 random bits are
  // at least `drop`. `begin` is a multiple of 64.
  void (*relu_dropout)(void* x, DType dtype, int64_t begin, int64_t end, uint64_t key,
                       uint32_t drop, float scale);
  // grad = y > 0 ? grad * scale : 0.
  void (*relu_dropout_backward)(const void* y, const void* grad, void* out, DType dtype,
                                int64_t begin, int64_t end, float scale);
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
