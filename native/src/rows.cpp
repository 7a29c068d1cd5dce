#include "gnnscale/rows.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "gnnscale/edge_chunks.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/row_kernels.hpp"

namespace gnnscale {
namespace {

const RowKernels& kernels() { return GNNSCALE_FOR_ISA(row_kernels); }

// Rows of one work item: some tens of KiB of output.
int64_t grain(int64_t length) { return std::max<int64_t>(16, 16384 / (length + 1)); }

// Rows of one work item of a copy. At its start a thread waits for the first rows, so that items
// are larger while all threads have several.
int64_t copy_grain(const Gather& task, int num_threads) {
  const int64_t share = task.num_rows / (4 * static_cast<int64_t>(num_threads));
  return std::max(grain(task.x.length), std::min(share, 8 * grain(task.x.length)));
}

// Edges that count as one row of the grain.
constexpr int64_t kEdgesOfRow = 16;

constexpr int64_t kElementGrain = 1 << 16;

}  // namespace

void gather(const Gather& task, int num_threads) {
  parallel_for(task.num_rows, copy_grain(task, num_threads), num_threads,
               [&](int64_t begin, int64_t end) { kernels().gather(task, begin, end); });
}

void gather_columns(const GatherColumns& task, int num_threads) {
  parallel_for(task.num_rows, grain(task.x.length), num_threads,
               [&](int64_t begin, int64_t end) { kernels().gather_columns(task, begin, end); });
}

namespace {

template <typename Id>
Array<Id> rows_of_edges(const Aggregate& task, int num_threads) {
  const auto* ids = static_cast<const Id*>(task.ids.data);
  Array<Id> rows(task.indptr[task.num_dst]);
  Id* out = rows.data.get();
  parallel_for(rows.size, kElementGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t edge = begin; edge < end; ++edge) out[edge] = ids[task.indices[edge]];
  });
  return rows;
}

// Returns the aggregation restricted to columns [first, last).
Aggregate of_columns(const Aggregate& task, int64_t first, int64_t last) {
  Aggregate part = task;
  part.first_column = first;
  part.x.length = last;
  return part;
}

// Minimum columns of a hub for each thread: with fewer, threads would mostly read cache lines in
// duplicate.
constexpr int64_t kHubColumns = 64;

// Splits the columns of a destination with many edges among threads. Each column is summed in edge
// order, so the result does not depend on the split.
void aggregate_hub(const Aggregate& task, int64_t dst, int num_threads) {
  const int64_t groups = (task.x.length + kHubColumns - 1) / kHubColumns;
  const int64_t columns = (groups + num_threads - 1) / num_threads * kHubColumns;
  parallel_for(task.x.length, columns, num_threads, [&](int64_t begin, int64_t end) {
    kernels().aggregate(of_columns(task, begin, end), dst, dst + 1);
  });
}

// Returns whether a destination would keep one thread busy long after all other threads are done.
bool is_hub(const Aggregate& task, int64_t dst, int num_threads) {
  constexpr int64_t kFewest = 4096;
  const int64_t share = (task.indptr[task.num_dst] - task.indptr[0]) / (2 * num_threads);
  return num_threads > 1 && task.x.length > kHubColumns &&
         task.indptr[dst + 1] - task.indptr[dst] > std::max(kFewest, share);
}

// Calls chunk(begin, end) for ranges of destinations with about equal numbers of edges, in any
// thread, and then hub(dst) for hubs, which are in no range, in the caller's thread.
template <typename Chunk, typename Hub>
void for_destinations(const Aggregate& task, int num_threads, Chunk&& chunk, Hub&& hub) {
  const EdgeChunks chunks(task.indptr, task.num_dst, grain(task.x.length) * kEdgesOfRow);
  std::mutex mutex;
  std::vector<int64_t> hubs;  // at most two for each thread
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t number = first; number < last; ++number) {
      auto [begin, end] = chunks[number];
      if (begin < end && is_hub(task, end - 1, num_threads)) {
        std::lock_guard lock(mutex);
        hubs.push_back(--end);
      }
      if (begin < end) chunk(begin, end);
    }
  });
  for (const int64_t dst : hubs) hub(dst);
}

void aggregate_edges(const Aggregate& task, int num_threads) {
  for_destinations(
      task, num_threads, [&](int64_t begin, int64_t end) { kernels().aggregate(task, begin, end); },
      [&](int64_t dst) { aggregate_hub(task, dst, num_threads); });
}

template <typename Id>
void aggregate_sources(Aggregate task, int num_threads) {
  const Array<Id> rows = rows_of_edges<Id>(task, num_threads);
  task.ids.data = rows.data.get();
  task.ids_per_edge = true;
  aggregate_edges(task, num_threads);
}

}  // namespace

void aggregate(const Aggregate& task, int num_threads) {
  if (task.ids.data == nullptr || task.ids_per_edge) {
    aggregate_edges(task, num_threads);
  } else {
    // Maps edges to rows once, rather than for every prefetch and every group of columns.
    task.ids.wide ? aggregate_sources<int64_t>(task, num_threads)
                  : aggregate_sources<int32_t>(task, num_threads);
  }
}

namespace {

// Elements of a slice, which fits into the first-level cache unless rows are long.
constexpr int64_t kSliceElements = 4096;

// Returns the aggregation restricted to destinations [begin, end), as rows 0 and following of
// `rows`.
Aggregate of_destinations(const Aggregate& task, int64_t begin, int64_t end, float* rows) {
  Aggregate part = task;
  part.indptr += begin;
  part.num_dst = end - begin;
  if (part.dst_scale != nullptr) part.dst_scale += begin;
  part.num_self = std::clamp<int64_t>(task.num_self - begin, 0, part.num_dst);
  if (part.num_self > 0) {
    if (part.self_scale != nullptr) part.self_scale += begin;
    const int64_t bytes = task.self.stride * element_bytes(task.self.dtype);
    part.self.data = static_cast<const char*>(task.self.data) + begin * bytes;
  }
  part.out = {rows, DType::float32, task.x.length, task.x.length};
  return part;
}

}  // namespace

void aggregate_slices(const Aggregate& task, int num_threads,
                      const std::function<void(int64_t, int64_t, const float*)>& use) {
  const int64_t width = task.x.length, slice = 1 + kSliceElements / (width + 1);
  for_destinations(
      task, num_threads,
      [&](int64_t begin, int64_t end) {
        const Array<float> rows(slice * width);
        for (int64_t first = begin; first < end; first += slice) {
          const int64_t last = std::min(first + slice, end);
          kernels().aggregate(of_destinations(task, first, last, rows.data.get()), 0, last - first);
          use(first, last, rows.data.get());
        }
      },
      [&](int64_t dst) {
        const Array<float> row(width);
        aggregate_hub(of_destinations(task, dst, dst + 1, row.data.get()), 0, num_threads);
        use(dst, dst + 1, row.data.get());
      });
}

void edge_dot(const Rows& a, const Rows& x, const int64_t* indptr, const int32_t* indices,
              int64_t num_dst, float* out, int64_t out_stride, int num_threads) {
  const auto* targets = static_cast<const float*>(a.data);
  const auto* sources = static_cast<const float*>(x.data);
  // Products of edges are independent: threads may share a destination's edges.
  parallel_for(
      indptr[num_dst], grain(a.length) * kEdgesOfRow, num_threads, [&](int64_t begin, int64_t end) {
        int64_t dst = std::upper_bound(indptr, indptr + num_dst + 1, begin) - indptr - 1;
        for (int64_t edge = begin; edge < end; ++edge) {
          while (edge >= indptr[dst + 1]) ++dst;
          out[edge * out_stride] =
              kernels().dot(targets + dst * a.stride, sources + indices[edge] * x.stride, a.length);
        }
      });
}

}  // namespace gnnscale
