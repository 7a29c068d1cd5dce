// Neighbour sampling and layer-wise sampling over a CSC topology.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/relabel.hpp"
#include "gnnscale/topology.hpp"
#include "gnnscale/vertex_bits.hpp"

namespace gnnscale {

template <typename Vertex>
struct Pick;

// Vertex ids of 32 or 64 bits.
struct Seeds {
  const void* data;
  bool wide;
  int64_t size;

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// One layer in bipartite form; see gnnscale.sampler.Block.
struct BlockArrays {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<float> importance;  // empty where every neighbour was equally likely
  int64_t num_src = 0;
};

template <typename Vertex>
struct SampledBatch {
  Array<Vertex> input_vertices;
  std::vector<BlockArrays> blocks;  // from the seeds outwards
  // Sources of the outermost block's edges as vertices of the graph, so that their features can be
  // read without a detour over local ids. Only from neighbour sampling.
  Array<Vertex> edge_vertices;
};

// The vertices that a batch reaches, and how far its lists are read: no edge.
template <typename Vertex>
struct ReachedBatch {
  Array<Vertex> vertices;               // as SampledBatch's input_vertices
  std::vector<Array<int64_t>> indptrs;  // of its blocks, from the seeds outwards
};

// Samples batches over one topology. Holds scratch space of four bytes a vertex, so a sampler
// serves one thread of the caller at a time; it may itself use several.
template <typename Vertex>
class Sampler {
 public:
  explicit Sampler(Topology<Vertex> graph)
      : graph_(graph), map_(graph.num_vertices), seen_(graph.num_vertices) {}

  // For hop h, keeps min(degree, fanouts[h]) in-neighbours of every vertex reached so far,
  // uniformly without replacement; with replacement, fanouts[h] of them unless the degree is 0; -1
  // keeps all. The choice for vertex v depends on (seed, step, h, v) alone. With `only_new`, hop h
  // expands only the vertices that hop h - 1 reached first, and the block's destinations are these
  // alone.
  //
  // Throws invalid_argument where a seed is no vertex or appears twice, length_error where a hop
  // has more than kMaxLocal vertices or edges, TopologyError where the topology is damaged.
  SampledBatch<Vertex> sample_neighbors(const Seeds& seeds, const std::vector<int64_t>& fanouts,
                                        bool replace, uint64_t seed, uint64_t step, int num_threads,
                                        bool only_new = false);

  // What sample_neighbors of the same arguments reaches. The vertices of the last hop are not
  // given local ids, which saves it a table of four bytes a vertex.
  ReachedBatch<Vertex> reach_neighbors(const Seeds& seeds, const std::vector<int64_t>& fanouts,
                                       bool replace, uint64_t seed, uint64_t step, int num_threads);

  // For hop h, keeps layer_sizes[h] of all distinct in-neighbours of the vertices reached so far,
  // with probability proportional to their degree, and every edge from a kept vertex (FastGCN, as
  // PaGraph section 5.1 uses it). An edge's importance is 1 / P(kept).
  // Throws as sample_neighbors does.
  SampledBatch<Vertex> sample_layers(const Seeds& seeds, const std::vector<int64_t>& layer_sizes,
                                     uint64_t seed, uint64_t step);

 private:
  // The edges of a hop before they are picked: how many each destination gets.
  struct Hop {
    Array<int64_t> indptr;
    std::vector<int64_t> chunks{0};  // first destination of each chunk
    int64_t num_edges = 0;

    int threads(int num_threads) const {
      return static_cast<int>(std::min<int64_t>(num_threads, std::ssize(chunks) - 1));
    }
  };

  void start(const Seeds& seeds);
  void grow(int64_t num_more);
  Hop plan_hop(int64_t first_dst, int64_t fanout, bool replace);
  Pick<Vertex> pick_of(const Hop& hop, int64_t first_dst, Vertex* picked, uint64_t key,
                       bool replace, const uint32_t* stamps) const;
  // Picks the neighbours of a hop, and calls use(first, last) for edges that are, in order.
  template <typename Use>
  void pick_hop(const Hop& hop, const Pick<Vertex>& pick_from, int threads, Use&& use);
  Array<int64_t> reach_hop(int64_t fanout, bool replace, uint64_t key, int num_threads,
                           int64_t& num_reached);
  BlockArrays sample_hop(int64_t first_dst, int64_t fanout, bool replace, uint64_t key,
                         int num_threads, Array<Vertex>& picked);
  std::vector<Vertex> neighbors_of_all(int64_t* indptr) const;
  BlockArrays sample_layer(int64_t layer_size, uint64_t key);

  Topology<Vertex> graph_;
  RelabelMap<Vertex> map_;
  Scratch<Vertex> vertices_;
  Scratch<int64_t> begins_;
  Scratch<Vertex> picked_;
  VertexBits seen_;
};

// The samplers of one topology that are not in use, so that any number of threads may sample at
// once and each reuses scratch space.
template <typename Vertex>
class SamplerPool {
 public:
  explicit SamplerPool(Topology<Vertex> graph) : graph_(graph) {}

  // Calls `use(sampler)` with a sampler that nobody else holds.
  template <typename Use>
  auto with_sampler(Use&& use) {
    std::unique_ptr<Sampler<Vertex>> sampler = take();
    auto result = use(*sampler);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(sampler));
    return result;
  }

 private:
  std::unique_ptr<Sampler<Vertex>> take() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto sampler = std::move(idle_.back());
        idle_.pop_back();
        return sampler;
      }
    }
    return std::make_unique<Sampler<Vertex>>(graph_);
  }

  Topology<Vertex> graph_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Sampler<Vertex>>> idle_;
};

}  // namespace gnnscale
