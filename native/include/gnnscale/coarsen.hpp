// Multilevel coarsening: clusters of vertices, and the smaller graph of clusters that is cut
// instead.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/refine.hpp"

namespace gnnscale {

// Assigns every vertex to a cluster, `labels` [num_vertices], numbered from 0; returns the number
// of clusters. Label propagation (Meyerhenke, Sanders and Schulz, SEA 2014): one after the other,
// vertices of low degree first, each vertex joins the cluster to which it has most edges,
// `num_rounds` times. No cluster of several vertices weighs more than `max_weights` [num_weights].
// Vertices that remain single are then merged with single vertices that have most edges to the same
// cluster, or no edges at all. With `owner` [num_vertices], clusters do not cross parts; null: no
// parts.
template <typename Vertex>
int64_t find_clusters(const WeightedGraph<Vertex>& graph, const int64_t* max_weights,
                      int64_t num_rounds, const int32_t* owner, int32_t* labels,
                      const Poll& poll = {});

// Graph of clusters: parallel edges are merged and their weights added, vertices' weights are
// added, and edges inside a cluster are dropped. Each edge of a weight below `threshold` is kept
// with probability weight / threshold and then weighs `threshold`: the expected weight of every cut
// is unchanged, and about (weight of all edges) / threshold edges remain at most. A threshold of 1
// keeps all edges.
struct Coarse {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<int32_t> edge_weights;
  Array<int64_t> vertex_weights;
};
// Throws overflow_error if the weight of all edges exceeds 32 bits.
template <typename Vertex>
Coarse contract(const WeightedGraph<Vertex>& graph, const int32_t* labels, int64_t num_clusters,
                int64_t threshold, int num_threads);

}  // namespace gnnscale
