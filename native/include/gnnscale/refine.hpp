// Refinement of an undirected graph's parts: balances several weights, then lowers the cut.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/undirected.hpp"

namespace gnnscale {

// Undirected graph with several weights for each vertex and one for each edge.
template <typename Vertex>
struct WeightedGraph {
  Lists<Vertex> lists;
  const int32_t* edge_weights;    // [num_edges]; null: 1 each
  const int64_t* vertex_weights;  // [num_vertices, num_weights]
  int64_t num_weights;
};

// Maximum weights of parts: [num_parts, num_weights].
struct Limits {
  const int64_t* most;
  int32_t num_parts;
};

// Clusters whose vertices move as one unit: `labels` [num_vertices]; null: every vertex moves on
// its own. The graph of clusters is never built, which saves the memory of its edges.
struct Together {
  const int32_t* labels;
  int64_t num_clusters;
};

struct Refined {
  int64_t cut_before = 0;    // weight of edges between parts
  int64_t cut_balanced = 0;  // after the balancing moves
  int64_t cut = 0;           // at most cut_balanced
  bool within = false;       // whether all parts are within their limits
};

// Moves vertices between parts, `owner` [num_vertices], until all parts are within their limits or
// no move helps; then while moves lower the cut, at most `num_rounds` times. The result does not
// depend on num_threads. Throws invalid_argument if a cluster has vertices of two owners.
template <typename Vertex>
Refined refine(const WeightedGraph<Vertex>& graph, const Limits& limits, const Together& together,
               int64_t num_rounds, int32_t* owner, int num_threads, const Poll& poll = {});

}  // namespace gnnscale
