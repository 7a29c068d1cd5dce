#include "gnnscale/elementwise.hpp"

#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/activation_kernels.hpp"

namespace gnnscale {
namespace {

const ActivationKernels& kernels() { return GNNSCALE_FOR_ISA(activation_kernels); }

// Elements of one work item.
constexpr int64_t kGrain = 1 << 16;

}  // namespace

void relu_dropout(const ReluDropout& task, int num_threads) {
  const int64_t rows = 1 + kGrain / (task.x.length + 1);
  parallel_for(task.num_rows, rows, num_threads,
               [&](int64_t begin, int64_t end) { kernels().relu_dropout(task, begin, end); });
}

void relu_dropout_backward(const void* y, const void* grad, void* out, DType dtype, int64_t size,
                           float scale, int num_threads) {
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    kernels().relu_dropout_backward(y, grad, out, dtype, begin, end, scale);
  });
}

}  // namespace gnnscale
