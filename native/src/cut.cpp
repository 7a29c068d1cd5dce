#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/partition.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 8192;

void check_owners(const int16_t* owner, int64_t size, int64_t num_parts) {
  for (int64_t v = 0; v < size; ++v) {
    if (owner[v] >= -1 && owner[v] < num_parts) continue;
    throw std::invalid_argument("owner: " + std::to_string(owner[v]) + " at place " +
                                std::to_string(v) + ", allowed are -1 to " +
                                std::to_string(num_parts - 1));
  }
}

}  // namespace

template <typename Vertex>
void count_cut(const Topology<Vertex>& graph, const int16_t* owner, int64_t num_parts,
               int64_t* counts, int num_threads) {
  check_owners(owner, graph.num_vertices, num_parts);
  const int64_t num_chunks = (graph.num_vertices + kGrain - 1) / kGrain;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  run_threads(static_cast<int>(std::min<int64_t>(num_threads, num_chunks)), [&] {
    // One row for each destination part; column 0 counts sources without a part.
    const int64_t width = num_parts + 1;
    std::vector<int64_t> part_counts(num_parts * width);
    for (int64_t chunk; (chunk = next.fetch_add(1)) < num_chunks;) {
      const int64_t last = std::min(graph.num_vertices, (chunk + 1) * kGrain);
      for (int64_t v = chunk * kGrain; v < last; ++v) {
        if (owner[v] < 0) continue;
        int64_t* const of_source = part_counts.data() + owner[v] * width + 1;
        const auto [begin, degree] = graph.list(static_cast<Vertex>(v));
        for (int64_t entry = begin; entry < begin + degree; ++entry) {
          ++of_source[owner[graph.neighbor(entry)]];
        }
      }
    }
    std::lock_guard lock(mutex);
    for (int64_t from = 0; from < num_parts; ++from) {
      for (int64_t to = 0; to < num_parts; ++to) {
        counts[from * num_parts + to] += part_counts[to * width + 1 + from];
      }
    }
  });
}

template void count_cut(const Topology<int32_t>&, const int16_t*, int64_t, int64_t*, int);
template void count_cut(const Topology<int64_t>&, const int16_t*, int64_t, int64_t*, int);

}  // namespace gnnscale
