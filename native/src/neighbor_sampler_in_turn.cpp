// Sampling of a hop in one run of threads over all edge types, of which one thread at a time
// relabels while the others pick.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/sampler.hpp"
#include "gnnscale/simd.hpp"
#include "simd/pick_kernels.hpp"

namespace gnnscale {
namespace {

// Edges of a chunk: enough to amortize its dispatch, few enough to stay in the second-level cache.
constexpr int64_t kChunkEdges = 1024;
// Weighted hops have larger chunks, since a chunk starts without prefetched data.
constexpr int64_t kWeightedChunkEdges = 2048;
// Destinations whose lists one work item counts, by all edge types.
constexpr int64_t kLists = 512;
constexpr int64_t kPrefetchDistance = 48;

void find(const Pick<int32_t>& hop, int64_t last, int64_t* positions) {
  GNNSCALE_FOR_ISA(pick_kernels).find32(hop, 0, last, positions);
}
void find(const Pick<int64_t>& hop, int64_t last, int64_t* positions) {
  GNNSCALE_FOR_ISA(pick_kernels).find64(hop, 0, last, positions);
}

// A chunk is damaged if it has an id that is no vertex.
enum class State : uint8_t { waiting, picked, damaged };

// Chunks of a hop, edge type by edge type. Threads pick them in any order, but they are used in
// order, by the thread that holds `using_`, so local ids do not depend on the number of threads.
// Use stops at the first damaged chunk.
template <typename Span>
class ChunkQueue {
 public:
  struct Chunk {
    size_t edge_type = 0;
    int64_t number = 0;  // among those of the edge type
    Span span = {};      // once picked
    std::atomic<State> state{State::waiting};
  };

  // `num_chunks` are those of each edge type.
  explicit ChunkQueue(const std::vector<int64_t>& num_chunks)
      : chunks_(std::accumulate(num_chunks.begin(), num_chunks.end(), int64_t{0})) {
    auto chunk = chunks_.begin();
    for (size_t type = 0; type < num_chunks.size(); ++type) {
      for (int64_t number = 0; number < num_chunks[type]; ++number, ++chunk) {
        chunk->edge_type = type;
        chunk->number = number;
      }
    }
  }

  int64_t size() const { return std::ssize(chunks_); }
  Chunk& operator[](int64_t chunk) { return chunks_[chunk]; }

  // Calls use(chunk) for the next chunks if they are picked, unless another thread does so.
  template <typename Use>
  void use_picked(Use&& use) {
    if (using_.test_and_set(std::memory_order_acquire)) return;
    while (next_ < size() && chunks_[next_].state.load(std::memory_order_acquire) == State::picked)
      use(chunks_[next_++]);
    using_.clear(std::memory_order_release);
  }

  // Returns the first chunk that was not used, or null.
  const Chunk* first_unused() const { return next_ < size() ? &chunks_[next_] : nullptr; }

 private:
  std::vector<Chunk> chunks_;
  std::atomic_flag using_;
  int64_t next_ = 0;
};

}  // namespace

// Turns the counts of all hops into offsets, and reserves capacity for the edges.
template <typename Vertex>
void Sampler<Vertex>::close_hops(std::span<Hop> hops) {
  std::vector<int64_t> num_more(fronts_.size());
  for (size_t i = 0; i < hops.size(); ++i) {
    Hop& hop = hops[i];
    Counted sum;
    for (size_t lists = 0; lists * hops.size() < counted_.size(); ++lists) {
      const int64_t first = static_cast<int64_t>(lists) * kLists;
      const int64_t last = std::min(first + kLists, hop.num_dst());
      int64_t* indptr = hop.indptr.data.get();
      if (sum.kept > 0) {
        for (int64_t dst = first; dst < last; ++dst) indptr[dst + 1] += sum.kept;
      }
      const Counted& counted = counted_[lists * hops.size() + i];
      sum.kept += counted.kept;
      sum.edges += counted.edges;
    }
    close_lists(hop, sum, hop.ask.by_weight ? kWeightedChunkEdges : kChunkEdges);
    num_more[hop.edges.source] += hop.num_edges;
  }
  for (size_t type = 0; type < fronts_.size(); ++type) {
    if (num_more[type] > 0) grow(static_cast<int>(type), num_more[type], hops);
  }
}

// Picks the neighbors of a hop by one edge type from disk, with all reads in flight together.
template <typename Vertex>
void Sampler<Vertex>::read_hop(const Hop& hop, const Pick<Vertex>& pick_from) {
  if (hop.num_edges == 0) return;
  const Span all{0, hop.num_dst(), 0, hop.num_edges};
  int64_t* positions = positions_.reserve(hop.num_edges + kPickSlack);
  if (hop.takes_all) {
    list_positions(hop, all, positions);
  } else {
    find(pick_from, hop.num_dst(), positions);
  }
  tell(hop, all, positions);
  disk_->read(pick_from, hop.num_dst(), positions);
  const auto is_source = [&](Vertex v) { return pick_from.sources.has(v); };
  const Vertex* picked = pick_from.picked;
  if (!std::all_of(picked, picked + hop.num_edges, is_source)) refuse_picked(pick_from, all);
}

template <typename Vertex>
template <typename Open, typename Use>
void Sampler<Vertex>::pick_hops(std::vector<Hop>& hops, int num_threads, bool relabels, Open&& open,
                                Use&& use) {
  using Queue = ChunkQueue<Span>;
  int64_t num_dst = 0;
  for (const Hop& hop : hops) num_dst = std::max(num_dst, hop.num_dst());
  // One thread counts without a break, which would be one in prefetching.
  const int64_t grain = num_threads <= 1 ? std::max<int64_t>(num_dst, 1) : kLists;
  const int64_t num_parts = std::max<int64_t>((num_dst + grain - 1) / grain, 1);
  counted_.assign(num_parts * hops.size(), {});
  std::vector<Pick<Vertex>> picks;
  std::optional<Queue> queue;

  const auto count = [&](int64_t part) {
    const int64_t last = std::min((part + 1) * grain, num_dst);
    count_lists(hops, part * grain, last, &counted_[part * hops.size()]);
  };
  const auto open_picks = [&] {
    close_hops(hops);
    std::vector<int64_t> num_chunks;
    for (size_t i = 0; i < hops.size(); ++i) {
      picks.push_back(pick_of(hops[i], open(i), relabels));
      num_chunks.push_back(hops[i].num_chunks());
    }
    return queue.emplace(num_chunks).size();
  };
  const auto use_chunk = [&](const typename Queue::Chunk& chunk) {
    use(chunk.edge_type, chunk.span.first_edge, chunk.span.last_edge);
  };
  const auto pick = [&](int64_t number) {
    queue->use_picked(use_chunk);
    typename Queue::Chunk& chunk = (*queue)[number];
    const Hop& hop = hops[chunk.edge_type];
    chunk.span = span(hop, chunk.number);
    const bool good = pick_span(hop, picks[chunk.edge_type], chunk.span);
    chunk.state.store(good ? State::picked : State::damaged, std::memory_order_release);
  };

  if (num_parts > 1 && disk_ == nullptr) {
    run_phases(num_threads,
               std::array<Phase, 2>{{{[&] { return num_parts; }, count}, {open_picks, pick}}});
  } else {
    for (int64_t part = 0; part < num_parts; ++part) count(part);
    const int64_t num_chunks = open_picks();
    for (size_t i = 0; i < hops.size() && disk_ != nullptr; ++i) {
      read_hop(hops[i], picks[i]);
      use(i, 0, hops[i].num_edges);
    }
    if (disk_ != nullptr) return;
    parallel_for(num_chunks, 1, num_threads, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) pick(chunk);
    });
  }
  queue->use_picked(use_chunk);
  if (const auto* damaged = queue->first_unused()) {
    refuse_picked(picks[damaged->edge_type], damaged->span);
  }
}

// Samples a hop by all edge types into `blocks`, and writes the global source vertices of edges.
template <typename Vertex>
void Sampler<Vertex>::sample_hops_in_turn(const std::vector<Plan>& plans, int num_threads,
                                          BlockArrays* blocks, Array<Vertex>* edge_vertices) {
  std::vector<Hop> hops = open_hops(plans);
  const auto open = [&](size_t i) {
    make_room(hops[i], blocks[i]);
    blocks[i].indices = Array<int32_t>(hops[i].num_edges);
    edge_vertices[i] = Array<Vertex>(hops[i].num_edges);
    return edge_vertices[i].data.get();
  };
  // Whether the picking thread has prefetched the table entries.
  const bool fetches = num_threads <= 1 && disk_ == nullptr;
  pick_hops(hops, num_threads, fetches, open, [&](size_t i, int64_t first, int64_t last) {
    const Vertex* picked = edge_vertices[i].data.get();
    int32_t* local = blocks[i].indices.data.get();
    if (by_unit_) return number_units(hops[i], picked, first, last, local);
    RelabelMap<Vertex>& map = fronts_[plans[i].edges.source].map;
    Vertex* vertices = fronts_[plans[i].edges.source].vertices.data();
    map.visit([&](auto& table) {
      Numbering numbering = map.numbering();
      const int64_t fetched = fetches ? first : std::max(first, last - kPrefetchDistance);
      int64_t edge = first;
      for (; edge < fetched; ++edge) {
        table.prefetch(picked[edge + kPrefetchDistance]);
        local[edge] = table.insert(numbering, picked[edge], vertices);
      }
      for (; edge < last; ++edge) local[edge] = table.insert(numbering, picked[edge], vertices);
      map.inserted(numbering);
    });
  });
  for (size_t i = 0; i < hops.size(); ++i) blocks[i].indptr = std::move(hops[i].indptr);
}

template <typename Vertex>
Array<int64_t> Sampler<Vertex>::reach_hop(const Plan& plan, int num_threads, int64_t& num_reached) {
  std::vector<Hop> hops = open_hops({plan});
  Vertex *picked = nullptr, *vertices = nullptr;
  num_reached = 0;
  // Resets all vertices to unseen for the next batch, also after an exception.
  struct Forget {
    VertexBits& seen;
    Vertex* const& vertices;
    const int64_t& size;
    ~Forget() { seen.erase_around(vertices, size); }
  } forget{seen_, vertices, num_reached};
  const auto open = [&](size_t) {
    picked = picked_.reserve(hops[0].num_edges);
    vertices = fronts_[0].vertices.data();
    num_reached = fronts_[0].map.size();
    for (int64_t i = 0; i < num_reached; ++i) seen_.insert(vertices[i]);
    return picked;
  };
  pick_hops(hops, num_threads, false, open, [&](size_t, int64_t first, int64_t last) {
    for (int64_t edge = first; edge < last; ++edge) {
      // Whether a vertex is new is unpredictable: no branch.
      vertices[num_reached] = picked[edge];
      num_reached += seen_.insert(picked[edge]);
    }
  });
  return std::move(hops[0].indptr);
}

template void Sampler<int32_t>::sample_hops_in_turn(const std::vector<Plan>&, int, BlockArrays*,
                                                    Array<int32_t>*);
template void Sampler<int64_t>::sample_hops_in_turn(const std::vector<Plan>&, int, BlockArrays*,
                                                    Array<int64_t>*);
template Array<int64_t> Sampler<int32_t>::reach_hop(const Plan&, int, int64_t&);
template Array<int64_t> Sampler<int64_t>::reach_hop(const Plan&, int, int64_t&);

}  // namespace gnnscale
