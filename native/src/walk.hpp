// Neighbourhoods walked vertex by vertex, and beforehand what that would cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

// Places of the vertices from which paths of up to `num_hops` edges have more than `limit` edges in
// all. A walk reads that many edges at most.
template <typename Vertex>
std::vector<int64_t> long_walks(const Topology<Vertex>& graph, const Vertex* vertices,
                                int64_t num_vertices, int64_t num_hops, int64_t limit,
                                int num_threads, const Poll& poll) {
  constexpr int64_t kGrain = 1024;
  std::vector<uint32_t> before, costs;
  const auto cost = [&](Vertex v) {
    const auto [begin, degree] = graph.list(v);
    int64_t sum = degree;
    if (!before.empty()) {
      for (int64_t place = begin; place < begin + degree && sum <= limit; ++place) {
        sum += before[graph.neighbor(place)];
      }
    }
    return static_cast<uint32_t>(std::min(sum, limit + 1));
  };
  for (int64_t hop = 1; hop < num_hops; ++hop) {
    costs.resize(graph.num_vertices);
    parallel_for(graph.num_vertices, kGrain, num_threads, poll, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) costs[v] = cost(static_cast<Vertex>(v));
    });
    std::swap(before, costs);
  }
  std::vector<uint8_t> is_long(num_vertices);
  parallel_for(num_vertices, kGrain, num_threads, poll, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) is_long[i] = cost(vertices[i]) > limit;
  });
  std::vector<int64_t> places;
  for (int64_t i = 0; i < num_vertices; ++i) {
    if (is_long[i] != 0) places.push_back(i);
  }
  return places;
}

template <typename Vertex>
class Walk {
 public:
  Walk(const Topology<Vertex>& graph, int64_t num_hops)
      : graph_(graph), num_hops_(num_hops), seen_(graph.num_vertices) {}

  // Calls `use(u)` once for every vertex that is 1 to num_hops hops away from `v`.
  template <typename Use>
  void visit(Vertex v, Use&& use) {
    if (++round_ == 0) {
      std::fill_n(seen_.data(), graph_.num_vertices, 0);
      round_ = 1;
    }
    seen_.data()[v] = round_;
    frontier_.assign(1, v);
    for (int64_t hop = 1; hop <= num_hops_; ++hop) {
      next_.clear();
      for (const Vertex from : frontier_) {
        const auto [begin, degree] = graph_.list(from);
        for (int64_t place = begin; place < begin + degree; ++place) {
          const Vertex u = graph_.neighbor(place);
          if (seen_.data()[u] == round_) continue;
          seen_.data()[u] = round_;
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
  HugeArray<uint32_t> seen_;  // the round in which a vertex was last seen
  std::vector<Vertex> frontier_, next_;
};

}  // namespace gnnscale
