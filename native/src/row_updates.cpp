#include "gnnscale/row_updates.hpp"

#include "gnnscale/simd.hpp"
#include "simd/update_kernels.hpp"

namespace gnnscale {
namespace {

const UpdateKernels& kernels() { return GNNSCALE_FOR_ISA(update_kernels); }

}  // namespace

void adam_rows(const AdamRows& task, int num_threads) {
  aggregate_slices(task.gradients, num_threads,
                   [&](int64_t begin, int64_t end, const float* gradients) {
                     kernels().adam(task, gradients, begin, end);
                   });
}

void adagrad_rows(const AdagradRows& task, int num_threads) {
  aggregate_slices(task.gradients, num_threads,
                   [&](int64_t begin, int64_t end, const float* gradients) {
                     kernels().adagrad(task, gradients, begin, end);
                   });
}

}  // namespace gnnscale
