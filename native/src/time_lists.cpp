#include "gnnscale/time_lists.hpp"

#include <atomic>
#include <cmath>
#include <numeric>

#include "gnnscale/random.hpp"

namespace gnnscale {

TimeShares::TimeShares(const std::vector<int64_t>& sample) {
  if (sample.empty()) return;
  const auto [least, largest] = std::minmax_element(sample.begin(), sample.end());
  first_ = static_cast<double>(*least);
  const double length = static_cast<double>(*largest) - first_;
  scale_ = length > 0 ? static_cast<double>(kBuckets * kSteps) / length : 0;
  std::array<uint64_t, kBuckets + 1> counts = {};
  for (const int64_t time : sample) {
    const auto step = static_cast<uint64_t>((static_cast<double>(time) - first_) * scale_);
    ++counts[std::min(step / kSteps, kBuckets - 1) + 1];
  }
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t share = (counts[i] << kBits) / sample.size();
    shares_[i] = static_cast<uint32_t>(std::min(share, (uint64_t{1} << kBits) - 1));
  }
}

namespace {

// Times of up to 2^16 edges of a type, drawn at random.
std::vector<int64_t> sampled_times(const int64_t* times, const int64_t* indptr, int64_t num_edges,
                                   const EdgeType& edges, const VertexType& destination) {
  constexpr int64_t kSample = 1 << 16;
  const auto [first, size] = destination;
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < std::min(kSample, num_edges) && size > 0; ++i) {
    const auto v = first + static_cast<int64_t>(below(draw(0, i), static_cast<uint64_t>(size)));
    const int64_t begin = indptr[edges.row(v)], end = indptr[edges.row(v) + 1];
    if (begin < 0 || end <= begin || end > num_edges) continue;
    const auto degree = static_cast<uint64_t>(end - begin);
    const int64_t time = times[begin + static_cast<int64_t>(below(draw(1, i), degree))];
    if (time != kNoTime) sample.push_back(time);
  }
  return sample;
}

// Whether an edge of time `time` is before a bound.
template <bool kStrict>
bool precedes(int64_t time, int64_t bound) {
  return kStrict ? time < bound : time <= bound;
}

// Number of the codes of a cache line below `code`, among those from `first` to `last`.
int64_t num_below(const int16_t* line, int64_t first, int64_t last, int16_t code) {
  const auto from = static_cast<int16_t>(first), to = static_cast<int16_t>(last);
  int16_t count = 0;
  for (int16_t i = 0; i < TimeIndex::kLine; ++i) {
    count = static_cast<int16_t>(count + ((line[i] < code) & (i >= from) & (i < to)));
  }
  return count;
}

}  // namespace

TimeIndex::TimeIndex(const int64_t* times, const int64_t* indptr, int64_t num_edges,
                     const GraphTypes& types, bool has_codes, int num_threads) {
  for (const EdgeType& edges : types.edges) {
    const VertexType& destination = types.vertices[edges.destination];
    shares_.emplace_back(sampled_times(times, indptr, num_edges, edges, destination));
  }
  if (has_codes) write_codes(times, indptr, num_edges, types, num_threads);
}

void TimeIndex::write_codes(const int64_t* times, const int64_t* indptr, int64_t num_edges,
                            const GraphTypes& types, int num_threads) {
  constexpr int64_t kListsAtOnce = 1024;
  codes_ = std::make_unique<HugeArray<int16_t>>((num_edges / kLine + 1) * kLine);
  int16_t* codes = codes_->data();
  // Damaged lists may overlap: reads are capped at the number of edges, and threads may write one
  // code concurrently.
  std::atomic<int64_t> num_read{0};
  for (size_t type = 0; type < types.edges.size(); ++type) {
    const EdgeType& edges = types.edges[type];
    const VertexType& destination = types.vertices[edges.destination];
    parallel_for(destination.size, kListsAtOnce, num_threads, [&](int64_t first, int64_t last) {
      for (int64_t v = destination.first + first; v < destination.first + last; ++v) {
        const int64_t begin = indptr[edges.row(v)], end = indptr[edges.row(v) + 1];
        if (begin < 0 || end < begin || end > num_edges) continue;
        if (num_read.fetch_add(end - begin, std::memory_order_relaxed) > num_edges) return;
        for (int64_t i = begin; i < end; ++i) {
          std::atomic_ref(codes[i]).store(code(shares_[type].at(times[i])),
                                          std::memory_order_relaxed);
        }
      }
    });
  }
}

// Lists the searches that have edges left, and returns their number.
int64_t TimeSearches::list_active(int32_t* active) const {
  int64_t num_active = 0;
  for (int32_t i = 0; i < count_; ++i) {
    active[num_active] = i;
    num_active += sizes_[i] > 0;
  }
  return num_active;
}

// Narrows each search to the edges that have the code of its bound. A step reads a cache line of
// each list; the first has the expected edge, and each further one is twice as far from the last.
void TimeSearches::search_codes() {
  int32_t active[kTogether];
  int64_t num_active = list_active(active);
  for (int64_t reach = 0; num_active > 0; reach = 2 * reach + TimeIndex::kLine) {
    int64_t num_left = 0;
    for (int64_t a = 0; a < num_active; ++a) {
      const int32_t i = active[a];
      const int64_t begin = begins_[i], end = begin + sizes_[i];
      const int64_t line = probes_[i] & ~(TimeIndex::kLine - 1);
      const int64_t first = std::max(line, begin), last = std::min(line + TimeIndex::kLine, end);
      const int64_t found = first + num_below(codes_ + line, first - line, last - line, wanted_[i]);
      if (found == first && first > begin) {
        sizes_[i] = first - begin;
        probes_[i] = first - 1 - std::min(reach, sizes_[i] / 2);
      } else if (found == last && last < end) {
        begins_[i] = last;
        sizes_[i] = end - last;
        probes_[i] = last + std::min(reach, sizes_[i] / 2);
      } else {
        begins_[i] = found;
        sizes_[i] = 0;
        // Behind the last list there is a code, too.
        if (codes_[found] == wanted_[i]) find_equal(i);
        continue;
      }
      prefetch_far(&codes_[probes_[i]]);
      active[num_left++] = i;
    }
    num_active = num_left;
  }
}

// Narrows a search, whose begin has no smaller code than its bound, to the edges of equal code.
void TimeSearches::find_equal(int64_t i) {
  const int64_t first = begins_[i];
  const int16_t wanted = wanted_[i];
  int64_t equal = first, last = first;
  for (int64_t reach = 1; last < ends_[i] && codes_[last] <= wanted; reach *= 2) {
    equal = last;
    last = std::min(last + reach, ends_[i]);
  }
  sizes_[i] = std::upper_bound(codes_ + equal, codes_ + last, wanted) - (codes_ + first);
  probes_[i] = first + sizes_[i] / 2;
  if (sizes_[i] > 0) __builtin_prefetch(&times_[probes_[i]]);
}

template <bool kStrict>
void TimeSearches::search_times() {
  int32_t active[kTogether];
  int64_t num_active = list_active(active);
  // The bound is near where it was expected: the second probe is a standard deviation further.
  num_active = step<kStrict>(active, num_active, [&](int32_t i, int64_t is_after) {
    if (sizes_[i] <= kLong || codes_ != nullptr) return sizes_[i] / 2;
    const auto near = static_cast<int64_t>(std::sqrt(static_cast<float>(sizes_[i])));
    return is_after != 0 ? near : sizes_[i] - near;
  });
  while (num_active > 0) {
    num_active =
        step<kStrict>(active, num_active, [&](int32_t i, int64_t) { return sizes_[i] / 2; });
  }
}

template <bool kStrict, typename Next>
int64_t TimeSearches::step(int32_t* active, int64_t num_active, Next&& next) {
  int64_t num_left = 0;
  for (int64_t a = 0; a < num_active; ++a) {
    const int32_t i = active[a];
    const int64_t probe = probes_[i], num_before = probe - begins_[i];
    // The comparison is unpredictable: no branch.
    const int64_t is_after = -static_cast<int64_t>(precedes<kStrict>(times_[probe], bounds_[i]));
    const int64_t num_behind = sizes_[i] - num_before - 1;
    begins_[i] += (num_before + 1) & is_after;
    sizes_[i] = (num_before & ~is_after) + (num_behind & is_after);
    probes_[i] = begins_[i] + next(i, is_after);
    __builtin_prefetch(&times_[probes_[i]]);
    active[num_left] = i;
    num_left += sizes_[i] > 0;
  }
  return num_left;
}

template void TimeSearches::search_times<false>();
template void TimeSearches::search_times<true>();

}  // namespace gnnscale
