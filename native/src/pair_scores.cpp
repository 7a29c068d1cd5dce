#include "gnnscale/pair_scores.hpp"

#include <algorithm>

#include "gnnscale/csc.hpp"
#include "gnnscale/edge_chunks.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/pair_kernels.hpp"

namespace gnnscale {
namespace {

const PairKernels& kernels() { return GNNSCALE_FOR_ISA(pair_kernels); }

// Edges of one work item. Changing it changes the rounding of attention's gradient.
constexpr int64_t kEdges = 1024;

// Computes the gradients of own rows and of attention, run by run of destinations.
void of_destinations(const PairScores& task, const float* grad, const PairGradients& out,
                     int num_threads) {
  const EdgeChunks chunks(task.indptr, task.num_dst, kEdges);
  const int64_t length = task.length();
  Array<float> parts(chunks.size() * length);
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const auto [begin, end] = chunks[chunk];
      float* part = parts.data.get() + chunk * length;
      std::fill_n(part, length, 0.0F);
      kernels().backward_of_dst(task, grad, begin, end, out.own, part);
    }
  });
  std::fill_n(out.attention, length, 0.0F);
  for (int64_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const float* part = parts.data.get() + chunk * length;
    for (int64_t j = 0; j < length; ++j) out.attention[j] += part[j];
  }
}

}  // namespace

void pair_scores(const PairScores& task, const MutableRows& scores, int num_threads) {
  const EdgeChunks chunks(task.indptr, task.num_dst, kEdges);
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    kernels().scores(task, chunks[first].first, chunks[last - 1].second, scores);
  });
}

void pair_scores_backward(const PairScores& task, const float* grad, const PairGradients& out,
                          int num_threads) {
  of_destinations(task, grad, out, num_threads);
  const int64_t num_edges = task.indptr[task.num_dst];
  Array<int64_t> indptr(task.num_src + 1), edges(num_edges);
  Array<int32_t> destinations(num_edges);
  const BlockTranspose block{task.indptr, task.indices, task.num_dst, task.num_src, nullptr,
                             1,           nullptr};
  transpose_block(block, indptr.data.get(), destinations.data.get(), nullptr, edges.data.get());
  const EdgesOfSources by_source{indptr.data.get(), destinations.data.get(), edges.data.get()};
  const EdgeChunks chunks(by_source.indptr, task.num_src, kEdges);
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    const int64_t begin = chunks[first].first, end = chunks[last - 1].second;
    kernels().backward_of_src(task, grad, by_source, begin, end, out.z);
  });
}

}  // namespace gnnscale
