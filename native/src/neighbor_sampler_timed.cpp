// Sampling as of cut-offs: the edges that a unit may reach, and local ids of units.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

namespace gnnscale {

TimeShares::TimeShares(const std::vector<int64_t>& sample) {
  if (sample.empty()) return;
  const auto [least, largest] = std::minmax_element(sample.begin(), sample.end());
  first_ = static_cast<double>(*least);
  const double length = static_cast<double>(*largest) - first_;
  scale_ = length > 0 ? kBuckets / length : 0;
  for (const int64_t time : sample) {
    const auto bucket = static_cast<int>((static_cast<double>(time) - first_) * scale_);
    shares_[std::min(bucket, kBuckets - 1) + 1] += 1.0 / static_cast<double>(sample.size());
  }
  std::partial_sum(shares_.begin(), shares_.end(), shares_.begin());
}

std::vector<TimeShares> sampled_shares(const int64_t* times, const int64_t* indptr,
                                       int64_t num_edges, const GraphTypes& types) {
  constexpr uint64_t kSample = 1024;
  std::vector<TimeShares> shares;
  for (const EdgeType& edges : types.edges) {
    const auto [first, size] = types.vertices[edges.destination];
    std::vector<int64_t> sample;
    for (uint64_t i = 0; i < kSample && size > 0; ++i) {
      const auto v = first + static_cast<int64_t>(below(draw(0, i), static_cast<uint64_t>(size)));
      const int64_t begin = indptr[edges.row(v)], end = indptr[edges.row(v) + 1];
      if (begin < 0 || end <= begin || end > num_edges) continue;
      const auto degree = static_cast<uint64_t>(end - begin);
      const int64_t time = times[begin + static_cast<int64_t>(below(draw(1, i), degree))];
      if (time != kNoTime) sample.push_back(time);
    }
    shares.emplace_back(sample);
  }
  return shares;
}

namespace {

// Lists that are searched together, whose cache misses overlap.
constexpr int64_t kTogether = 64;
// Edges whose table entries are prefetched before the first one gets its local id.
constexpr int64_t kRun = 1024;
constexpr int64_t kUnitsAhead = 16;

int64_t minus(int64_t time, int64_t length) {
  return time < kNoTime + length ? kNoTime : time - length;
}

// Whether an edge of time `time` is before a bound.
template <bool kStrict>
bool precedes(int64_t time, int64_t bound) {
  return kStrict ? time < bound : time <= bound;
}

// Lists of more edges are searched from where the bound is expected.
constexpr int64_t kLong = 32;

// Searches of up to kTogether sorted lists for bounds. They read times of the lists alone, whatever
// their values.
class Searches {
 public:
  // Starts a search of edges `begin` to `end` for a bound, which is expected after `share` of them.
  void add(const int64_t* times, int64_t begin, int64_t end, int64_t bound, double share) {
    const int64_t size = end - begin;
    const auto expected = static_cast<int64_t>(share * static_cast<double>(size));
    begins_[count_] = begin;
    sizes_[count_] = size;
    bounds_[count_] = bound;
    probes_[count_] = begin + (size > kLong ? std::min(expected, size - 1) : size / 2);
    __builtin_prefetch(&times[probes_[count_++]]);
  }

  // Moves the begin of each search behind the edges that precede its bound.
  template <bool kStrict>
  void run(const int64_t* times) {
    int32_t active[kTogether];
    int64_t num_active = 0;
    for (int32_t i = 0; i < count_; ++i) {
      active[num_active] = i;
      num_active += sizes_[i] > 0;
    }
    // The bound is near where it was expected: the second probe is a standard deviation further.
    num_active = step<kStrict>(times, active, num_active, [&](int32_t i, int64_t is_after) {
      if (sizes_[i] <= kLong) return sizes_[i] / 2;
      const auto near = static_cast<int64_t>(std::sqrt(static_cast<float>(sizes_[i])));
      return is_after != 0 ? near : sizes_[i] - near;
    });
    while (num_active > 0) {
      num_active = step<kStrict>(times, active, num_active,
                                 [&](int32_t i, int64_t) { return sizes_[i] / 2; });
    }
  }

  int64_t begin(int64_t i) const { return begins_[i]; }

 private:
  template <bool kStrict, typename Next>
  int64_t step(const int64_t* times, int32_t* active, int64_t num_active, Next&& next) {
    int64_t num_left = 0;
    for (int64_t a = 0; a < num_active; ++a) {
      const int32_t i = active[a];
      const int64_t probe = probes_[i], num_before = probe - begins_[i];
      // The comparison is unpredictable: no branch.
      const int64_t is_after = -static_cast<int64_t>(precedes<kStrict>(times[probe], bounds_[i]));
      const int64_t num_behind = sizes_[i] - num_before - 1;
      begins_[i] += (num_before + 1) & is_after;
      sizes_[i] = (num_before & ~is_after) + (num_behind & is_after);
      probes_[i] = begins_[i] + next(i, is_after);
      __builtin_prefetch(&times[probes_[i]]);
      active[num_left] = i;
      num_left += sizes_[i] > 0;
    }
    return num_left;
  }

  int64_t count_ = 0;
  int64_t begins_[kTogether], sizes_[kTogether], probes_[kTogether], bounds_[kTogether];
};

void run(Searches& searches, const TimeRule& rule) {
  rule.strict ? searches.run<true>(rule.times) : searches.run<false>(rule.times);
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
  by_unit_ = false;
  if (rule == nullptr) return;
  const int64_t* cutoffs = seeds.cutoffs;
  cutoff_ = seeds.size > 0 ? cutoffs[0] : 0;
  const bool is_one =
      std::all_of(cutoffs, cutoffs + seeds.size, [&](int64_t cutoff) { return cutoff == cutoff_; });
  by_unit_ = !is_one || rule->handed != Handed::cutoff || rule->disjoint;
}

template <typename Vertex>
void Sampler<Vertex>::insert_seed(Front& front, Vertex seed, int64_t number, int64_t cutoff) {
  const AsOf as_of{cutoff, kNoTime, rule_->disjoint ? static_cast<int32_t>(number) : 0};
  const int64_t next = front.units.size();
  const uint64_t hash = UnitMap<Vertex>::hash(seed, as_of.hash());
  if (front.units.insert(hash, seed, as_of, front.vertices.data()) != next) {
    throw std::invalid_argument("seeds: " + std::to_string(seed) + " with cut-off " +
                                std::to_string(cutoff) + " appears twice in a batch");
  }
}

template <typename Vertex>
AsOf Sampler<Vertex>::as_of(const Hop& hop, int64_t dst) const {
  if (!by_unit_) return {cutoff_};
  return fronts_[hop.edges.destination].units.as_of(hop.first_dst + dst);
}

// Narrows the lists of destinations [first, last) to the edges that the rule allows, and writes the
// keys of their draws.
template <typename Vertex>
void Sampler<Vertex>::narrow_lists(const Hop& hop, int64_t first, int64_t last) const {
  for (int64_t block = first; block < last; block += kTogether) {
    narrow_block(hop, block, std::min(block + kTogether, last));
  }
}

template <typename Vertex>
void Sampler<Vertex>::narrow_block(const Hop& hop, int64_t first, int64_t last) const {
  const TimeRule& rule = *rule_;
  const Vertex* vertices = fronts_[hop.edges.destination].vertices.data() + hop.first_dst;
  const int64_t n = last - first;
  int64_t *begins = hop.begins + first, *degrees = hop.degrees() + first;
  int64_t lowers[kTogether], ends[kTogether];
  Searches uppers;
  const bool is_bounded = rule.window > 0 || rule.handed == Handed::since;
  AsOf bounds{cutoff_};
  double share = hop.share(cutoff_);
  for (int64_t i = 0; i < n; ++i) {
    if (by_unit_) {
      bounds = as_of(hop, first + i);
      share = hop.share(bounds.cutoff);
    }
    if (is_bounded) lowers[i] = lower_bound_of(rule, bounds);
    uppers.add(rule.times, begins[i], begins[i] + degrees[i], bounds.cutoff, share);
    if (hop.bounds != nullptr) hop.bounds[first + i] = bounds.hash();
    const uint64_t key = combine(combine(hop.key, static_cast<uint64_t>(vertices[first + i])),
                                 static_cast<uint64_t>(bounds.cutoff));
    hop.keys[first + i] =
        bounds.since == kNoTime ? key : combine(key, static_cast<uint64_t>(bounds.since));
  }
  run(uppers, rule);
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
  Searches searches;
  for (int64_t i = 0; i < n; ++i) {
    // A list whose last time is kNoTime has no times.
    const bool is_timed = ends[i] > begins[i] && rule_->times[ends[i] - 1] != kNoTime;
    const int64_t end = is_timed && lowers[i] != kNoTime ? ends[i] : begins[i];
    searches.add(rule_->times, begins[i], end, lowers[i], hop.share(lowers[i]));
  }
  run(searches, *rule_);
  for (int64_t i = 0; i < n; ++i) lowers[i] = searches.begin(i);
}

// Calls use(edge, bounds, hash) with the bounds of the source of every edge in [first, last), and
// their hash.
template <typename Vertex>
template <bool kEdgeTimes, typename Use>
void Sampler<Vertex>::for_units(const Hop& hop, int64_t first, int64_t last, Use&& use) const {
  const int64_t *indptr = hop.indptr.data.get(), *end = indptr + hop.num_dst();
  const int64_t* times = hop.edge_times.data.get();
  int64_t dst = std::upper_bound(indptr, end, first) - indptr - 1;
  for (int64_t edge = first; edge < last; ++dst) {
    const int64_t list_end = std::min(indptr[dst + 1], last);
    const AsOf bounds = as_of(hop, dst);
    const uint64_t hash = hop.bounds != nullptr ? hop.bounds[dst] : bounds.hash();
    for (; edge < list_end; ++edge) {
      if (!kEdgeTimes || times[edge] == kNoTime) {
        use(edge, bounds, hash);
        continue;
      }
      AsOf of_edge = bounds;
      (rule_->handed == Handed::since ? of_edge.since : of_edge.cutoff) = times[edge];
      use(edge, of_edge, of_edge.hash());
    }
  }
}

// Whether picking knows the units that it reaches, and prefetches their table entries.
template <typename Vertex>
bool Sampler<Vertex>::fetches_units(const Hop& hop) const {
  return hop.bounds != nullptr && !hop.ask.by_weight && hop.ask.labor == Labor::no;
}

// Writes the local ids of the units that edges [first, last) reach. Table entries of a run of edges
// are prefetched before the first is used, unless picking `is_fetched` did so, and units before
// they are compared.
template <typename Vertex>
template <bool kEdgeTimes>
void Sampler<Vertex>::number_units(const Hop& hop, const Vertex* picked, int64_t first,
                                   int64_t last, bool is_fetched, int32_t* local) {
  Front& front = fronts_[hop.edges.source];
  Vertex* vertices = front.vertices.data();
  const bool fetches = !is_fetched || !fetches_units(hop);
  uint64_t hashes[kRun + kUnitsAhead];
  for (int64_t run = first; run < last; run += kRun) {
    const int64_t end = std::min(run + kRun, last);
    for_units<kEdgeTimes>(hop, run, end, [&](int64_t edge, const AsOf&, uint64_t bounds) {
      hashes[edge - run] = UnitMap<Vertex>::hash(picked[edge], bounds);
      if (fetches) front.units.prefetch(hashes[edge - run]);
    });
    std::fill_n(hashes + (end - run), kUnitsAhead, hashes[end - run - 1]);
    for_units<kEdgeTimes>(hop, run, end, [&](int64_t edge, const AsOf& bounds, uint64_t) {
      front.units.prefetch_unit(hashes[edge - run + kUnitsAhead], vertices);
      local[edge] = front.units.insert(hashes[edge - run], picked[edge], bounds, vertices);
    });
  }
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
    cutoffs = std::copy_n(front.units.cutoffs(), front.units.size(), cutoffs);
  }
  if (!rule_->disjoint) return;
  batch.trees = Array<int32_t>(batch.input_vertices.size);
  int32_t* trees = batch.trees.data.get();
  for (const Front& front : fronts_) {
    trees = std::copy_n(front.units.trees(), front.units.size(), trees);
  }
}

template class UnitMap<int32_t>;
template class UnitMap<int64_t>;
template void Sampler<int32_t>::start_units(const Seeds&, const TimeRule*);
template void Sampler<int64_t>::start_units(const Seeds&, const TimeRule*);
template void Sampler<int32_t>::insert_seed(Front&, int32_t, int64_t, int64_t);
template void Sampler<int64_t>::insert_seed(Front&, int64_t, int64_t, int64_t);
template void Sampler<int32_t>::narrow_lists(const Hop&, int64_t, int64_t) const;
template void Sampler<int64_t>::narrow_lists(const Hop&, int64_t, int64_t) const;
template void Sampler<int32_t>::number_units<false>(const Hop&, const int32_t*, int64_t, int64_t,
                                                    bool, int32_t*);
template void Sampler<int32_t>::number_units<true>(const Hop&, const int32_t*, int64_t, int64_t,
                                                   bool, int32_t*);
template void Sampler<int64_t>::number_units<false>(const Hop&, const int64_t*, int64_t, int64_t,
                                                    bool, int32_t*);
template void Sampler<int64_t>::number_units<true>(const Hop&, const int64_t*, int64_t, int64_t,
                                                   bool, int32_t*);
template bool Sampler<int32_t>::fetches_units(const Hop&) const;
template bool Sampler<int64_t>::fetches_units(const Hop&) const;
template void Sampler<int32_t>::take_times(SampledBatch<int32_t>&) const;
template void Sampler<int64_t>::take_times(SampledBatch<int64_t>&) const;

}  // namespace gnnscale
