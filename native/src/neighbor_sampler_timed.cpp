// Sampling as of cut-offs: the edges that a unit may reach, and local ids of units.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

namespace gnnscale {
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

// Moves begins[i] behind the edges that precede bounds[i], for n <= kTogether lists of ends[i] -
// begins[i] edges. Reads no other times, whatever their values.
template <bool kStrict>
void search(const int64_t* times, int64_t n, const int64_t* bounds, const int64_t* ends,
            int64_t* begins) {
  int32_t active[kTogether];
  int64_t sizes[kTogether];
  int64_t num_active = 0;
  for (int64_t i = 0; i < n; ++i) {
    sizes[i] = ends[i] - begins[i];
    active[num_active] = static_cast<int32_t>(i);
    num_active += sizes[i] > 0;
    __builtin_prefetch(&times[begins[i] + sizes[i] / 2]);
  }
  while (num_active > 0) {
    int64_t num_left = 0;
    for (int64_t a = 0; a < num_active; ++a) {
      const int32_t i = active[a];
      const int64_t half = sizes[i] / 2;
      // The comparison is unpredictable: no branch.
      const int64_t is_after =
          -static_cast<int64_t>(precedes<kStrict>(times[begins[i] + half], bounds[i]));
      begins[i] += (half + 1) & is_after;
      sizes[i] = (half & ~is_after) + ((sizes[i] - half - 1) & is_after);
      __builtin_prefetch(&times[begins[i] + sizes[i] / 2]);
      active[num_left] = i;
      num_left += sizes[i] > 0;
    }
    num_active = num_left;
  }
}

void search(const TimeRule& rule, int64_t n, const int64_t* bounds, const int64_t* ends,
            int64_t* begins) {
  rule.strict ? search<true>(rule.times, n, bounds, ends, begins)
              : search<false>(rule.times, n, bounds, ends, begins);
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
  int64_t upper[kTogether], lower[kTogether], list_ends[kTogether], ends[kTogether];
  bool is_bounded = false;
  for (int64_t i = 0; i < n; ++i) {
    const AsOf bounds = as_of(hop, first + i);
    upper[i] = bounds.cutoff;
    lower[i] = lower_bound_of(rule, bounds);
    is_bounded |= lower[i] != kNoTime;
    list_ends[i] = begins[i] + degrees[i];
    ends[i] = begins[i];
    const uint64_t key = combine(combine(hop.key, static_cast<uint64_t>(vertices[first + i])),
                                 static_cast<uint64_t>(bounds.cutoff));
    hop.keys[first + i] =
        bounds.since == kNoTime ? key : combine(key, static_cast<uint64_t>(bounds.since));
  }
  search(rule, n, upper, list_ends, ends);
  if (is_bounded) {
    for (int64_t i = 0; i < n; ++i) {
      // A list whose last time is kNoTime has no times.
      const bool is_timed = ends[i] > begins[i] && rule.times[ends[i] - 1] != kNoTime;
      if (!is_timed) lower[i] = kNoTime;
      list_ends[i] = is_timed ? ends[i] : begins[i];
    }
  }
  for (int64_t i = 0; i < n; ++i) upper[i] = begins[i];
  if (is_bounded) search(rule, n, lower, list_ends, upper);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = ends[i] - upper[i];
    const int64_t kept = rule.last && hop.fanout >= 0 ? std::min(size, hop.fanout) : size;
    if (hop.narrowed != nullptr) hop.narrowed[first + i] = kept != degrees[i];
    begins[i] = ends[i] - kept;
    degrees[i] = kept;
  }
}

// Calls use(edge, as_of) with the bounds of the source of every edge in [first, last).
template <typename Vertex>
template <typename Use>
void Sampler<Vertex>::for_units(const Hop& hop, int64_t first, int64_t last, Use&& use) const {
  const int64_t *indptr = hop.indptr.data.get(), *end = indptr + hop.num_dst();
  int64_t dst = std::upper_bound(indptr, end, first) - indptr - 1;
  for (int64_t edge = first; edge < last; ++dst) {
    const int64_t list_end = std::min(indptr[dst + 1], last);
    AsOf bounds = as_of(hop, dst);
    uint64_t hash = bounds.hash();
    for (; edge < list_end; ++edge) {
      if (hop.edge_times.data != nullptr && hop.edge_times.data[edge] != kNoTime) {
        const int64_t time = hop.edge_times.data[edge];
        (rule_->handed == Handed::since ? bounds.since : bounds.cutoff) = time;
        hash = bounds.hash();
      } else if (hop.edge_times.data != nullptr) {
        bounds = as_of(hop, dst);
        hash = bounds.hash();
      }
      use(edge, bounds, hash);
    }
  }
}

// Writes the local ids of the units that edges [first, last) reach. Table entries of a run of edges
// are prefetched before the first is used, and units before they are compared.
template <typename Vertex>
void Sampler<Vertex>::number_units(const Hop& hop, const Vertex* picked, int64_t first,
                                   int64_t last, int32_t* local) {
  Front& front = fronts_[hop.edges.source];
  Vertex* vertices = front.vertices.data();
  uint64_t hashes[kRun];
  for (int64_t run = first; run < last; run += kRun) {
    const int64_t end = std::min(run + kRun, last);
    for_units(hop, run, end, [&](int64_t edge, const AsOf&, uint64_t as_of) {
      hashes[edge - run] = UnitMap<Vertex>::hash(picked[edge], as_of);
      front.units.prefetch(hashes[edge - run]);
    });
    for_units(hop, run, end, [&](int64_t edge, const AsOf& bounds, uint64_t) {
      front.units.prefetch_unit(hashes[std::min(edge + kUnitsAhead, end - 1) - run], vertices);
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
template void Sampler<int32_t>::number_units(const Hop&, const int32_t*, int64_t, int64_t,
                                             int32_t*);
template void Sampler<int64_t>::number_units(const Hop&, const int64_t*, int64_t, int64_t,
                                             int32_t*);
template void Sampler<int32_t>::take_times(SampledBatch<int32_t>&) const;
template void Sampler<int64_t>::take_times(SampledBatch<int64_t>&) const;

}  // namespace gnnscale
