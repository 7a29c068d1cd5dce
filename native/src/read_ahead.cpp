#include "gnnscale/read_ahead.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Rows of a thread at least.
constexpr int64_t kGrain = 64;

void ask_for(const Rows& x, const RowIds& ids, int64_t from, int64_t to) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto base = reinterpret_cast<uintptr_t>(x.data);
  const int64_t stride = x.stride * element_bytes(x.dtype);
  const int64_t row_bytes = x.length * element_bytes(x.dtype);
  uintptr_t first = 0, last = 0;  // pages that are still to be asked for
  const auto ask = [&] {
    // Advice: where the system does not take it, the row is read when it is touched.
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
  };
  for (int64_t i = from; i < to; ++i) {
    const uintptr_t row = base + static_cast<uintptr_t>(ids[i] * stride);
    const uintptr_t begin = row & ~(page - 1), end = (row + row_bytes + page - 1) & ~(page - 1);
    if (begin < first || begin > last) {
      ask();
      first = begin;
      last = end;
    } else if (end > last) {
      last = end;
    }
  }
  ask();
}

}  // namespace

void read_ahead(const Rows& x, const RowIds& ids, int64_t num_rows, int num_threads) {
  // As many at a time as there are for each: rows one after the other make one long read.
  const int64_t grain = std::max(kGrain, (num_rows + num_threads - 1) / num_threads);
  parallel_for(num_rows, grain, num_threads,
               [&](int64_t begin, int64_t end) { ask_for(x, ids, begin, end); });
}

}  // namespace gnnscale
