// Smaller graphs that are cut as larger ones are: clusters of vertices, and the graph of clusters.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/refine.hpp"

namespace gnnscale {

// Puts every vertex into a cluster, `labels` [num_vertices], numbered from 0; returns their number.
// Label propagation (Meyerhenke, Sanders and Schulz, SEA 2014): in turn, vertices of low degree
// first, each joins the cluster that it has most edges to, `num_rounds` times. No cluster of
// several vertices weighs more than `most` [num_weights]. What is left alone then joins others that
// are alone and have most edges to the same cluster, or none at all. With `owner` [num_vertices],
// null for none, clusters are parts of parts.
template <typename Vertex>
int64_t find_clusters(const WeightedGraph<Vertex>& graph, const int64_t* most, int64_t num_rounds,
                      const int32_t* owner, int32_t* labels, const Poll& poll = {});

// The graph of clusters: edges between two of them are one, with the sum of their weights, and so
// are vertices; edges inside of a cluster are gone. Of the edges that weigh less than `threshold`,
// each stays with the probability weight / threshold and then weighs `threshold`: every cut keeps
// its weight on average, and there are at most (weight of all edges) / threshold edges, about. 1
// keeps all.
struct Coarse {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<int32_t> edge_weights;
  Array<int64_t> vertex_weights;
};
// Throws overflow_error if edges weigh more together than 32 bits hold.
template <typename Vertex>
Coarse contract(const WeightedGraph<Vertex>& graph, const int32_t* labels, int64_t num_clusters,
                int64_t threshold, int num_threads);

}  // namespace gnnscale
