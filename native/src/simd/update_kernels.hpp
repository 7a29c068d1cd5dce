// Entry points of the row update kernels, one set for each instruction set.
#pragma once

#include "gnnscale/row_updates.hpp"

namespace gnnscale {

struct UpdateKernels {
  // Updates rows ids[begin] to ids[end - 1] by their gradients [end - begin, width].
  void (*adam)(const AdamRows&, const float* gradients, int64_t begin, int64_t end);
  void (*adagrad)(const AdagradRows&, const float* gradients, int64_t begin, int64_t end);
};

namespace baseline {
extern const UpdateKernels update_kernels;
}
namespace v3 {
extern const UpdateKernels update_kernels;
}
namespace v4 {
extern const UpdateKernels update_kernels;
}

}  // namespace gnnscale
