#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/partition.hpp"

namespace gnnscale {
namespace {

// Vertices and edges of one work item.
constexpr int64_t kVertices = 4096;
constexpr int64_t kEdges = 1 << 14;
constexpr int64_t kDistance = 16;

// Lowers a label to `hop`. Returns the previous value, at most `hop` if another thread was faster.
uint8_t lower(uint8_t& label, uint8_t hop) {
  const std::atomic_ref<uint8_t> shared(label);
  uint8_t old_hop = shared.load(std::memory_order_relaxed);
  while (old_hop > hop && !shared.compare_exchange_weak(old_hop, hop, std::memory_order_relaxed)) {
  }
  return old_hop;
}

}  // namespace

template <typename Vertex>
int64_t hops_from(const Topology<Vertex>& graph, const Vertex* starts, int64_t num_starts,
                  int64_t num_hops, uint8_t* hops, int num_threads, const Poll& poll) {
  int64_t num_reached = 0;
  std::vector<Vertex> frontier, next;
  for (int64_t i = 0; i < num_starts; ++i) {
    const uint8_t old_hop = lower(hops[starts[i]], 0);
    if (old_hop > 0) frontier.push_back(starts[i]);
    num_reached += old_hop == kUnreached;
  }
  std::mutex mutex;
  std::vector<int64_t> ends{0};
  for (int64_t hop = 1; hop <= num_hops && !frontier.empty(); ++hop) {
    next.clear();
    const auto size = static_cast<int64_t>(frontier.size());
    // Prefix sums of the frontier's degrees, which give threads equal numbers of edges.
    ends.resize(size + 1);
    parallel_for(size, kVertices, num_threads, poll, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) ends[i + 1] = graph.list(frontier[i]).degree;
    });
    std::inclusive_scan(ends.begin(), ends.end(), ends.begin());
    parallel_for(ends[size], kEdges, num_threads, poll, [&](int64_t first, int64_t last) {
      std::vector<Vertex> lowered;
      int64_t num_new = 0;
      int64_t i = std::upper_bound(ends.begin(), ends.end(), first) - ends.begin() - 1;
      for (int64_t edge = first; edge < last; edge = ends[++i]) {
        const int64_t begin = graph.list(frontier[i]).begin - ends[i];
        const int64_t end = begin + std::min(ends[i + 1], last);
        for (int64_t entry = begin + edge; entry < end; ++entry) {
          if (entry + kDistance < end) {
            __builtin_prefetch(hops + graph.neighbor(entry + kDistance));
          }
          const Vertex u = graph.neighbor(entry);
          const uint8_t old_hop = lower(hops[u], static_cast<uint8_t>(hop));
          if (old_hop > hop && hop < num_hops) lowered.push_back(u);
          num_new += old_hop == kUnreached;
        }
      }
      std::lock_guard lock(mutex);
      next.insert(next.end(), lowered.begin(), lowered.end());
      num_reached += num_new;
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
