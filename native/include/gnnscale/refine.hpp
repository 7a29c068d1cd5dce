// Parts of an undirected graph made better: balanced in several weights at once, then a lower cut.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/undirected.hpp"

namespace gnnscale {

// An undirected graph whose vertices have several weights each, and its edges one.
template <typename Vertex>
struct WeightedGraph {
  Lists<Vertex> lists;
  const int32_t* edge_weights;    // [num_edges]; null for 1 each
  const int64_t* vertex_weights;  // [num_vertices, num_weights]
  int64_t num_weights;
};

// What parts may weigh at most: [num_parts, num_weights].
struct Limits {
  const int64_t* most;
  int32_t num_parts;
};

// Vertices that move together: `labels` [num_vertices] is the cluster of each; null for none. The
// graph of clusters is not made, so that no memory is needed for its edges.
struct Together {
  const int32_t* labels;
  int64_t num_clusters;
};

struct Refined {
  int64_t cut_before = 0;    // the weight of edges between parts
  int64_t cut_balanced = 0;  // after vertices were moved for balance
  int64_t cut = 0;           // never above cut_balanced
  bool within = false;       // no part weighs more than it may
};

// Moves vertices between parts, `owner` [num_vertices], until no part weighs more than it may or no
// move helps; then as long as that lowers the cut, `num_rounds` times at most. The answer does not
// depend on num_threads. Throws invalid_argument if vertices that move together have two owners.
template <typename Vertex>
Refined refine(const WeightedGraph<Vertex>& graph, const Limits& limits, const Together& together,
               int64_t num_rounds, int32_t* owner, int num_threads, const Poll& poll = {});

}  // namespace gnnscale
