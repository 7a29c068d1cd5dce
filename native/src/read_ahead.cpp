#include "gnnscale/read_ahead.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Minimum rows of a thread.
constexpr int64_t kGrain = 64;

void ask_for(const Rows& x, const RowIds& ids, int64_t from, int64_t to) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto base = reinterpret_cast<uintptr_t>(x.data);
  const int64_t stride = x.stride * element_bytes(x.dtype);
  const int64_t row_bytes = x.length * element_bytes(x.dtype);
  uintptr_t first = 0, last = 0;  // pages not yet requested
  const auto advise = [&] {
    // Advice only: if the kernel ignores it, the row is read on first access.
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
  };
  for (int64_t i = from; i < to; ++i) {
    const uintptr_t row = base + static_cast<uintptr_t>(ids[i] * stride);
    const uintptr_t begin = row & ~(page - 1), end = (row + row_bytes + page - 1) & ~(page - 1);
    if (begin < first || begin > last) {
      advise();
      first = begin;
      last = end;
    } else if (end > last) {
      last = end;
    }
  }
  advise();
}

}  // namespace

void read_ahead(const Rows& x, const RowIds& ids, int64_t num_rows, int num_threads) {
  // Chunks as large as possible: consecutive rows make one long read.
  const int64_t grain = std::max(kGrain, (num_rows + num_threads - 1) / num_threads);
  parallel_for(num_rows, grain, num_threads,
               [&](int64_t begin, int64_t end) { ask_for(x, ids, begin, end); });
}

}  // namespace gnnscale
