#include <atomic>
#include <mutex>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/partition.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kDistance = 16;

// Lowers a label to `hop`, and says what it was; `hop` or less where another thread was faster.
uint8_t lower(uint8_t& label, uint8_t hop) {
  const std::atomic_ref<uint8_t> shared(label);
  uint8_t before = shared.load(std::memory_order_relaxed);
  while (before > hop && !shared.compare_exchange_weak(before, hop, std::memory_order_relaxed)) {
  }
  return before;
}

}  // namespace

template <typename Vertex>
int64_t hops_from(const Topology<Vertex>& graph, const Vertex* starts, int64_t num_starts,
                  int64_t num_hops, uint8_t* hops, int num_threads, const Poll& poll) {
  int64_t num_reached = 0;
  std::vector<Vertex> frontier, next;
  for (int64_t i = 0; i < num_starts; ++i) {
    const uint8_t before = lower(hops[starts[i]], 0);
    if (before > 0) frontier.push_back(starts[i]);
    num_reached += before == kUnreached;
  }
  std::mutex mutex;
  for (int64_t hop = 1; hop <= num_hops && !frontier.empty(); ++hop) {
    next.clear();
    const auto size = static_cast<int64_t>(frontier.size());
    parallel_for(size, kGrain, num_threads, poll, [&](int64_t first, int64_t last) {
      std::vector<Vertex> lowered;
      int64_t reached = 0;
      for (int64_t i = first; i < last; ++i) {
        const auto [begin, degree] = graph.list(frontier[i]);
        const int64_t end = begin + degree;
        for (int64_t place = begin; place < end; ++place) {
          if (place + kDistance < end) {
            __builtin_prefetch(hops + graph.neighbor(place + kDistance));
          }
          const Vertex u = graph.neighbor(place);
          const uint8_t before = lower(hops[u], static_cast<uint8_t>(hop));
          if (before > hop && hop < num_hops) lowered.push_back(u);
          reached += before == kUnreached;
        }
      }
      std::lock_guard lock(mutex);
      next.insert(next.end(), lowered.begin(), lowered.end());
      num_reached += reached;
    });
    frontier.swap(next);
  }
  return num_reached;
}

template int64_t hops_from(const Topology<int32_t>&, const int32_t*, int64_t, int64_t, uint8_t*,
                           int, const Poll&);
template int64_t hops_from(const Topology<int64_t>&, const int64_t*, int64_t, int64_t, uint8_t*,
                           int, const Poll&);

}  // namespace gnnscale
