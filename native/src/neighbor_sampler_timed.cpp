// Sampling as of cut-offs: the edges that a unit may reach, and local ids of units.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

namespace gnnscale {

namespace {

// Edges whose table entries are prefetched before the first one gets its local id.
constexpr int64_t kRun = 1024;
constexpr int64_t kUnitsAhead = 16;
// Units that a thread looks up at a time.
constexpr int64_t kUnits = 4096;

int64_t minus(int64_t time, int64_t length) {
  return time < kNoTime + length ? kNoTime : time - length;
}

const int16_t* codes_of(const TimeRule& rule) {
  return rule.index == nullptr ? nullptr : rule.index->codes();
}

TimeSearches searches_of(const TimeRule& rule) { return {rule.times, codes_of(rule)}; }

// Whether an edge has a time. Most edges of a code above 0 do without reading it.
bool has_time(const TimeRule& rule, int64_t edge) {
  const int16_t* codes = codes_of(rule);
  return (codes != nullptr && codes[edge] > 0) || rule.times[edge] != kNoTime;
}

// Largest time, or the time after it if `strict`, that a unit's edges come after; kNoTime: none.
int64_t lower_bound_of(const TimeRule& rule, const AsOf& as_of) {
  int64_t bound = rule.window > 0 ? minus(as_of.cutoff, rule.window) : kNoTime;
  if (as_of.since != kNoTime) {
    const int64_t since = std::min(as_of.since, std::numeric_limits<int64_t>::max() - 1);
    bound = std::max(bound, rule.strict ? since + 1 : since - 1);
  }
  return bound;
}

}  // namespace

template <typename Vertex>
void Sampler<Vertex>::start_units(const Seeds& seeds, const TimeRule* rule) {
  rule_ = rule;
  by_unit_ = by_group_ = false;
  free_group_ = -1;
  group_bounds_.clear();
  seed_groups_.clear();
  if (rule == nullptr) return;
  const int64_t* cutoffs = seeds.cutoffs;
  cutoff_ = seeds.size > 0 ? cutoffs[0] : 0;
  const bool is_one =
      std::all_of(cutoffs, cutoffs + seeds.size, [&](int64_t cutoff) { return cutoff == cutoff_; });
  const bool by_edge = rule->handed == Handed::edge_time || rule->handed == Handed::since;
  by_unit_ = !is_one || by_edge || rule->disjoint;
  by_group_ = by_unit_ && !by_edge;
  if (!by_group_) return;
  start_groups(seeds);
  if (rule->handed != Handed::none) return;
  free_group_ = static_cast<int32_t>(group_bounds_.size());
  group_bounds_.push_back({kNoTime});
}

// Numbers the bounds of the seeds: those of each seed, if trees are disjoint, or of each cut-off.
template <typename Vertex>
void Sampler<Vertex>::start_groups(const Seeds& seeds) {
  const int64_t* cutoffs = seeds.cutoffs;
  seed_groups_.resize(seeds.size);
  if (rule_->disjoint) {
    std::iota(seed_groups_.begin(), seed_groups_.end(), 0);
    for (const int32_t i : seed_groups_) group_bounds_.push_back({cutoffs[i], kNoTime, i});
    return;
  }
  // Groups by cut-off: a hash table with linear probing.
  std::vector<int32_t> found(std::bit_ceil(static_cast<uint64_t>(2 * seeds.size)), -1);
  for (int64_t i = 0; i < seeds.size; ++i) {
    uint64_t slot = combine(0, static_cast<uint64_t>(cutoffs[i])) & (found.size() - 1);
    while (found[slot] >= 0 && group_bounds_[found[slot]].cutoff != cutoffs[i]) {
      slot = (slot + 1) & (found.size() - 1);
    }
    if (found[slot] < 0) {
      found[slot] = static_cast<int32_t>(group_bounds_.size());
      group_bounds_.push_back({cutoffs[i]});
    }
    seed_groups_[i] = found[slot];
  }
}

// Number of edges from a vertex type by the group of their sources, at most its vertices.
template <typename Vertex>
std::vector<int64_t> Sampler<Vertex>::edges_by_group(int source, std::span<const Hop> hops) const {
  std::vector<int64_t> counts(group_bounds_.size());
  for (const Hop& hop : hops) {
    if (hop.edges.source != source) continue;
    const int32_t* groups = fronts_[hop.edges.destination].groups.groups() + hop.first_dst;
    const int64_t* indptr = hop.indptr.data.get();
    if (free_group_ >= 0) {
      counts[free_group_] += hop.num_edges;
      continue;
    }
    for (int64_t dst = 0; dst < hop.num_dst(); ++dst) {
      counts[groups[dst]] += indptr[dst + 1] - indptr[dst];
    }
  }
  for (int64_t& count : counts) count = std::min(count, types_.vertices[source].size);
  return counts;
}

template <typename Vertex>
void Sampler<Vertex>::insert_seed(Front& front, Vertex seed, int64_t number, int64_t cutoff) {
  const AsOf as_of{cutoff, kNoTime, rule_->disjoint ? static_cast<int32_t>(number) : 0};
  Vertex* vertices = front.vertices.data();
  const int64_t next = front.size();
  int32_t id;
  if (by_group_) {
    const int32_t group = seed_groups_[number];
    const int64_t slot = front.groups.slot(group, seed);
    front.groups.insert(group, &seed, &slot, 1, vertices, &id);
  } else {
    id = front.units.insert(UnitMap<Vertex>::hash(seed, as_of.hash()), seed, as_of, vertices);
  }
  if (id != next) {
    throw std::invalid_argument("seeds: " + std::to_string(seed) + " with cut-off " +
                                std::to_string(cutoff) + " appears twice in a batch");
  }
}

template <typename Vertex>
AsOf Sampler<Vertex>::as_of(const Hop& hop, int64_t dst) const {
  if (!by_unit_) return {cutoff_};
  const Front& front = fronts_[hop.edges.destination];
  const int64_t id = hop.first_dst + dst;
  return by_group_ ? group_bounds_[front.groups.groups()[id]] : front.units.as_of(id);
}

// Narrows the lists of destinations [first, last) to the edges that the rule allows, and writes the
// keys of their draws.
template <typename Vertex>
void Sampler<Vertex>::narrow_lists(const Hop& hop, int64_t first, int64_t last) const {
  for (int64_t block = first; block < last; block += TimeSearches::kTogether) {
    narrow_block(hop, block, std::min(block + TimeSearches::kTogether, last));
  }
}

template <typename Vertex>
void Sampler<Vertex>::narrow_block(const Hop& hop, int64_t first, int64_t last) const {
  const TimeRule& rule = *rule_;
  const Vertex* vertices = fronts_[hop.edges.destination].vertices.data() + hop.first_dst;
  const int64_t n = last - first;
  int64_t *begins = hop.begins + first, *degrees = hop.degrees() + first;
  int64_t lowers[TimeSearches::kTogether], ends[TimeSearches::kTogether];
  TimeSearches uppers = searches_of(rule);
  const bool is_bounded = rule.window > 0 || rule.handed == Handed::since;
  AsOf bounds{cutoff_};
  uint32_t share = hop.share(cutoff_);
  for (int64_t i = 0; i < n; ++i) {
    if (by_unit_) {
      const int64_t last_cutoff = bounds.cutoff;
      bounds = as_of(hop, first + i);
      if (bounds.cutoff != last_cutoff) share = hop.share(bounds.cutoff);
    }
    if (is_bounded) lowers[i] = lower_bound_of(rule, bounds);
    uppers.add(begins[i], begins[i] + degrees[i], bounds.cutoff, share);
    const uint64_t key = combine(combine(hop.key, static_cast<uint64_t>(vertices[first + i])),
                                 static_cast<uint64_t>(bounds.cutoff));
    hop.keys[first + i] =
        bounds.since == kNoTime ? key : combine(key, static_cast<uint64_t>(bounds.since));
  }
  uppers.run(rule.strict);
  for (int64_t i = 0; i < n; ++i) ends[i] = uppers.begin(i);
  if (is_bounded) search_lowers(hop, n, lowers, begins, ends);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t begin = is_bounded ? lowers[i] : begins[i], size = ends[i] - begin;
    const int64_t kept = rule.last && hop.fanout >= 0 ? std::min(size, hop.fanout) : size;
    if (hop.narrowed != nullptr) hop.narrowed[first + i] = kept != degrees[i];
    begins[i] = ends[i] - kept;
    degrees[i] = kept;
  }
}

// Replaces lower bounds by the first edges that they allow.
template <typename Vertex>
void Sampler<Vertex>::search_lowers(const Hop& hop, int64_t n, int64_t* lowers,
                                    const int64_t* begins, const int64_t* ends) const {
  TimeSearches searches = searches_of(*rule_);
  for (int64_t i = 0; i < n; ++i) {
    // A list whose last time is kNoTime has no times.
    const bool is_bounded =
        ends[i] > begins[i] && lowers[i] != kNoTime && has_time(*rule_, ends[i] - 1);
    const int64_t end = is_bounded ? ends[i] : begins[i];
    searches.add(begins[i], end, lowers[i], hop.share(lowers[i]));
  }
  searches.run(rule_->strict);
  for (int64_t i = 0; i < n; ++i) lowers[i] = searches.begin(i);
}

// Calls use(destination, first, last) for the lists of edges [first, last).
template <typename Vertex>
template <typename Use>
void Sampler<Vertex>::for_lists(const Hop& hop, int64_t first, int64_t last, Use&& use) const {
  const int64_t *indptr = hop.indptr.data.get(), *end = indptr + hop.num_dst();
  int64_t dst = std::upper_bound(indptr, end, first) - indptr - 1;
  for (; first < last; ++dst) {
    const int64_t list_end = std::min(indptr[dst + 1], last);
    use(dst, first, list_end);
    first = list_end;
  }
}

// Writes the local ids of the units that edges [first, last) reach.
template <typename Vertex>
void Sampler<Vertex>::number_units(const Hop& hop, const Vertex* picked, int64_t first,
                                   int64_t last, int32_t* local) {
  // Table entries of a run of edges are prefetched before the first is used.
  for (int64_t run = first; run < last; run += kRun) {
    const int64_t end = std::min(run + kRun, last);
    by_group_ ? number_by_group(hop, picked, run, end, local)
              : number_by_edge(hop, picked, run, end, local);
  }
}

// As number_units, for a run of edges whose units have the bounds of their destinations.
template <typename Vertex>
void Sampler<Vertex>::number_by_group(const Hop& hop, const Vertex* picked, int64_t first,
                                      int64_t last, int32_t* local) {
  const int32_t* groups = fronts_[hop.edges.destination].groups.groups() + hop.first_dst;
  UnitGroups<Vertex>& units = fronts_[hop.edges.source].groups;
  Vertex* vertices = fronts_[hop.edges.source].vertices.data();
  int64_t slots[kRun];
  const auto group_of = [&](int64_t dst) { return free_group_ >= 0 ? free_group_ : groups[dst]; };
  for_lists(hop, first, last, [&](int64_t dst, int64_t begin, int64_t end) {
    const int32_t group = group_of(dst);
    for (int64_t edge = begin; edge < end; ++edge) {
      slots[edge - first] = units.slot(group, picked[edge]);
      units.prefetch(slots[edge - first]);
    }
  });
  for_lists(hop, first, last, [&](int64_t dst, int64_t begin, int64_t end) {
    units.insert(group_of(dst), picked + begin, slots + (begin - first), end - begin, vertices,
                 local + begin);
  });
}

// As number_units, for a run of edges whose units have the times of the edges as bounds.
template <typename Vertex>
void Sampler<Vertex>::number_by_edge(const Hop& hop, const Vertex* picked, int64_t first,
                                     int64_t last, int32_t* local) {
  UnitMap<Vertex>& units = fronts_[hop.edges.source].units;
  Vertex* vertices = fronts_[hop.edges.source].vertices.data();
  const int64_t* times = hop.edge_times.data.get();
  const auto bounds_of = [&](const AsOf& of_destination, int64_t edge) {
    AsOf bounds = of_destination;
    if (times[edge] == kNoTime) return bounds;
    (rule_->handed == Handed::since ? bounds.since : bounds.cutoff) = times[edge];
    return bounds;
  };
  uint64_t hashes[kRun + kUnitsAhead];
  for_lists(hop, first, last, [&](int64_t dst, int64_t begin, int64_t end) {
    const AsOf of_destination = as_of(hop, dst);
    for (int64_t edge = begin; edge < end; ++edge) {
      const uint64_t bounds = bounds_of(of_destination, edge).hash();
      hashes[edge - first] = UnitMap<Vertex>::hash(picked[edge], bounds);
      units.prefetch(hashes[edge - first]);
    }
  });
  std::fill_n(hashes + (last - first), kUnitsAhead, hashes[last - first - 1]);
  for_lists(hop, first, last, [&](int64_t dst, int64_t begin, int64_t end) {
    const AsOf of_destination = as_of(hop, dst);
    for (int64_t edge = begin; edge < end; ++edge) {
      // Units are prefetched before they are compared.
      units.prefetch_unit(hashes[edge - first + kUnitsAhead], vertices);
      local[edge] = units.insert(hashes[edge - first], picked[edge],
                                 bounds_of(of_destination, edge), vertices);
    }
  });
}

template <typename Vertex>
void Sampler<Vertex>::take_times(SampledBatch<Vertex>& batch) const {
  if (rule_ == nullptr) return;
  batch.cutoffs = Array<int64_t>(batch.input_vertices.size);
  int64_t* cutoffs = batch.cutoffs.data.get();
  if (!by_unit_) {
    std::fill_n(cutoffs, batch.cutoffs.size, cutoff_);
    return;
  }
  for (const Front& front : fronts_) {
    const int32_t* groups = front.groups.groups();
    cutoffs = std::transform(groups, groups + front.groups.size(), cutoffs,
                             [&](int32_t group) { return group_bounds_[group].cutoff; });
    cutoffs = std::copy_n(front.units.cutoffs(), front.units.size(), cutoffs);
  }
  if (!rule_->disjoint) return;
  batch.trees = Array<int32_t>(batch.input_vertices.size);
  int32_t* trees = batch.trees.data.get();
  for (const Front& front : fronts_) {
    // Groups of disjoint trees have their numbers.
    trees = std::copy_n(front.groups.groups(), front.groups.size(), trees);
    trees = std::copy_n(front.units.trees(), front.units.size(), trees);
  }
}

template <typename Vertex>
Array<int64_t> Sampler<Vertex>::last_times(const Seeds& units, int edge_type, const TimeRule& rule,
                                           int num_threads) const {
  const EdgeType& edges = types_.edges[edge_type];
  const VertexType& destinations = types_.vertices[edges.destination];
  const auto share = [&](int64_t time) {
    return rule.index == nullptr ? 0 : rule.index->shares(edge_type).at(time);
  };
  Array<int64_t> found(units.size);
  const auto find_block = [&](int64_t first, int64_t last) {
    int64_t begins[TimeSearches::kTogether];
    TimeSearches searches = searches_of(rule);
    for (int64_t i = first; i < last; ++i) {
      if (!destinations.has(units[i])) {
        throw std::invalid_argument("vertices: " + std::to_string(units[i]) +
                                    " is no destination of the edge type");
      }
      const auto [begin, degree] = graph_.list(edges.row(units[i]));
      begins[i - first] = begin;
      searches.add(begin, begin + degree, units.cutoffs[i], share(units.cutoffs[i]));
    }
    searches.run(rule.strict);
    for (int64_t i = first; i < last; ++i) {
      const int64_t end = searches.begin(i - first);
      found.data[i] = end > begins[i - first] ? rule.times[end - 1] : kNoTime;
    }
  };
  parallel_for(units.size, kUnits, num_threads, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; block += TimeSearches::kTogether) {
      find_block(block, std::min(block + TimeSearches::kTogether, last));
    }
  });
  return found;
}

template class UnitMap<int32_t>;
template class UnitMap<int64_t>;
template class UnitGroups<int32_t>;
template class UnitGroups<int64_t>;
template void Sampler<int32_t>::start_units(const Seeds&, const TimeRule*);
template void Sampler<int64_t>::start_units(const Seeds&, const TimeRule*);
template void Sampler<int32_t>::insert_seed(Front&, int32_t, int64_t, int64_t);
template void Sampler<int64_t>::insert_seed(Front&, int64_t, int64_t, int64_t);
template void Sampler<int32_t>::narrow_lists(const Hop&, int64_t, int64_t) const;
template void Sampler<int64_t>::narrow_lists(const Hop&, int64_t, int64_t) const;
template void Sampler<int32_t>::number_units(const Hop&, const int32_t*, int64_t, int64_t,
                                             int32_t*);
template void Sampler<int64_t>::number_units(const Hop&, const int64_t*, int64_t, int64_t,
                                             int32_t*);
template std::vector<int64_t> Sampler<int32_t>::edges_by_group(int, std::span<const Hop>) const;
template std::vector<int64_t> Sampler<int64_t>::edges_by_group(int, std::span<const Hop>) const;
template Array<int64_t> Sampler<int32_t>::last_times(const Seeds&, int, const TimeRule&, int) const;
template Array<int64_t> Sampler<int64_t>::last_times(const Seeds&, int, const TimeRule&, int) const;
template void Sampler<int32_t>::take_times(SampledBatch<int32_t>&) const;
template void Sampler<int64_t>::take_times(SampledBatch<int64_t>&) const;

}  // namespace gnnscale
