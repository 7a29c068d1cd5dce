#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

namespace gnnscale {
namespace {

// Priority sampling (Duffield, Lund and Thorup, JACM 2007). Candidate u has priority unit(u) /
// q(u); the `size` smallest are kept. With t the next smallest priority, u was kept with
// probability min(1, q(u) t), so sums weighted by the inverse probability are unbiased. Returns 1 /
// probability for each candidate, 0 if it was dropped.
std::vector<float> keep_by_priority(const std::vector<double>& weights,
                                    const std::vector<double>& priorities, int64_t size) {
  const auto num_candidates = static_cast<int64_t>(weights.size());
  if (num_candidates <= size) return std::vector<float>(num_candidates, 1.0F);
  std::vector<double> order = priorities;
  std::nth_element(order.begin(), order.begin() + size, order.end());
  const double threshold = order[size];
  std::vector<float> importance(num_candidates, 0.0F);
  for (int64_t i = 0; i < num_candidates; ++i) {
    if (priorities[i] < threshold) {
      importance[i] = static_cast<float>(1.0 / std::min(1.0, weights[i] * threshold));
    }
  }
  return importance;
}

template <typename Vertex>
std::vector<Vertex> distinct(std::vector<Vertex> vertices) {
  std::sort(vertices.begin(), vertices.end());
  vertices.erase(std::unique(vertices.begin(), vertices.end()), vertices.end());
  return vertices;
}

}  // namespace

// Returns the neighbors of all vertices reached so far, list by list; writes offsets to `indptr`,
// and the begin of each list in the graph to `begins`.
template <typename Vertex>
std::vector<Vertex> Sampler<Vertex>::neighbors_of_all(int64_t* indptr,
                                                      std::vector<int64_t>& begins) const {
  std::vector<Vertex> neighbors;
  indptr[0] = 0;
  for (int64_t dst = 0; dst < fronts_[0].map.size(); ++dst) {
    const auto [begin, degree] = graph_.list(fronts_[0].vertices.data()[dst]);
    begins.push_back(begin);
    neighbors.insert(neighbors.end(), graph_.indices + begin, graph_.indices + begin + degree);
    indptr[dst + 1] = static_cast<int64_t>(neighbors.size());
    if (indptr[dst + 1] > kMaxLocal) {
      throw std::length_error("layer_sizes: a layer has more than " + std::to_string(kMaxLocal) +
                              " edges; fewer seeds or smaller layers are needed");
    }
  }
  return neighbors;
}

template <typename Vertex>
BlockArrays Sampler<Vertex>::sample_layer(int64_t layer_size, uint64_t key,
                                          const EdgeOptions& edge_options) {
  const int64_t num_dst = fronts_[0].map.size();
  std::vector<int64_t> lists(num_dst + 1), begins, positions;
  const std::vector<Vertex> neighbors = neighbors_of_all(lists.data(), begins);
  const std::vector<Vertex> candidates = distinct(neighbors);
  // Sorted, so checking the two ends suffices.
  if (!candidates.empty() && (candidates.front() < 0 || candidates.back() >= graph_.num_vertices)) {
    const Vertex wrong = candidates.front() < 0 ? candidates.front() : candidates.back();
    throw TopologyError("indices: " + std::to_string(wrong) + " is no vertex, the graph has " +
                        std::to_string(graph_.num_vertices));
  }

  std::vector<double> weights, priorities;
  for (const Vertex u : candidates) {
    // The squared norm of u's column of the adjacency matrix, FastGCN's importance.
    weights.push_back(static_cast<double>(std::max<int64_t>(graph_.list(u).degree, 1)));
    priorities.push_back(unit(combine(key, static_cast<uint64_t>(u))) / weights.back());
  }
  const std::vector<float> importance = keep_by_priority(weights, priorities, layer_size);

  BlockArrays block;
  block.indptr = Array<int64_t>(num_dst + 1);
  std::vector<int32_t> local;
  std::vector<float> scales;
  const bool needs_positions =
      edge_options.positions || edge_options.edge_weights || edge_options.rows != nullptr;
  grow(0, static_cast<int64_t>(candidates.size()));
  block.indptr.data[0] = 0;
  for (int64_t dst = 0; dst < num_dst; ++dst) {
    for (int64_t edge = lists[dst]; edge < lists[dst + 1]; ++edge) {
      const auto from = std::lower_bound(candidates.begin(), candidates.end(), neighbors[edge]);
      const float scale = importance[from - candidates.begin()];
      if (scale == 0.0F) continue;
      local.push_back(fronts_[0].map.insert(*from, fronts_[0].vertices.data()));
      scales.push_back(scale);
      if (needs_positions) positions.push_back(begins[dst] + edge - lists[dst]);
    }
    block.indptr.data[dst + 1] = static_cast<int64_t>(local.size());
  }
  block.indices = Array<int32_t>(static_cast<int64_t>(local.size()));
  block.importance = Array<float>(static_cast<int64_t>(local.size()));
  std::copy(local.begin(), local.end(), block.indices.data.get());
  std::copy(scales.begin(), scales.end(), block.importance.data.get());
  if (edge_options.positions) {
    block.positions = Array<int64_t>(std::ssize(positions));
    std::copy(positions.begin(), positions.end(), block.positions.data.get());
  }
  const auto look_up = [&]<typename T>(const T* values) {
    Array<T> attributes(std::ssize(positions));
    std::transform(positions.begin(), positions.end(), attributes.data.get(),
                   [&](int64_t position) { return values[position]; });
    return attributes;
  };
  if (edge_options.edge_weights) block.edge_weights = look_up(edge_options.weights);
  if (edge_options.rows != nullptr) block.edge_rows = look_up(edge_options.rows);
  block.num_src = fronts_[0].map.size();
  return block;
}

template <typename Vertex>
SampledBatch<Vertex> Sampler<Vertex>::sample_layers(const Seeds& seeds,
                                                    const std::vector<int64_t>& layer_sizes,
                                                    uint64_t seed, uint64_t step,
                                                    const EdgeOptions& edge_options) {
  start(seeds);
  SampledBatch<Vertex> batch;
  batch.edge_vertices.resize(1);
  for (size_t hop = 0; hop < layer_sizes.size(); ++hop) {
    const uint64_t key = stream_key(Stream::layerwise, seed, step, hop);
    batch.blocks.push_back(sample_layer(layer_sizes[hop], key, edge_options));
  }
  take_vertices(batch);
  return batch;
}

template SampledBatch<int32_t> Sampler<int32_t>::sample_layers(const Seeds&,
                                                               const std::vector<int64_t>&,
                                                               uint64_t, uint64_t,
                                                               const EdgeOptions&);
template SampledBatch<int64_t> Sampler<int64_t>::sample_layers(const Seeds&,
                                                               const std::vector<int64_t>&,
                                                               uint64_t, uint64_t,
                                                               const EdgeOptions&);

}  // namespace gnnscale
