// Neighbor sampling and layer-wise sampling over a CSC topology.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "gnnscale/disk_lists.hpp"
#include "gnnscale/graph_types.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/relabel.hpp"
#include "gnnscale/relabel_at_once.hpp"
#include "gnnscale/timed_units.hpp"
#include "gnnscale/topology.hpp"
#include "gnnscale/unit_groups.hpp"
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
  const int64_t* cutoffs = nullptr;  // [size] of timed sampling

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Block: one sampled layer in bipartite form; see gnnscale.sampling.Block.
struct BlockArrays {
  Array<int64_t> indptr;
  Array<int32_t> indices;
  Array<float> importance;  // empty if neighbors were equally likely
  int64_t num_src = 0;
  Array<int64_t> positions = {};   // optional: edge positions in the topology's indices
  Array<float> edge_weights = {};  // optional
  Array<uint32_t> edge_rows = {};  // optional
};

// Scope of LABOR-0 sampling (Balin and Catalyurek, NeurIPS 2023), where all adjacency lists share
// the vertices' random numbers: off, one set of numbers for each hop, or one set for all hops of a
// batch.
enum class Labor : uint8_t { no, hop, batch };

// Alias-table slots of all adjacency lists, see weighted_lists.hpp; slots of damaged lists are
// empty. Throws length_error if there are more than kMaxWeighted edges.
class WeightSlots {
 public:
  WeightSlots(const int64_t* indptr, int64_t num_vertices, const float* weights, int64_t num_edges,
              int num_threads, const Poll& poll = {});

  const WeightSlot* data() const { return slots_.data(); }
  // Whether every weight was positive; if so, counting neighbors need not read weights.
  bool all_positive() const { return all_positive_; }

 private:
  HugeArray<WeightSlot> slots_;
  bool all_positive_;
};

// Optional edge inputs and outputs of sampling; by default none, at no cost.
struct EdgeOptions {
  const float* weights = nullptr;      // [num_edges], in the order of the topology's indices
  const WeightSlots* slots = nullptr;  // for drawing neighbors by weight
  bool by_weight = false;              // probability of neighbors proportional to weight
  bool positions = false;              // return each edge's position in the topology
  bool edge_weights = false;           // return each edge's weight
  // [num_edges] row numbers of edge features, returned for each edge; null: none
  const uint32_t* rows = nullptr;
  Labor labor = Labor::no;
  // Whether copies of a neighbor may lie apart in its list, which LABOR counts.
  bool has_scattered_copies = false;
  // Edges that units may reach, given cut-offs of the seeds; null: all, and units are vertices
  const TimeRule* time = nullptr;
};

template <typename Vertex>
struct SampledBatch {
  Array<Vertex> input_vertices;  // grouped by type
  // Number of vertices of each type: of the seeds, and after each hop.
  std::vector<std::vector<int64_t>> type_sizes;
  // From the seeds outward; for each hop one block for each edge type, whose local ids count the
  // vertices of the source type, and of the destination type.
  std::vector<BlockArrays> blocks;
  // Global source vertices of the outermost blocks' edges, for reading features without mapping
  // local ids. Only set by neighbor sampling.
  std::vector<Array<Vertex>> edge_vertices;
  Array<int64_t> cutoffs = {};  // of input_vertices; only set by timed sampling
  Array<int32_t> trees = {};    // seed of each input vertex's tree; only set if trees are disjoint
};

// Input frontier of a batch: its vertices and offsets, without edges.
template <typename Vertex>
struct ReachedBatch {
  Array<Vertex> vertices;               // as SampledBatch's input_vertices
  std::vector<Array<int64_t>> indptrs;  // of the batch's blocks, from the seeds outward
};

// Options of relabeling; they only affect time and memory.
struct Relabelling {
  // Maximum bytes of a dense table with four bytes for each vertex; larger graphs use a hash table
  // sized for the batch.
  int64_t dense_bytes = dense_bytes_here();
  // Number of threads from which relabeling runs in parallel. With fewer threads one thread at a
  // time relabels while the remaining ones pick, which is less work.
  int at_once_from = 6;

  // Returns the last-level cache size of this machine, clamped to 4 to 32 MiB.
  static int64_t dense_bytes_here();
};

// Seconds of a batch with parallel relabeling: for each parallel phase, and for the serial work
// before, between and after the phases.
struct HopTimes {
  static constexpr int kNumPhases = 5;
  static constexpr const char* kNames[kNumPhases] = {"lists", "offsets", "pick", "count", "number"};

  double shared[kNumPhases] = {};
  double alone = 0;
};

// Fan-outs: of hop h and edge type r at h * (number of edge types) + r; -1 takes all, 0 none.
using Fanouts = std::vector<int64_t>;

// Samples batches over one topology. Owns scratch memory sized for a batch, a dense table of four
// bytes for each vertex if it fits into the cache and, after the first input frontier, a bit for
// each vertex. Not thread-safe; a sampler may use several threads internally.
template <typename Vertex>
class Sampler {
 public:
  // With `disk`, neighbors are read from the file and the topology's indices are not used; sampling
  // by weight, LABOR and layer-wise sampling are then unavailable.
  explicit Sampler(Topology<Vertex> graph, Relabelling how = {},
                   const DiskLists<Vertex>* disk = nullptr, const GraphTypes* types = nullptr);

  // For hop h, keeps min(degree, fan-out) in-neighbors by each edge type of every vertex reached so
  // far, uniformly without replacement; with replacement, as many as the fan-out unless the degree
  // is 0; -1 keeps all. The choice for vertex v and edge type r depends on (seed, step, h, v, r)
  // alone. With `only_new`, hop h expands only vertices first reached by hop h - 1, which are the
  // block's destinations.
  //
  // With `ask.by_weight`, neighbors are drawn one after the other with probability proportional to
  // edge weight; edges of weight 0 are never drawn, even if all neighbors are kept.
  //
  // With `ask.labor`, every vertex t has a random number that depends on (seed, step, h, t), or on
  // (seed, step, t), for all edge types, and a list keeps the neighbors with the smallest numbers.
  // Repeated entries of a neighbor in a list have numbers of their own.
  //
  // With `ask.time`, seeds and frontiers are units: vertices as of a cut-off. A unit draws from the
  // edges that the rule allows, which are an interval of each list. The choice for a unit also
  // depends on its cut-off, and on the time since which it counts edges, if any; not on its tree.
  //
  // Throws invalid_argument if a seed is no vertex or appears twice, length_error if a hop has more
  // than kMaxLocal vertices or edges, TopologyError if the topology is damaged.
  SampledBatch<Vertex> sample_neighbors(const Seeds& seeds, const Fanouts& fanouts, bool replace,
                                        uint64_t seed, uint64_t step, int num_threads,
                                        bool only_new = false, const EdgeOptions& ask = {});

  // Returns the input frontier of sample_neighbors with equal arguments. Vertices of the last hop
  // get no local ids, which saves the dense table. Requires a single type of vertices and edges.
  ReachedBatch<Vertex> reach_neighbors(const Seeds& seeds, const Fanouts& fanouts, bool replace,
                                       uint64_t seed, uint64_t step, int num_threads,
                                       const EdgeOptions& ask = {});

  // For hop h, keeps layer_sizes[h] of all distinct in-neighbors of the vertices reached so far,
  // with probability proportional to their degree, and every edge from a kept vertex (FastGCN, as
  // PaGraph section 5.1 uses it). An edge's importance is 1 / P(kept). Throws as sample_neighbors
  // does. Requires a single type of vertices and edges.
  SampledBatch<Vertex> sample_layers(const Seeds& seeds, const std::vector<int64_t>& layer_sizes,
                                     uint64_t seed, uint64_t step, const EdgeOptions& ask = {});

  // Returns the time of the last edge of an edge type that each unit may reach by the bound of
  // `rule`, kNoTime if there is none. Throws invalid_argument if a vertex is not of the type's
  // destinations, TopologyError if the topology is damaged.
  Array<int64_t> last_times(const Seeds& units, int edge_type, const TimeRule& rule,
                            int num_threads) const;

  // Returns the time of sample_neighbors without replacement, with all hops relabeled in parallel.
  HopTimes time_neighbors(const Seeds& seeds, const Fanouts& fanouts, uint64_t seed, uint64_t step,
                          int num_threads);

 private:
  // Vertices of one type that a batch has reached, by local id, and their ids in the map; or units,
  // if a batch has units of one vertex that differ.
  struct Front {
    RelabelMap<Vertex> map;
    Scratch<Vertex> vertices = {};
    UnitMap<Vertex> units = {};
    UnitGroups<Vertex> groups = {};

    int64_t size() const { return map.size() + units.size() + groups.size(); }
  };

  // Destinations of a hop by one edge type, and the options of their expansion.
  struct Plan {
    EdgeType edges;
    int64_t first_dst, last_dst, fanout;
    bool replace;
    uint64_t key;
    EdgeOptions ask = {};
    const TimeShares* shares = nullptr;  // of the edge type, if timed

    // Expected share of a list's edges before a time.
    uint32_t share(int64_t time) const {
      return shares == nullptr ? uint32_t{1} << (TimeShares::kBits - 1) : shares->at(time);
    }
    int64_t num_dst() const { return last_dst - first_dst; }
    int64_t count(int64_t degree) const {
      return fanout < 0 || (!replace && degree <= fanout) ? degree : degree == 0 ? 0 : fanout;
    }
  };

  // Edges of a hop by one edge type: the count of each destination, and chunks with about equal
  // numbers of edges.
  struct Hop : Plan {
    Array<int64_t> indptr;
    int64_t* begins = nullptr;  // [2 * num_dst] offsets of the lists, then their degrees
    int64_t num_edges = 0;
    int64_t grain = 0;
    // Whether all lists are copied in full, so that a chunk may begin and end within a list.
    bool takes_all = false;

    // Outputs for positions, weights and rows of edges; null: not requested.
    int64_t* positions = nullptr;
    float* edge_weights = nullptr;
    uint32_t* edge_rows = nullptr;

    // Of timed sampling: keys of the destinations' draws, whether their lists were narrowed (null:
    // not needed), and times of the edges if they bound the sources.
    uint64_t* keys = nullptr;
    uint8_t* narrowed = nullptr;
    Array<int64_t> edge_times = {};

    int64_t* degrees() const { return begins + this->num_dst(); }
    int64_t num_chunks() const { return (num_edges + grain - 1) / grain; }
  };

  // Range of a chunk's destinations and edges; `last_dst` is unused if all lists are copied in
  // full.
  struct Span {
    int64_t first_dst, last_dst, first_edge, last_edge;
  };

  // Number of kept edges, and number of all edges of the adjacency lists.
  struct Counted {
    int64_t kept = 0, edges = 0;
  };

  void start(const Seeds& seeds, const TimeRule* rule = nullptr);
  void start_units(const Seeds& seeds, const TimeRule* rule);
  void start_groups(const Seeds& seeds);
  void insert_seed(Front& front, Vertex seed, int64_t number, int64_t cutoff);
  void grow(int type, int64_t num_more, std::span<const Hop> hops = {});
  std::vector<int64_t> edges_by_group(int source, std::span<const Hop> hops) const;

  std::vector<Hop> open_hops(const std::vector<Plan>& plans);
  void count_lists(std::span<Hop> hops, int64_t first, int64_t last, Counted* counted) const;
  void count_block(Hop& hop, int64_t first, int64_t last, int64_t end, Counted& counted) const;
  template <typename Keep>
  void count_block(Hop& hop, int64_t first, int64_t last, int64_t end, Counted& counted,
                   Keep&& keep) const;
  int64_t count_weighted(const Hop& hop, int64_t dst) const;
  AsOf as_of(const Hop& hop, int64_t dst) const;
  void narrow_lists(const Hop& hop, int64_t first, int64_t last) const;
  void narrow_block(const Hop& hop, int64_t first, int64_t last) const;
  void search_lowers(const Hop& hop, int64_t n, int64_t* lowers, const int64_t* begins,
                     const int64_t* ends) const;
  template <typename Use>
  void for_lists(const Hop& hop, int64_t first, int64_t last, Use&& use) const;
  void number_units(const Hop& hop, const Vertex* picked, int64_t first, int64_t last,
                    int32_t* local);
  void number_by_edge(const Hop& hop, const Vertex* picked, int64_t first, int64_t last,
                      int32_t* local);
  void number_by_group(const Hop& hop, const Vertex* picked, int64_t first, int64_t last,
                       int32_t* local);
  static void close_lists(Hop& hop, const Counted& counted, int64_t grain);
  Span span(const Hop& hop, int64_t chunk) const;
  Pick<Vertex> pick_of(const Hop& hop, Vertex* picked, bool relabels) const;
  bool pick_span(const Hop& hop, const Pick<Vertex>& pick_from, const Span& span) const;
  bool pick_by_weights(const Hop& hop, const Pick<Vertex>& pick_from, const Span& span,
                       int64_t* positions) const;
  void fetch_list(const Hop& hop, const WeightedList& list) const;
  void make_room(Hop& hop, BlockArrays& block) const;
  void list_positions(const Hop& hop, const Span& span, int64_t* positions) const;
  void tell(const Hop& hop, const Span& span, const int64_t* positions) const;
  [[noreturn]] void refuse_picked(const Pick<Vertex>& pick_from, const Span& span) const;

  // Picks the neighbors of a hop by all edge types, in one run of threads. Calls open(i) once the
  // edges of hops[i] are counted, which returns an array for its picked neighbors, and use(i,
  // first, last) for ranges of picked edges, in the order of edge types and edges.
  template <typename Open, typename Use>
  void pick_hops(std::vector<Hop>& hops, int num_threads, bool relabels, Open&& open, Use&& use);
  void close_hops(std::span<Hop> hops);
  void read_hop(const Hop& hop, const Pick<Vertex>& pick_from);
  void sample_hops_in_turn(const std::vector<Plan>& plans, int num_threads, BlockArrays* blocks,
                           Array<Vertex>* edge_vertices);
  Array<int64_t> reach_hop(const Plan& plan, int num_threads, int64_t& num_reached);

  // Whether hops by one edge type each are worth relabeling in parallel, on average.
  bool relabels_at_once(std::span<const Plan> plans, int num_threads) const;
  Array<Vertex> sample_hop_at_once(const Plan& plan, int num_threads, BlockArrays& block,
                                   Array<Vertex>* inputs);
  // Samples a hop by all edge types into `blocks`, and writes the global source vertices of their
  // edges; no list is read if the fan-out is 0. `inputs`: the batch's vertices, if these are all
  // that the hop reaches; or null.
  void sample_hops(const std::vector<Plan>& plans, int num_threads, BlockArrays* blocks,
                   Array<Vertex>* edge_vertices, Array<Vertex>* inputs);
  std::vector<int64_t> front_sizes() const;
  void take_vertices(SampledBatch<Vertex>& batch) const;
  void take_times(SampledBatch<Vertex>& batch) const;

  std::vector<Vertex> neighbors_of_all(int64_t* indptr, std::vector<int64_t>& begins) const;
  BlockArrays sample_layer(int64_t layer_size, uint64_t key, const EdgeOptions& ask);

  Topology<Vertex> graph_;
  Relabelling how_;
  const DiskLists<Vertex>* disk_;
  const GraphTypes types_;
  std::vector<Front> fronts_;  // by vertex type
  RelabelAtOnce<Vertex> at_once_;
  Scratch<int64_t> begins_;
  Scratch<uint64_t> keys_;
  Scratch<uint8_t> narrowed_;
  Scratch<int64_t> positions_;
  Scratch<Vertex> picked_;
  std::vector<Counted> counted_;
  VertexBits seen_;
  HopTimes* times_ = nullptr;
  // Of a batch: its rule, if it is timed, whether local ids number units, else their only cut-off.
  const TimeRule* rule_ = nullptr;
  // Whether units of a vertex may differ, and have the bounds of their seeds alone.
  bool by_unit_ = false, by_group_ = false;
  int64_t cutoff_ = 0;
  // If by group: the bounds of each group, the group of each seed, and the group of all sources
  // that have no bounds; -1: there are none.
  std::vector<AsOf> group_bounds_;
  std::vector<int32_t> seed_groups_;
  int32_t free_group_ = -1;
};

// Guards the idle samplers of all pools. Held during a fork: a fork while another thread holds the
// mutex would leave it locked forever in the child.
std::mutex& idle_samplers_mutex();

// Pool of samplers for one topology, so that any number of threads may sample concurrently and
// reuse scratch memory.
template <typename Vertex>
class SamplerPool {
 public:
  explicit SamplerPool(Topology<Vertex> graph, Relabelling how = {},
                       const DiskLists<Vertex>* disk = nullptr, const GraphTypes* types = nullptr)
      : graph_(graph), how_(how), disk_(disk), types_(types) {}

  // Calls `use(sampler)` with exclusive use of a sampler.
  template <typename Use>
  auto with_sampler(Use&& use) {
    std::unique_ptr<Sampler<Vertex>> sampler = take_idle();
    auto result = use(*sampler);
    std::lock_guard lock(idle_samplers_mutex());
    idle_.push_back(std::move(sampler));
    return result;
  }

 private:
  std::unique_ptr<Sampler<Vertex>> take_idle() {
    {
      std::lock_guard lock(idle_samplers_mutex());
      if (!idle_.empty()) {
        auto sampler = std::move(idle_.back());
        idle_.pop_back();
        return sampler;
      }
    }
    return std::make_unique<Sampler<Vertex>>(graph_, how_, disk_, types_);
  }

  Topology<Vertex> graph_;
  Relabelling how_;
  const DiskLists<Vertex>* disk_;
  const GraphTypes* types_;
  std::vector<std::unique_ptr<Sampler<Vertex>>> idle_;
};

}  // namespace gnnscale
