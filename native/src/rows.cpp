#include "gnnscale/rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/row_kernels.hpp"

namespace gnnscale {
namespace {

const RowKernels& kernels() { return GNNSCALE_FOR_ISA(row_kernels); }

// Rows that a thread takes at a time: some tens of KiB of output.
int64_t grain(int64_t length) { return std::max<int64_t>(16, 16384 / (length + 1)); }

constexpr int64_t kElementGrain = 1 << 16;

}  // namespace

const char* simd_level() { return kernels().name; }

void gather(const Gather& task, int num_threads) {
  parallel_for(task.num_rows, grain(task.x.length), num_threads,
               [&](int64_t begin, int64_t end) { kernels().gather(task, begin, end); });
}

void gather_columns(const GatherColumns& task, int num_threads) {
  parallel_for(task.num_rows, grain(task.x.length), num_threads,
               [&](int64_t begin, int64_t end) { kernels().gather_columns(task, begin, end); });
}

int read_rows(int fd, const RowIds& ids, int64_t num_rows, int64_t row_bytes, void* out,
              int num_threads) {
  std::atomic<int> error{0};
  parallel_for(num_rows, grain(row_bytes), num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && error == 0; ++i) {
      char* to = static_cast<char*>(out) + i * row_bytes;
      const ssize_t done = pread(fd, to, row_bytes, ids[i] * row_bytes);
      if (done != row_bytes) error = done < 0 ? errno : EIO;
    }
  });
  return error;
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

void aggregate_edges(const Aggregate& task, int num_threads) {
  parallel_for(task.num_dst, grain(task.x.length), num_threads,
               [&](int64_t begin, int64_t end) { kernels().aggregate(task, begin, end); });
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
  parallel_for(num_dst, grain(a.length), num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
        out[edge * out_stride] =
            kernels().dot(left + dst * a.stride, right + indices[edge] * x.stride, a.length);
      }
    }
  });
}

}  // namespace gnnscale
