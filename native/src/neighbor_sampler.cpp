#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>

#include "gnnscale/parallel.hpp"
#include "gnnscale/prefetch.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"
#include "gnnscale/simd.hpp"
#include "labor_picks.hpp"
#include "simd/pick_kernels.hpp"
#include "weighted_picks.hpp"

namespace gnnscale {

void pick_many(uint64_t key, int64_t begin, int64_t n, int64_t k, int64_t* out) {
  std::unordered_set<int64_t> chosen;
  chosen.reserve(k);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t last = n - k + i;
    const auto candidate = static_cast<int64_t>(below(draw(key, i), last + 1));
    const int64_t position = chosen.insert(candidate).second ? candidate : last;
    if (position == last) chosen.insert(last);
    out[i] = begin + position;
  }
}

namespace {

constexpr int64_t kPrefetchDistance = 48;
constexpr int64_t kListsAhead = 12;
// Prefetch distances in edges: from slots to their blocks, and from blocks to their use.
constexpr int64_t kSlotsAhead = 128, kBlocksAhead = 128;

bool pick(const Pick<int32_t>& hop, int64_t first, int64_t last, int64_t* positions) {
  return GNNSCALE_FOR_ISA(pick_kernels).pick32(hop, first, last, positions);
}
bool pick(const Pick<int64_t>& hop, int64_t first, int64_t last, int64_t* positions) {
  return GNNSCALE_FOR_ISA(pick_kernels).pick64(hop, first, last, positions);
}
bool copy(const Pick<int32_t>& hop, int64_t dst, int64_t first, int64_t last) {
  return GNNSCALE_FOR_ISA(pick_kernels).copy32(hop, dst, first, last);
}
bool copy(const Pick<int64_t>& hop, int64_t dst, int64_t first, int64_t last) {
  return GNNSCALE_FOR_ISA(pick_kernels).copy64(hop, dst, first, last);
}

uint64_t hop_key(const EdgeOptions& edge_options, uint64_t seed, uint64_t step, uint64_t hop) {
  switch (edge_options.labor) {
    case Labor::no:
      if (edge_options.time != nullptr) return stream_key(Stream::timed, seed, step, hop);
      return stream_key(edge_options.by_weight ? Stream::weighted : Stream::neighbors, seed, step,
                        hop);
    case Labor::hop: return stream_key(Stream::labor, seed, step, hop);
    case Labor::batch: return stream_key(Stream::labor, seed, step, 0);
  }
  __builtin_unreachable();
}

// Prefetches the cache lines of a block's elements; an array that does not start on a line needs
// one more.
template <typename Element>
void fetch_elements(const Element* elements, int64_t block) {
  constexpr int64_t kBytes = 64;
  const auto begin = reinterpret_cast<uintptr_t>(elements + block * kWeightBlock);
  const uintptr_t end = begin + kWeightBlock * sizeof(Element);
  for (uintptr_t line = begin & ~(kBytes - 1); line < end; line += kBytes) {
    prefetch_far(reinterpret_cast<const void*>(line));
  }
}

// Returns the relabeling table's entry of a vertex; the address is invalid if the id is no vertex.
template <typename Vertex>
const void* entry_of(const Pick<Vertex>& hop, Vertex id) {
  const auto word = static_cast<uint64_t>(id);
  const uint64_t offset = hop.shift == 0 ? word * 4 : (word * kGolden >> hop.shift) * 8;
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(hop.table) + offset);
}

[[noreturn]] void refuse_size() {
  throw std::length_error("fanouts: a hop has more than " + std::to_string(kMaxLocal) +
                          " vertices or edges; smaller fan-outs or fewer seeds are needed");
}

}  // namespace

template <typename Vertex>
Sampler<Vertex>::Sampler(Topology<Vertex> graph, Relabelling how, const DiskLists<Vertex>* disk,
                         const GraphTypes* types)
    : graph_(graph),
      how_(how),
      disk_(disk),
      types_(types == nullptr ? GraphTypes::homogeneous(graph.num_vertices) : *types),
      seen_(graph.num_vertices) {
  // Tables of all types share the cache.
  const int64_t dense_bytes = graph.num_vertices <= how.dense_bytes / 4 ? how.dense_bytes : 0;
  fronts_.reserve(types_.vertices.size());
  for (const VertexType& type : types_.vertices) {
    fronts_.push_back({RelabelMap<Vertex>(type.size, dense_bytes, 1, type.first)});
  }
}

template <typename Vertex>
void Sampler<Vertex>::start(const Seeds& seeds, const TimeRule* rule) {
  if (seeds.size > kMaxLocal) refuse_size();
  start_units(seeds, rule);
  std::vector<int64_t> sizes_of_groups(group_bounds_.size());
  for (const int32_t group : seed_groups_) ++sizes_of_groups[group];
  for (Front& front : fronts_) {
    Vertex* vertices = front.vertices.reserve(seeds.size + 1);
    front.map.start();
    front.units.start(by_unit_ && rule->handed == Handed::since, by_unit_ && rule->disjoint);
    front.groups.start(std::ssize(group_bounds_));
    if (by_group_) {
      front.groups.reserve(sizes_of_groups, vertices);
    } else if (by_unit_) {
      front.units.reserve(seeds.size, vertices);
    } else {
      front.map.reserve(seeds.size, vertices);
    }
  }
  for (int64_t i = 0; i < seeds.size; ++i) {
    const int64_t seed = seeds[i];
    if (seed < 0 || seed >= graph_.num_vertices) {
      throw std::invalid_argument("seeds: " + std::to_string(seed) +
                                  " is not a vertex, the graph has " +
                                  std::to_string(graph_.num_vertices));
    }
    size_t type = 0;
    while (!types_.vertices[type].has(seed)) ++type;
    Front& front = fronts_[type];
    if (by_unit_) {
      insert_seed(front, static_cast<Vertex>(seed), i, seeds.cutoffs[i]);
      continue;
    }
    const int64_t next = front.map.size();
    if (front.map.insert(static_cast<Vertex>(seed), front.vertices.data()) != next) {
      throw std::invalid_argument("seeds: " + std::to_string(seed) + " appears twice in a batch");
    }
  }
}

template <typename Vertex>
void Sampler<Vertex>::grow(int type, int64_t num_more, std::span<const Hop> hops) {
  auto& [map, vertices, units, groups] = fronts_[type];
  if (by_unit_) {
    if (free_group_ >= 0) num_more = std::min(num_more, types_.vertices[type].size);
    const int64_t size = fronts_[type].size(), max_units = size + num_more;
    if (max_units > kMaxLocal) refuse_size();
    const Vertex* known = vertices.reserve(max_units + 1, size);
    return by_group_ ? groups.reserve(edges_by_group(type, hops), known)
                     : units.reserve(num_more, known);
  }
  const int64_t max_vertices = std::min(map.size() + num_more, types_.vertices[type].size);
  if (max_vertices > kMaxLocal) refuse_size();
  map.reserve(num_more, vertices.reserve(max_vertices + 1, map.size()));
}

template <typename Vertex>
auto Sampler<Vertex>::open_hops(const std::vector<Plan>& plans) -> std::vector<Hop> {
  int64_t num_lists = 0;
  for (const Plan& plan : plans) num_lists += plan.num_dst();
  int64_t* begins = begins_.reserve(2 * num_lists);
  uint64_t* keys = rule_ == nullptr ? nullptr : keys_.reserve(num_lists);
  uint8_t* narrowed = rule_ == nullptr ? nullptr : narrowed_.reserve(num_lists);
  std::vector<Hop> hops;
  hops.reserve(plans.size());
  for (const Plan& plan : plans) {
    Hop& hop = hops.emplace_back(plan, Array<int64_t>(plan.num_dst() + 1), begins);
    begins += 2 * plan.num_dst();
    if (rule_ != nullptr) {
      hop.keys = keys;
      if (plan.ask.by_weight) hop.narrowed = narrowed;
      keys += plan.num_dst();
      narrowed += plan.num_dst();
    }
    std::fill_n(hop.indptr.data.get(), plan.fanout == 0 ? hop.indptr.size : 1, 0);
  }
  return hops;
}

// Looks up the lists of destinations [first, last) by each edge type, writes their end offsets
// relative to `first`, and adds to `counted[i]` those of hops[i].
template <typename Vertex>
void Sampler<Vertex>::count_lists(std::span<Hop> hops, int64_t first, int64_t last,
                                  Counted* counted) const {
  // The offsets of a vertex's lists by all edge types share cache lines, which stay in the cache
  // for a block of destinations.
  for (int64_t block = first; block < last; block += kPrefetchDistance) {
    for (size_t i = 0; i < hops.size(); ++i) {
      const int64_t end = std::min(last, hops[i].num_dst());
      if (hops[i].fanout == 0 || block >= end) continue;
      count_block(hops[i], block, std::min(block + kPrefetchDistance, end), end, counted[i]);
    }
  }
}

// As count_lists, for a block before destination `end`.
template <typename Vertex>
template <typename Keep>
void Sampler<Vertex>::count_block(Hop& hop, int64_t first, int64_t last, int64_t end,
                                  Counted& counted, Keep&& keep) const {
  int64_t *indptr = hop.indptr.data.get(), *begins = hop.begins, *degrees = hop.degrees();
  const Vertex* vertices = fronts_[hop.edges.destination].vertices.data() + hop.first_dst;
  auto [num_kept, num_edges] = counted;
  for (int64_t dst = first; dst < last; ++dst) {
    const Vertex later = vertices[std::min(dst + kPrefetchDistance, end - 1)];
    __builtin_prefetch(&graph_.indptr[hop.edges.row(later)]);
    const auto [begin, degree] = graph_.list(hop.edges.row(vertices[dst]));
    begins[dst] = begin;
    degrees[dst] = degree;
    num_edges += degree;
    num_kept += keep(degree);
    indptr[dst + 1] = num_kept;
  }
  counted = {num_kept, num_edges};
}

template <typename Vertex>
void Sampler<Vertex>::count_block(Hop& hop, int64_t first, int64_t last, int64_t end,
                                  Counted& counted) const {
  const bool skips_weights = !hop.ask.by_weight || hop.ask.slots->all_positive();
  if (skips_weights && rule_ == nullptr) {
    return count_block(hop, first, last, end, counted,
                       [&](int64_t degree) { return hop.count(degree); });
  }
  auto [num_kept, num_edges] = counted;
  count_block(hop, first, last, end, counted, [](int64_t degree) { return degree; });
  if (rule_ != nullptr) narrow_lists(hop, first, last);
  for (int64_t dst = first; dst < last; ++dst) {
    const int64_t degree = hop.degrees()[dst];
    if (!skips_weights) {
      __builtin_prefetch(hop.ask.weights + hop.begins[std::min(dst + kListsAhead, last - 1)]);
    }
    num_edges += degree;
    num_kept += skips_weights ? hop.count(degree) : count_weighted(hop, dst);
    hop.indptr.data[dst + 1] = num_kept;
  }
  counted = {num_kept, num_edges};
}

// Number of edges that a list keeps if edges of weight 0 are never drawn.
template <typename Vertex>
int64_t Sampler<Vertex>::count_weighted(const Hop& hop, int64_t dst) const {
  const int64_t degree = hop.degrees()[dst];
  const int64_t max_count = hop.fanout < 0 ? degree : hop.replace ? 1 : hop.fanout;
  const int64_t num_positive = num_weighted(hop.ask.weights + hop.begins[dst], degree, max_count);
  return hop.replace && hop.fanout >= 0 && num_positive > 0 ? hop.fanout : num_positive;
}

template <typename Vertex>
void Sampler<Vertex>::close_lists(Hop& hop, const Counted& counted, int64_t grain) {
  if (counted.kept > kMaxLocal) refuse_size();
  hop.num_edges = counted.kept;
  hop.takes_all = counted.kept == counted.edges && !(hop.replace && hop.fanout >= 0);
  hop.grain = grain;
}

// Chunk c has the destinations whose edges begin in the c-th `grain` of edges. If all lists are
// copied in full, chunk c has exactly these edges, so several threads share a hub.
template <typename Vertex>
typename Sampler<Vertex>::Span Sampler<Vertex>::span(const Hop& hop, int64_t chunk) const {
  const int64_t *indptr = hop.indptr.data.get(), *end = indptr + hop.num_dst();
  const int64_t first = chunk * hop.grain, last = std::min(first + hop.grain, hop.num_edges);
  if (hop.takes_all) return {std::upper_bound(indptr, end, first) - indptr - 1, 0, first, last};
  const auto* first_dst = std::lower_bound(indptr, end, first);
  const auto* last_dst = last == hop.num_edges ? end : std::lower_bound(first_dst, end, last);
  return {first_dst - indptr, last_dst - indptr, *first_dst, *last_dst};
}

template <typename Vertex>
bool Sampler<Vertex>::pick_span(const Hop& hop, const Pick<Vertex>& pick_from,
                                const Span& span) const {
  thread_local Scratch<int64_t> scratch;
  const bool needs_positions = hop.positions != nullptr || hop.edge_weights != nullptr ||
                               hop.edge_rows != nullptr || hop.edge_times.data != nullptr;
  if (hop.takes_all) {
    if (needs_positions) {
      int64_t* positions = scratch.reserve(span.last_edge - span.first_edge);
      list_positions(hop, span, positions);
      tell(hop, span, positions);
    }
    return copy(pick_from, span.first_dst, span.first_edge, span.last_edge);
  }
  int64_t* positions = scratch.reserve(span.last_edge - span.first_edge + kPickSlack);
  const bool good = hop.ask.by_weight ? pick_by_weights(hop, pick_from, span, positions)
                    : hop.ask.labor != Labor::no
                        ? pick_labor(pick_from, span.first_dst, span.last_dst, positions,
                                     hop.ask.has_scattered_copies)
                        : pick(pick_from, span.first_dst, span.last_dst, positions);
  if (needs_positions) tell(hop, span, positions);
  return good;
}

// Prefetches the start of a list that is copied in full; the hardware prefetcher continues.
template <typename Vertex>
void Sampler<Vertex>::fetch_list(const Hop& hop, const WeightedList& list) const {
  constexpr int64_t kBlocks = 8;
  const int64_t first = list.first_block();
  for (int64_t i = 0; i < std::min(list.num_blocks(), kBlocks); ++i) {
    fetch_elements(hop.ask.weights, first + i);
    fetch_elements(graph_.indices, first + i);
  }
}

template <typename Vertex>
bool Sampler<Vertex>::pick_by_weights(const Hop& hop, const Pick<Vertex>& pick_from,
                                      const Span& span, int64_t* positions) const {
  const int64_t* indptr = hop.indptr.data.get();
  const bool replace = hop.replace && hop.fanout >= 0;
  const WeightSlot* slots = hop.ask.slots->data();
  const auto pick_at = [&](int64_t dst) {
    const auto v = static_cast<int64_t>(pick_from.vertices[dst]);
    const uint64_t key =
        hop.keys == nullptr ? combine(hop.key, static_cast<uint64_t>(v)) : hop.keys[dst];
    const int64_t begin = pick_from.begins[dst], degree = pick_from.degrees[dst];
    const int64_t row = hop.edges.row(v);
    return WeightedPick{weighted_list(hop.ask.weights, slots, row, begin, degree), key,
                        indptr[dst + 1] - indptr[dst], replace,
                        hop.narrowed != nullptr && hop.narrowed[dst] != 0};
  };
  // A draw reads a slot, then possibly its alias slot, then a neighbor. Each is prefetched one
  // window ahead of its use, which overlaps the cache misses with arithmetic.
  int64_t num_found = span.first_dst, num_opened = num_found;
  const auto find_until = [&](int64_t edge) {
    for (; num_found < span.last_dst && indptr[num_found] < edge; ++num_found) {
      const WeightedPick pick = pick_at(num_found);
      pick.draws() ? pick.find(positions + (indptr[num_found] - span.first_edge))
                   : fetch_list(hop, pick.list);
    }
  };
  const auto open_until = [&](int64_t edge) {
    for (; num_opened < span.last_dst && indptr[num_opened] < edge; ++num_opened) {
      find_until(indptr[num_opened] + kSlotsAhead);
      const WeightedPick pick = pick_at(num_opened);
      if (!pick.draws()) continue;
      int64_t* slots_of_dst = positions + (indptr[num_opened] - span.first_edge);
      pick.open(slots_of_dst);
      for (int64_t i = 0; i < pick.k; ++i) {
        fetch_elements(graph_.indices, pick.list.first_block() + slots_of_dst[i]);
      }
    }
  };
  bool good = true;
  for (int64_t dst = span.first_dst; dst < span.last_dst; ++dst) {
    open_until(indptr[dst] + kBlocksAhead);
    const int64_t edge = indptr[dst] - span.first_edge;
    const WeightedPick pick = pick_at(dst);
    pick.finish(positions + edge);
    for (int64_t i = edge; i < edge + pick.k; ++i) {
      const Vertex u = graph_.indices[positions[i]];
      good = good && pick_from.sources.has(u);
      if (pick_from.table != nullptr) prefetch_far(entry_of(pick_from, u));
      pick_from.picked[span.first_edge + i] = u;
    }
  }
  return good;
}

// Allocates the requested edge outputs of a hop.
template <typename Vertex>
void Sampler<Vertex>::make_room(Hop& hop, BlockArrays& block) const {
  if (hop.ask.positions) block.positions = Array<int64_t>(hop.num_edges);
  if (hop.ask.edge_weights) block.edge_weights = Array<float>(hop.num_edges);
  if (hop.ask.rows != nullptr) block.edge_rows = Array<uint32_t>(hop.num_edges);
  if (by_unit_ && !by_group_) hop.edge_times = Array<int64_t>(hop.num_edges);
  hop.positions = block.positions.data.get();
  hop.edge_weights = block.edge_weights.data.get();
  hop.edge_rows = block.edge_rows.data.get();
}

// Writes the edge positions of a span, for a hop that copies all lists in full.
template <typename Vertex>
void Sampler<Vertex>::list_positions(const Hop& hop, const Span& span, int64_t* positions) const {
  const int64_t *indptr = hop.indptr.data.get(), *begins = hop.begins;
  int64_t dst = span.first_dst;
  for (int64_t edge = span.first_edge; edge < span.last_edge; ++dst) {
    const int64_t end = std::min(indptr[dst + 1], span.last_edge);
    for (; edge < end; ++edge) *positions++ = begins[dst] + (edge - indptr[dst]);
  }
}

template <typename Vertex>
void Sampler<Vertex>::tell(const Hop& hop, const Span& span, const int64_t* positions) const {
  const int64_t size = span.last_edge - span.first_edge;
  if (hop.positions != nullptr) std::copy_n(positions, size, hop.positions + span.first_edge);
  const auto look_up = [&](const auto* values, auto* out) {
    if (out == nullptr) return;
    for (int64_t i = 0; i < size; ++i) {
      __builtin_prefetch(&values[positions[std::min(i + kPrefetchDistance, size - 1)]]);
      out[span.first_edge + i] = values[positions[i]];
    }
  };
  look_up(hop.ask.weights, hop.edge_weights);
  look_up(hop.ask.rows, hop.edge_rows);
  if (rule_ != nullptr) look_up(rule_->times, hop.edge_times.data.get());
}

template <typename Vertex>
void Sampler<Vertex>::refuse_picked(const Pick<Vertex>& pick_from, const Span& span) const {
  const Vertex* picked = pick_from.picked;
  graph_.refuse(*std::find_if(picked + span.first_edge, picked + span.last_edge,
                              [&](Vertex v) { return !pick_from.sources.has(v); }),
                pick_from.sources);
}

template <typename Vertex>
Pick<Vertex> Sampler<Vertex>::pick_of(const Hop& hop, Vertex* picked, bool relabels) const {
  Pick<Vertex> pick{graph_.indices,
                    types_.vertices[hop.edges.source],
                    hop.edges,
                    fronts_[hop.edges.destination].vertices.data() + hop.first_dst,
                    hop.begins,
                    hop.degrees(),
                    hop.indptr.data.get(),
                    picked,
                    hop.key,
                    hop.replace && hop.fanout >= 0,
                    nullptr,
                    0,
                    hop.keys};
  const RelabelMap<Vertex>& map = fronts_[hop.edges.source].map;
  if (by_unit_ || !relabels) return pick;
  if (map.dense() != nullptr) {
    pick.table = map.dense()->data();
  } else {
    pick.table = map.hash()->data();
    pick.shift = map.hash()->shift();
  }
  return pick;
}

template <typename Vertex>
void Sampler<Vertex>::sample_hops(const std::vector<Plan>& plans, int num_threads,
                                  BlockArrays* blocks, Array<Vertex>* edge_vertices,
                                  Array<Vertex>* inputs) {
  if (!relabels_at_once(plans, num_threads)) {
    return sample_hops_in_turn(plans, num_threads, blocks, edge_vertices);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].fanout != 0 && relabels_at_once({&plans[i], 1}, num_threads)) {
      edge_vertices[i] = sample_hop_at_once(plans[i], num_threads, blocks[i], inputs);
    } else {
      sample_hops_in_turn({plans[i]}, num_threads, &blocks[i], &edge_vertices[i]);
    }
  }
}

// Number of vertices of each type that a batch has reached.
template <typename Vertex>
std::vector<int64_t> Sampler<Vertex>::front_sizes() const {
  std::vector<int64_t> sizes;
  for (const Front& front : fronts_) sizes.push_back(front.size());
  return sizes;
}

// Skipped if the last hop has already written the vertices.
template <typename Vertex>
void Sampler<Vertex>::take_vertices(SampledBatch<Vertex>& batch) const {
  if (batch.input_vertices.data) return;
  const std::vector<int64_t> sizes = front_sizes();
  batch.input_vertices = Array<Vertex>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  Vertex* to = batch.input_vertices.data.get();
  for (const Front& front : fronts_) to = std::copy_n(front.vertices.data(), front.size(), to);
}

template <typename Vertex>
SampledBatch<Vertex> Sampler<Vertex>::sample_neighbors(const Seeds& seeds, const Fanouts& fanouts,
                                                       bool replace, uint64_t seed, uint64_t step,
                                                       int num_threads, bool only_new,
                                                       const EdgeOptions& edge_options) {
  start(seeds, edge_options.time);
  // The newest edges are taken without draws.
  replace = replace && (rule_ == nullptr || !rule_->last);
  const size_t num_relations = types_.edges.size(), num_hops = fanouts.size() / num_relations;
  const TimeIndex* times = rule_ == nullptr ? nullptr : rule_->index;
  SampledBatch<Vertex> batch;
  batch.blocks.resize(fanouts.size());
  batch.edge_vertices.resize(num_relations);
  batch.type_sizes.push_back(front_sizes());
  std::vector<int64_t> firsts(fronts_.size()), ends(fronts_.size());
  std::vector<Plan> plans;
  for (size_t hop = 0; hop < num_hops; ++hop) {
    if (only_new) firsts = ends;
    ends = batch.type_sizes.back();
    const uint64_t key = hop_key(edge_options, seed, step, hop);
    // LABOR's numbers belong to vertices.
    const bool shares = num_relations == 1 || edge_options.labor != Labor::no;
    plans.clear();
    for (size_t r = 0; r < num_relations; ++r) {
      const EdgeType& edges = types_.edges[r];
      plans.push_back({edges, firsts[edges.destination], ends[edges.destination],
                       fanouts[hop * num_relations + r], replace, shares ? key : combine(key, r),
                       edge_options, times == nullptr ? nullptr : &times->shares(r)});
    }
    BlockArrays* blocks = &batch.blocks[hop * num_relations];
    const bool is_all = num_relations == 1 && fronts_.size() == 1 && hop + 1 == num_hops;
    sample_hops(plans, num_threads, blocks, batch.edge_vertices.data(),
                is_all ? &batch.input_vertices : nullptr);
    batch.type_sizes.push_back(front_sizes());
    for (size_t r = 0; r < num_relations; ++r) {
      blocks[r].num_src = batch.type_sizes.back()[types_.edges[r].source];
    }
  }
  take_vertices(batch);
  take_times(batch);
  return batch;
}

template <typename Vertex>
ReachedBatch<Vertex> Sampler<Vertex>::reach_neighbors(const Seeds& seeds, const Fanouts& fanouts,
                                                      bool replace, uint64_t seed, uint64_t step,
                                                      int num_threads,
                                                      const EdgeOptions& edge_options) {
  start(seeds);
  const Front& front = fronts_[0];
  ReachedBatch<Vertex> batch;
  int64_t num_reached = front.map.size();
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    const uint64_t key = hop_key(edge_options, seed, step, hop);
    const Plan plan{types_.edges[0], 0, front.map.size(), fanouts[hop], replace, key, edge_options};
    if (hop + 1 == fanouts.size()) {
      batch.indptrs.push_back(reach_hop(plan, num_threads, num_reached));
    } else {
      BlockArrays block;
      Array<Vertex> edge_vertices;
      sample_hops({plan}, num_threads, &block, &edge_vertices, nullptr);
      batch.indptrs.push_back(std::move(block.indptr));
    }
  }
  batch.vertices = Array<Vertex>(num_reached);
  std::copy_n(front.vertices.data(), num_reached, batch.vertices.data.get());
  return batch;
}

template class Sampler<int32_t>;
template class Sampler<int64_t>;

}  // namespace gnnscale
