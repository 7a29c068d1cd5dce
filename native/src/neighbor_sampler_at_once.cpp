// Sampling of a hop with parallel relabeling.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>

#include "gnnscale/parallel.hpp"
#include "gnnscale/sampler.hpp"
#include "simd/pick_kernels.hpp"

namespace gnnscale {
namespace {

// Destinations whose lists one work item counts.
constexpr int64_t kLists = 1024;
constexpr int64_t kMinChunkEdges = 1024;
// Target number of chunks for each thread, given enough edges.
constexpr int64_t kChunksPerThread = 8;

// Returns the edges of a chunk, a power of two.
int64_t grain_of(int64_t num_edges, int num_threads) {
  const int64_t target = std::max(num_edges / (kChunksPerThread * num_threads), kMinChunkEdges);
  const auto grain = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(target)));
  return std::min(grain, RelabelAtOnce<int32_t>::kMaxGrain);
}

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point since, Clock::time_point until) {
  return std::chrono::duration<double>(until - since).count();
}

// Accumulates the time of a hop's phases, if requested.
class PhaseClock {
 public:
  explicit PhaseClock(HopTimes* times) : times_(times) {}

  // Wraps the preparation of a phase, which starts when the previous phase has ended.
  template <typename Prepare>
  std::function<int64_t()> timed(int phase, Prepare prepare) {
    if (times_ == nullptr) return prepare;
    return [this, phase, prepare] {
      if (phase > 0) end(phase - 1);
      const int64_t num_chunks = prepare();
      since_ = Clock::now();
      return num_chunks;
    };
  }

  void end(int phase) {
    if (times_ != nullptr) times_->shared[phase] += seconds(since_, Clock::now());
  }

 private:
  HopTimes* times_;
  Clock::time_point since_ = {};
};

}  // namespace

template <typename Vertex>
bool Sampler<Vertex>::relabels_at_once(std::span<const Plan> plans, int num_threads) const {
  if (num_threads < how_.at_once_from || disk_ != nullptr || by_unit_) return false;
  const int64_t mean_degree = graph_.num_edges / std::max<int64_t>(graph_.num_vertices, 1);
  int64_t num_edges = 0, num_types = 0;
  for (const Plan& plan : plans) {
    const int64_t of_type = plan.num_dst() * (plan.fanout < 0 ? mean_degree : plan.fanout);
    num_edges += of_type;
    num_types += of_type > 0;
  }
  // A few chunks for each thread; otherwise waking the threads costs more than they save.
  return num_edges >= std::max<int64_t>(num_types, 1) * (how_.at_once_from - 1) * kMinChunkEdges;
}

template <typename Vertex>
Array<Vertex> Sampler<Vertex>::sample_hop_at_once(const Plan& plan, int num_threads,
                                                  BlockArrays& block, Array<Vertex>* inputs) {
  PhaseClock clock(times_);
  std::vector<Hop> hops = open_hops({plan});
  Hop& hop = hops.front();
  Front& front = fronts_[hop.edges.source];
  const int64_t num_dst = hop.num_dst(), num_known = front.map.size();
  counted_.assign((num_dst + kLists - 1) / kLists, {});
  const auto num_lists = [&] { return std::ssize(counted_); };
  const auto end_of = [&](int64_t lists) { return std::min((lists + 1) * kLists, num_dst); };
  Array<Vertex> edge_vertices;
  Pick<Vertex> pick_from{};
  Vertex* vertices = nullptr;

  // Turns the counts into offsets, and allocates all edges.
  const auto place_lists = [&] {
    Counted sum;
    for (Counted& count : counted_) {
      const Counted chunk_count = count;
      count = sum;
      sum.kept += chunk_count.kept;
      sum.edges += chunk_count.edges;
    }
    close_lists(hop, sum, grain_of(sum.kept, num_threads));
    grow(hop.edges.source, hop.num_edges);
    make_room(hop, block);
    block.indices = Array<int32_t>(hop.num_edges);
    edge_vertices = Array<Vertex>(hop.num_edges);
    pick_from = pick_of(hop, edge_vertices.data.get(), true);
    at_once_.start(front.map, front.vertices.data(), pick_from.picked, hop.num_edges, hop.grain,
                   block.indices.data.get());
    return num_lists();
  };
  const auto move_offsets = [&](int64_t lists) {
    int64_t* indptr = hop.indptr.data.get();
    for (int64_t dst = lists * kLists; dst < end_of(lists); ++dst) {
      indptr[dst + 1] += counted_[lists].kept;
    }
  };
  const auto pick_and_claim = [&](int64_t chunk) {
    const Span picked = span(hop, chunk);
    if (!pick_span(hop, pick_from, picked)) refuse_picked(pick_from, picked);
    at_once_.claim(picked.first_edge, picked.last_edge);
  };
  // Vertices of the last hop are written directly to the batch.
  const auto place_vertices = [&] {
    const int64_t num_new = at_once_.place();
    vertices = front.vertices.data();
    if (inputs != nullptr) {
      *inputs = Array<Vertex>(num_known + num_new);
      vertices = inputs->data.get();
      std::copy_n(front.vertices.data(), num_known, vertices);
    }
    return hop.num_chunks();
  };
  const auto num_chunks = [&] { return hop.num_chunks(); };
  const std::array<Phase, HopTimes::kNumPhases> phases{{
      {clock.timed(0, num_lists),
       [&](int64_t lists) { count_lists(hops, lists * kLists, end_of(lists), &counted_[lists]); }},
      {clock.timed(1, place_lists), move_offsets},
      {clock.timed(2, num_chunks), pick_and_claim},
      {clock.timed(3, num_chunks), [&](int64_t chunk) { at_once_.count(chunk); }},
      {clock.timed(4, place_vertices),
       [&](int64_t chunk) { at_once_.number(chunk, vertices, inputs == nullptr); }},
  }};
  run_phases(num_threads, phases);
  clock.end(HopTimes::kNumPhases - 1);
  block.indptr = std::move(hop.indptr);
  return edge_vertices;
}

template <typename Vertex>
HopTimes Sampler<Vertex>::time_neighbors(const Seeds& seeds, const Fanouts& fanouts, uint64_t seed,
                                         uint64_t step, int num_threads) {
  HopTimes times;
  times_ = &times;
  const auto start = Clock::now();
  try {
    sample_neighbors(seeds, fanouts, false, seed, step, num_threads);
  } catch (...) {
    times_ = nullptr;
    throw;
  }
  times_ = nullptr;
  times.alone = seconds(start, Clock::now());
  for (const double shared : times.shared) times.alone -= shared;
  return times;
}

template bool Sampler<int32_t>::relabels_at_once(std::span<const Plan>, int) const;
template bool Sampler<int64_t>::relabels_at_once(std::span<const Plan>, int) const;
template Array<int32_t> Sampler<int32_t>::sample_hop_at_once(const Plan&, int, BlockArrays&,
                                                             Array<int32_t>*);
template Array<int64_t> Sampler<int64_t>::sample_hop_at_once(const Plan&, int, BlockArrays&,
                                                             Array<int64_t>*);
template HopTimes Sampler<int32_t>::time_neighbors(const Seeds&, const Fanouts&, uint64_t, uint64_t,
                                                   int);
template HopTimes Sampler<int64_t>::time_neighbors(const Seeds&, const Fanouts&, uint64_t, uint64_t,
                                                   int);

}  // namespace gnnscale
