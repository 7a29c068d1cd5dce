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

// Rows that a thread takes at a time: some tens of KiB of output.
int64_t grain(int64_t length) { return std::max<int64_t>(16, 16384 / (length + 1)); }

// Edges for each row of that grain.
constexpr int64_t kEdgesOfRow = 16;

constexpr int64_t kElementGrain = 1 << 16;

}  // namespace

void gather(const Gather& task, int num_threads) {
  parallel_for(task.num_rows, grain(task.x.length), num_threads,
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

Rows from_column(const Rows& rows, int64_t column, int64_t length) {
  if (rows.data == nullptr) return rows;
  const auto* data = static_cast<const char*>(rows.data) + column * element_bytes(rows.dtype);
  return {data, rows.dtype, length, rows.stride};
}

// The same aggregation of some columns.
Aggregate of_columns(const Aggregate& task, int64_t first, int64_t length) {
  Aggregate part = task;
  part.x = from_column(task.x, first, length);
  part.self = from_column(task.self, first, length);
  part.gate = from_column(task.gate, first, length);
  const Rows out = from_column({task.out.data, task.out.dtype, 0, task.out.stride}, first, length);
  part.out = {const_cast<void*>(out.data), out.dtype, length, out.stride};
  return part;
}

// Columns of a hub that a thread takes at least: with fewer, most of the time would go to lines of
// memory that the others read too.
constexpr int64_t kHubColumns = 64;

// The threads share the columns of a destination with many edges. So each column is summed in the
// order of the edges, whoever sums it.
void aggregate_hub(const Aggregate& task, int64_t dst, int num_threads) {
  const int64_t groups = (task.x.length + kHubColumns - 1) / kHubColumns;
  const int64_t each = (groups + num_threads - 1) / num_threads * kHubColumns;
  parallel_for(task.x.length, each, num_threads, [&](int64_t begin, int64_t end) {
    kernels().aggregate(of_columns(task, begin, end - begin), dst, dst + 1);
  });
}

// Sums of one destination that would keep a thread busy long after the others are done.
bool is_hub(const Aggregate& task, int64_t dst, int num_threads) {
  constexpr int64_t kFewest = 4096;
  const int64_t share = (task.indptr[task.num_dst] - task.indptr[0]) / (2 * num_threads);
  return num_threads > 1 && task.x.length > kHubColumns &&
         task.indptr[dst + 1] - task.indptr[dst] > std::max(kFewest, share);
}

void aggregate_edges(const Aggregate& task, int num_threads) {
  const EdgeChunks chunks(task.indptr, task.num_dst, grain(task.x.length) * kEdgesOfRow);
  std::mutex mutex;
  std::vector<int64_t> hubs;  // at most two for each thread
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      auto [begin, end] = chunks[chunk];
      if (begin < end && is_hub(task, end - 1, num_threads)) {
        std::lock_guard lock(mutex);
        hubs.push_back(--end);
      }
      if (begin < end) kernels().aggregate(task, begin, end);
    }
  });
  for (const int64_t dst : hubs) aggregate_hub(task, dst, num_threads);
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
    // One look-up an edge, here, rather than one for every prefetch and every group of columns.
    task.ids.wide ? aggregate_sources<int64_t>(task, num_threads)
                  : aggregate_sources<int32_t>(task, num_threads);
  }
}

void edge_dot(const Rows& a, const Rows& x, const int64_t* indptr, const int32_t* indices,
              int64_t num_dst, float* out, int64_t out_stride, int num_threads) {
  const auto* left = static_cast<const float*>(a.data);
  const auto* right = static_cast<const float*>(x.data);
  // An edge's product is its own: threads may share a destination's edges.
  parallel_for(
      indptr[num_dst], grain(a.length) * kEdgesOfRow, num_threads, [&](int64_t begin, int64_t end) {
        int64_t dst = std::upper_bound(indptr, indptr + num_dst + 1, begin) - indptr - 1;
        for (int64_t edge = begin; edge < end; ++edge) {
          while (edge >= indptr[dst + 1]) ++dst;
          out[edge * out_stride] =
              kernels().dot(left + dst * a.stride, right + indices[edge] * x.stride, a.length);
        }
      });
}

}  // namespace gnnscale
