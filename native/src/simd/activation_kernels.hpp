// Entry points of the activation kernels, one set for each instruction set.
#pragma once

#include "gnnscale/elementwise.hpp"

namespace gnnscale {

struct ActivationKernels {
  // Rows [begin, end).
  void (*relu_dropout)(const ReluDropout&, int64_t begin, int64_t end);
  // grad = y > 0 ? grad * scale : 0.
  void (*relu_dropout_backward)(const void* y, const void* grad, void* out, DType dtype,
                                int64_t begin, int64_t end, float scale);
};

namespace baseline {
extern const ActivationKernels activation_kernels;
}
namespace v3 {
extern const ActivationKernels activation_kernels;
}
namespace v4 {
extern const ActivationKernels activation_kernels;
}

}  // namespace gnnscale
