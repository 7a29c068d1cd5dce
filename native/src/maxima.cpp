#include "gnnscale/maxima.hpp"

#include "gnnscale/edge_chunks.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/maxima_kernels.hpp"

namespace gnnscale {
namespace {

const MaximaKernels& kernels() { return GNNSCALE_FOR_ISA(maxima_kernels); }

// Elements of the edges' rows of one work item.
constexpr int64_t kGrain = 1 << 18;

template <typename Task>
void for_lists(const Task& task, int64_t num_lists, int num_threads,
               void (*kernel)(const Task&, int64_t begin, int64_t end)) {
  const EdgeChunks chunks(task.indptr, num_lists, 1 + kGrain / (task.x.length + 1));
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    kernel(task, chunks[first].first, chunks[last - 1].second);
  });
}

}  // namespace

void aggregate_max(const AggregateMax& task, int num_threads) {
  for_lists(task, task.num_dst, num_threads, kernels().aggregate_max);
}

void aggregate_max_backward(const AggregateMaxBackward& task, int num_threads) {
  for_lists(task, task.num_src, num_threads, kernels().aggregate_max_backward);
}

}  // namespace gnnscale
