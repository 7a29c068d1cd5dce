// Members of clusters, and the units that refinement moves.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/refine.hpp"

namespace gnnscale {

// The vertices of every cluster.
struct Members {
  std::vector<int64_t> starts;
  std::vector<int32_t> vertices;

  Members(const int32_t* labels, int64_t num_vertices, int64_t num_clusters)
      : starts(num_clusters + 1), vertices(num_vertices) {
    for (int64_t v = 0; v < num_vertices; ++v) ++starts[labels[v] + 1];
    for (int64_t i = 0; i < num_clusters; ++i) starts[i + 1] += starts[i];
    std::vector<int64_t> slots(starts.begin(), starts.end() - 1);
    for (int64_t v = 0; v < num_vertices; ++v) {
      vertices[slots[labels[v]]++] = static_cast<int32_t>(v);
    }
  }
};

// Units of movement: the vertices of a graph, or its clusters.
template <typename Vertex>
class Units {
 public:
  // Throws invalid_argument if a cluster has vertices of two owners.
  Units(const WeightedGraph<Vertex>& graph, const Together& clusters, const int32_t* owner)
      : graph_(graph), labels_(clusters.labels) {
    if (labels_ == nullptr) return;
    members_.emplace(labels_, num_vertices(), clusters.num_clusters);
    weights_.resize(clusters.num_clusters * graph.num_weights);
    for (int64_t v = 0; v < num_vertices(); ++v) {
      const int64_t unit = labels_[v];
      if (owner[v] != owner[first(unit)]) {
        throw std::invalid_argument("labels: cluster " + std::to_string(unit) +
                                    " has vertices of two owners, allowed is one");
      }
      for (int64_t c = 0; c < graph.num_weights; ++c) {
        weights_[unit * graph.num_weights + c] += graph.vertex_weights[v * graph.num_weights + c];
      }
    }
  }

  int64_t size() const { return members_ ? std::ssize(members_->starts) - 1 : num_vertices(); }
  // Whether a unit has no vertex; clusters may be empty.
  bool empty(int64_t unit) const {
    return members_ && members_->starts[unit] == members_->starts[unit + 1];
  }
  // Returns the unit's first vertex.
  int64_t first(int64_t unit) const {
    return members_ ? members_->vertices[members_->starts[unit]] : unit;
  }
  const int64_t* weights(int64_t unit) const {
    return (members_ ? weights_.data() : graph_.vertex_weights) + unit * graph_.num_weights;
  }
  // Calls use(vertex) for the unit's vertices.
  template <typename Use>
  void for_vertices(int64_t unit, const Use& use) const {
    if (!members_) {
      use(unit);
      return;
    }
    for (int64_t i = members_->starts[unit]; i < members_->starts[unit + 1]; ++i) {
      use(int64_t{members_->vertices[i]});
    }
  }
  // Calls use(vertex, weight) for every edge to a vertex of another unit.
  template <typename Use>
  void for_edges(int64_t unit, const Use& use) const {
    for_vertices(unit, [&](int64_t v) {
      for (int64_t e = graph_.lists.indptr[v]; e < graph_.lists.indptr[v + 1]; ++e) {
        const auto u = static_cast<int64_t>(graph_.lists.indices[e]);
        if (labels_ != nullptr && labels_[u] == unit) continue;
        use(u, graph_.edge_weights != nullptr ? int64_t{graph_.edge_weights[e]} : 1);
      }
    });
  }
  int64_t unit_of(int64_t vertex) const { return labels_ != nullptr ? labels_[vertex] : vertex; }

 private:
  int64_t num_vertices() const { return graph_.lists.num_vertices; }

  WeightedGraph<Vertex> graph_;
  const int32_t* labels_;
  std::optional<Members> members_;
  std::vector<int64_t> weights_;
};

}  // namespace gnnscale
