#include "gnnscale/checks.hpp"

#include <algorithm>
#include <atomic>

#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/check_kernels.hpp"

namespace gnnscale {
namespace {

const CheckKernels& kernels() { return GNNSCALE_FOR_ISA(check_kernels); }

// Items of one work item; fewer would not justify waking a thread.
constexpr int64_t kGrain = 1 << 16;

template <typename Check>
bool holds_everywhere(int64_t size, int num_threads, Check&& check) {
  std::atomic<bool> good{true};
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    if (!check(begin, end)) good.store(false, std::memory_order_relaxed);
  });
  return good.load(std::memory_order_relaxed);
}

template <typename Id>
void check_ids(const Id* ids, int64_t size, int64_t bound, const char* name, int num_threads) {
  if constexpr (!kChecked) return;
  const bool good = holds_everywhere(size, num_threads, [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(Id) == 4) return kernels().below32(ids + begin, end - begin, bound);
    if constexpr (sizeof(Id) == 8) return kernels().below64(ids + begin, end - begin, bound);
  });
  if (good) return;
  const Id* wrong = std::find_if(ids, ids + size, [&](Id id) { return id < 0 || id >= bound; });
  // Another thread may have repaired the array since the check.
  const std::string value = wrong == ids + size ? "an id" : std::to_string(*wrong);
  throw std::invalid_argument(std::string(name) + ": " + value + " at place " +
                              std::to_string(wrong - ids) + ", allowed are 0 to " +
                              std::to_string(bound - 1));
}

}  // namespace

void check_below(const int32_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads) {
  check_ids(ids, size, bound, name, num_threads);
}

void check_below(const int64_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads) {
  check_ids(ids, size, bound, name, num_threads);
}

void check_offsets(const int64_t* offsets, int64_t num_lists, int64_t num_items, const char* name,
                   int num_threads) {
  if constexpr (!kChecked) return;
  const bool rises = holds_everywhere(num_lists, num_threads, [&](int64_t begin, int64_t end) {
    return kernels().never_falls(offsets + begin, end - begin);
  });
  if (rises && offsets[0] == 0 && offsets[num_lists] == num_items) return;
  throw std::invalid_argument(std::string(name) + ": must rise from 0 to " +
                              std::to_string(num_items) + ", the number of items; " +
                              (rises ? "goes from " + std::to_string(offsets[0]) + " to " +
                                           std::to_string(offsets[num_lists])
                                     : std::string("falls in between")));
}

}  // namespace gnnscale
