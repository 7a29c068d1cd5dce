// Neighbour sampling and layer-wise sampling over a CSC topology.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gnnscale/disk_lists.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/relabel.hpp"
#include "gnnscale/relabel_at_once.hpp"
#include "gnnscale/topology.hpp"
#include "gnnscale/vertex_bits.hpp"
#include "gnnscale/weighted_lists.hpp"

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

// One layer in bipartite form; see gnnscale.sampling.Block.
struct BlockArrays {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<float> importance;  // empty if every neighbour was equally likely
  int64_t num_src = 0;
  Array<int64_t> positions = {};   // of its edges in the topology's indices, if asked for
  Array<float> edge_weights = {};  // likewise
  Array<uint32_t> edge_rows = {};  // likewise
};

// Whether the neighbours of a hop are drawn by numbers that all lists have in common (LABOR-0 of
// Balin and Catalyurek, NeurIPS 2023): of each hop, or the same ones of all.
enum class Labor : uint8_t { no, hop, batch };

// The slots of all lists, which weighted_lists.hpp describes; those of damaged lists are empty.
// Throws length_error if there are more than kMaxWeighted edges.
class WeightSlots {
 public:
  WeightSlots(const int64_t* indptr, int64_t num_vertices, const float* weights, int64_t num_edges,
              int num_threads, const Poll& poll = {});

  const WeightSlot* data() const { return slots_.data(); }
  // Whether every weight was positive, so that none has to be looked at to count neighbours.
  bool all_positive() const { return all_positive_; }

 private:
  HugeArray<WeightSlot> slots_;
  bool all_positive_;
};

// What is to be known of weights and places of edges; by default nothing, which costs nothing.
struct EdgeOptions {
  const float* weights = nullptr;      // [num_edges], in the order of the topology's indices
  const WeightSlots* slots = nullptr;  // if neighbours are drawn by weight
  bool by_weight = false;              // neighbours are drawn with probability by weight
  bool positions = false;              // blocks tell the place of each edge
  bool edge_weights = false;           // and its weight
  // [num_edges] rows of edges' features, which blocks tell of each edge; null if nobody asks
  const uint32_t* rows = nullptr;
  Labor labor = Labor::no;
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

// How hops are relabelled: nothing but the time and the memory that it takes depends on it.
struct Relabelling {
  // A table of four bytes a vertex is used up to this size, above it one of the size of a batch.
  int64_t dense_bytes = dense_bytes_here();
  // From so many threads on they relabel at once; fewer take turns while the others pick, which is
  // less work.
  int at_once_from = 6;

  // What stays in the last-level cache of this machine, from 4 to 32 MiB.
  static int64_t dense_bytes_here();
};

// Seconds of a batch whose hops are relabelled at once: of each phase that threads share, and of
// what one thread does alone before, between and after them.
struct HopTimes {
  static constexpr int kNumPhases = 5;
  static constexpr const char* kNames[kNumPhases] = {"lists", "offsets", "pick", "count", "number"};

  double shared[kNumPhases] = {};
  double alone = 0;
};

// Samples batches over one topology. Holds scratch space of the size of a batch, a table of four
// bytes a vertex where that stays in the cache, and, once it was asked for what is reached, a bit a
// vertex. A sampler serves one thread of the caller at a time; it may itself use several.
template <typename Vertex>
class Sampler {
 public:
  // With `disk`, neighbours are read there, and the topology's indices are not. By weight, by
  // numbers that lists have in common, or layer by layer nothing can be drawn then.
  explicit Sampler(Topology<Vertex> graph, Relabelling how = {},
                   const DiskLists<Vertex>* disk = nullptr)
      : graph_(graph),
        how_(how),
        disk_(disk),
        map_(graph.num_vertices, how.dense_bytes),
        seen_(graph.num_vertices) {}

  // For hop h, keeps min(degree, fanouts[h]) in-neighbours of every vertex reached so far,
  // uniformly without replacement; with replacement, fanouts[h] of them unless the degree is 0; -1
  // keeps all. The choice for vertex v depends on (seed, step, h, v) alone. With `only_new`, hop h
  // expands only the vertices that hop h - 1 reached first, and the block's destinations are these
  // alone.
  //
  // With `ask.by_weight`, neighbours are drawn one after the other with probability proportional to
  // their edges' weights; those of weight 0 never, not even where all are kept.
  //
  // With `ask.labor`, every vertex t has a number that depends on (seed, step, h, t), or on (seed,
  // step, t), and a list keeps its neighbours of the smallest numbers. Copies of a neighbour that
  // follow it in a list have numbers of their own.
  //
  // Throws invalid_argument if a seed is no vertex or appears twice, length_error if a hop
  // has more than kMaxLocal vertices or edges, TopologyError if the topology is damaged.
  SampledBatch<Vertex> sample_neighbors(const Seeds& seeds, const std::vector<int64_t>& fanouts,
                                        bool replace, uint64_t seed, uint64_t step, int num_threads,
                                        bool only_new = false, const EdgeOptions& ask = {});

  // What sample_neighbors of the same arguments reaches. The vertices of the last hop are not
  // given local ids, which saves it a table of four bytes a vertex.
  ReachedBatch<Vertex> reach_neighbors(const Seeds& seeds, const std::vector<int64_t>& fanouts,
                                       bool replace, uint64_t seed, uint64_t step, int num_threads,
                                       const EdgeOptions& ask = {});

  // For hop h, keeps layer_sizes[h] of all distinct in-neighbours of the vertices reached so far,
  // with probability proportional to their degree, and every edge from a kept vertex (FastGCN, as
  // PaGraph section 5.1 uses it). An edge's importance is 1 / P(kept).
  // Throws as sample_neighbors does.
  SampledBatch<Vertex> sample_layers(const Seeds& seeds, const std::vector<int64_t>& layer_sizes,
                                     uint64_t seed, uint64_t step, const EdgeOptions& ask = {});

  // What sample_neighbors takes, without replacement, where all hops are relabelled at once.
  HopTimes time_neighbors(const Seeds& seeds, const std::vector<int64_t>& fanouts, uint64_t seed,
                          uint64_t step, int num_threads);

 private:
  // What a hop expands, and how.
  struct Plan {
    int64_t first_dst, fanout;
    bool replace;
    uint64_t key;
    EdgeOptions ask = {};

    int64_t count(int64_t degree) const {
      return fanout < 0 || (!replace && degree <= fanout) ? degree : degree == 0 ? 0 : fanout;
    }
  };

  // The edges of a hop, in chunks of about as many: how many each destination gets.
  struct Hop : Plan {
    Array<int64_t> indptr;
    int64_t num_edges = 0;
    int64_t grain = 0;
    // Every list is taken as it is, so that a chunk may begin and end within one.
    bool takes_all = false;

    // The first destination of each chunk, for those who look it up often.
    std::vector<int64_t> cuts = {};

    // Where places, weights and rows of edges go, null if nobody asks for them.
    int64_t* positions = nullptr;
    float* edge_weights = nullptr;
    uint32_t* edge_rows = nullptr;

    void cut() {
      cuts.reserve(num_chunks() + 1);
      int64_t begin = 0;  // of the next chunk
      for (int64_t dst = 0; dst < num_dst(); ++dst) {
        for (; indptr.data[dst] >= begin; begin += grain) cuts.push_back(dst);
      }
      cuts.resize(num_chunks() + 1, num_dst());
    }
    int64_t num_dst() const { return indptr.size - 1; }
    int64_t num_chunks() const { return (num_edges + grain - 1) / grain; }
    int threads(int num_threads) const {
      return static_cast<int>(std::min<int64_t>(num_threads, num_chunks()));
    }
  };

  // A chunk of a hop; where all is taken, `last_dst` is not used.
  struct Span {
    int64_t first_dst, last_dst, first_edge, last_edge;
  };

  // Of neighbour lists: how many edges are kept, and how many there are.
  struct Counted {
    int64_t kept = 0, edges = 0;
  };

  void start(const Seeds& seeds);
  void grow(int64_t num_more);

  Hop open_hop(const Plan& plan);
  Counted count_lists(Hop& hop, int64_t first, int64_t last);
  template <typename Keep>
  Counted count_lists(Hop& hop, int64_t first, int64_t last, Keep&& keep);
  void close_lists(Hop& hop, const Counted& counted, int64_t grain);
  Hop plan_hop(const Plan& plan);
  Span span(const Hop& hop, int64_t chunk) const;
  Pick<Vertex> pick_of(const Hop& hop, Vertex* picked, bool relabels) const;
  bool pick_span(const Hop& hop, const Pick<Vertex>& pick_from, const Span& span) const;
  bool pick_by_weights(const Hop& hop, const Pick<Vertex>& pick_from, const Span& span,
                       int64_t* positions) const;
  void fetch_list(const Hop& hop, const WeightedList& list) const;
  static void make_room(Hop& hop, BlockArrays& block);
  void list_positions(const Hop& hop, const Span& span, int64_t* positions) const;
  static void tell(const Hop& hop, const Span& span, const int64_t* positions);
  void read_hop(const Hop& hop, const Pick<Vertex>& pick_from);
  [[noreturn]] void refuse_picked(const Vertex* picked, const Span& span) const;

  // Picks the neighbours of a hop, and calls use(first, last) for edges that are, in order.
  template <typename Use>
  void pick_hop(const Hop& hop, const Pick<Vertex>& pick_from, int threads, Use&& use);
  Array<int64_t> reach_hop(const Plan& plan, int num_threads, int64_t& num_reached);

  bool relabels_at_once(const Plan& plan, int num_threads) const;
  BlockArrays sample_hop(const Plan& plan, int num_threads, bool is_last,
                         SampledBatch<Vertex>& batch);
  BlockArrays sample_hop_in_turn(const Plan& plan, int num_threads, SampledBatch<Vertex>& batch);
  BlockArrays sample_hop_at_once(const Plan& plan, int num_threads, bool is_last,
                                 SampledBatch<Vertex>& batch);
  void take_vertices(SampledBatch<Vertex>& batch) const;

  std::vector<Vertex> neighbors_of_all(int64_t* indptr, std::vector<int64_t>& begins) const;
  BlockArrays sample_layer(int64_t layer_size, uint64_t key, const EdgeOptions& ask);

  Topology<Vertex> graph_;
  Relabelling how_;
  const DiskLists<Vertex>* disk_;
  RelabelMap<Vertex> map_;
  RelabelAtOnce<Vertex> at_once_;
  Scratch<Vertex> vertices_;
  Scratch<int64_t> begins_;
  Scratch<int64_t> positions_;
  Scratch<Vertex> picked_;
  std::vector<Counted> counted_;
  VertexBits seen_;
  HopTimes* times_ = nullptr;
};

// Guards the idle samplers of all pools. A process may fork while another thread takes one: its
// child could then never take any if it were not held during the fork.
std::mutex& idle_samplers_mutex();

// The samplers of one topology that are not in use, so that any number of threads may sample at
// once and each reuses scratch space.
template <typename Vertex>
class SamplerPool {
 public:
  explicit SamplerPool(Topology<Vertex> graph, Relabelling how = {},
                       const DiskLists<Vertex>* disk = nullptr)
      : graph_(graph), how_(how), disk_(disk) {}

  // Calls `use(sampler)` with a sampler that nobody else holds.
  template <typename Use>
  auto with_sampler(Use&& use) {
    std::unique_ptr<Sampler<Vertex>> sampler = take();
    auto result = use(*sampler);
    std::lock_guard lock(idle_samplers_mutex());
    idle_.push_back(std::move(sampler));
    return result;
  }

 private:
  std::unique_ptr<Sampler<Vertex>> take() {
    {
      std::lock_guard lock(idle_samplers_mutex());
      if (!idle_.empty()) {
        auto sampler = std::move(idle_.back());
        idle_.pop_back();
        return sampler;
      }
    }
    return std::make_unique<Sampler<Vertex>>(graph_, how_, disk_);
  }

  Topology<Vertex> graph_;
  Relabelling how_;
  const DiskLists<Vertex>* disk_;
  std::vector<std::unique_ptr<Sampler<Vertex>>> idle_;
};

}  // namespace gnnscale
