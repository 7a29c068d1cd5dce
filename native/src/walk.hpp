// Walks of k-hop neighborhoods, and estimates of their cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

// Returns the positions of vertices with more than `limit` edges on their paths of up to `num_hops`
// hops. A walk reads at most this many edges.
template <typename Vertex>
std::vector<int64_t> long_walks(const Topology<Vertex>& graph, const Vertex* vertices,
                                int64_t num_vertices, int64_t num_hops, int64_t limit,
                                int num_threads, const Poll& poll) {
  constexpr int64_t kGrain = 1024;
  std::vector<uint32_t> previous, costs;
  const auto cost = [&](Vertex v) {
    const auto [begin, degree] = graph.list(v);
    int64_t sum = degree;
    if (!previous.empty()) {
      for (int64_t entry = begin; entry < begin + degree && sum <= limit; ++entry) {
        sum += previous[graph.neighbor(entry)];
      }
    }
    return static_cast<uint32_t>(std::min(sum, limit + 1));
  };
  for (int64_t hop = 1; hop < num_hops; ++hop) {
    costs.resize(graph.num_vertices);
    parallel_for(graph.num_vertices, kGrain, num_threads, poll, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) costs[v] = cost(static_cast<Vertex>(v));
    });
    std::swap(previous, costs);
  }
  std::vector<uint8_t> is_long(num_vertices);
  parallel_for(num_vertices, kGrain, num_threads, poll, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) is_long[i] = cost(vertices[i]) > limit;
  });
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < num_vertices; ++i) {
    if (is_long[i] != 0) positions.push_back(i);
  }
  return positions;
}

template <typename Vertex>
class Walk {
 public:
  Walk(const Topology<Vertex>& graph, int64_t num_hops)
      : graph_(graph), num_hops_(num_hops), last_visit_(graph.num_vertices) {}

  // Calls `use(u)` once for every vertex that is 1 to num_hops hops away from `v`.
  template <typename Use>
  void visit(Vertex v, Use&& use) {
    if (++round_ == 0) {
      std::fill_n(last_visit_.data(), graph_.num_vertices, 0);
      round_ = 1;
    }
    last_visit_.data()[v] = round_;
    frontier_.assign(1, v);
    for (int64_t hop = 1; hop <= num_hops_; ++hop) {
      next_.clear();
      for (const Vertex from : frontier_) {
        const auto [begin, degree] = graph_.list(from);
        for (int64_t entry = begin; entry < begin + degree; ++entry) {
          const Vertex u = graph_.neighbor(entry);
          if (last_visit_.data()[u] == round_) continue;
          last_visit_.data()[u] = round_;
          use(u);
          if (hop < num_hops_) next_.push_back(u);
        }
      }
      frontier_.swap(next_);
    }
  }

 private:
  const Topology<Vertex>& graph_;
  int64_t num_hops_;
  uint32_t round_ = 0;
  HugeArray<uint32_t> last_visit_;  // round of the last visit
  std::vector<Vertex> frontier_, next_;
};

}  // namespace gnnscale
