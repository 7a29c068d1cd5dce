// Times of edges in sorted lists, and searches of many lists for time bounds at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gnnscale/graph_types.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/prefetch.hpp"

namespace gnnscale {

// Time of edges that are known at all times.
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// Estimate of the share of an edge type's edges before a time, by a sample. Shares ascend with the
// time.
class TimeShares {
 public:
  // A share is a number of parts of 2^kBits; that of all edges is one part less.
  static constexpr int kBits = 31;

  TimeShares() = default;
  // Sorts `sample` into buckets of equal length.
  explicit TimeShares(const std::vector<int64_t>& sample);

  uint32_t at(int64_t time) const {
    const double place = (static_cast<double>(time) - first_) * scale_;
    if (!(place > 0)) return 0;
    if (!(place < kBuckets * kSteps)) return shares_[kBuckets];
    const auto step = static_cast<uint64_t>(place);
    const uint32_t* share = &shares_[step / kSteps];
    return share[0] + static_cast<uint32_t>((share[1] - share[0]) * (step % kSteps) / kSteps);
  }

 private:
  static constexpr uint64_t kBuckets = 1024, kSteps = 1 << 16;  // buckets, and steps in each
  double first_ = 0, scale_ = 0;
  std::array<uint32_t, kBuckets + 1> shares_ = {};
};

// Shares of each edge type, and a code of two bytes for each edge, the leading bits of its share.
// Codes of an edge type ascend with its times: a search reads a fourth of the cache lines that it
// would read of times, and times only where codes are equal.
class TimeIndex {
 public:
  // Codes of a cache line.
  static constexpr int64_t kLine = 32;

  // Samples up to 2^16 edges of each type for the shares, at random. Codes are optional.
  TimeIndex(const int64_t* times, const int64_t* indptr, int64_t num_edges, const GraphTypes& types,
            bool has_codes, int num_threads);

  static int16_t code(uint32_t share) {
    return static_cast<int16_t>(share >> (TimeShares::kBits - 15));
  }

  const TimeShares& shares(size_t edge_type) const { return shares_[edge_type]; }
  // [num_edges] and at least one more, to the end of a cache line, aligned to lines; or null.
  const int16_t* codes() const { return codes_ ? codes_->data() : nullptr; }

 private:
  void write_codes(const int64_t* times, const int64_t* indptr, int64_t num_edges,
                   const GraphTypes& types, int num_threads);

  std::vector<TimeShares> shares_;
  std::unique_ptr<HugeArray<int16_t>> codes_;
};

// Searches of up to kTogether sorted lists for bounds, whose cache misses overlap. They read times
// and codes of the lists alone, whatever their values.
class TimeSearches {
 public:
  static constexpr int64_t kTogether = 64;

  // `codes` are those of the times, or null.
  TimeSearches(const int64_t* times, const int16_t* codes) : times_(times), codes_(codes) {}

  // Starts a search of edges `begin` to `end` for a bound, before which `share` of them is
  // expected.
  void add(int64_t begin, int64_t end, int64_t bound, uint32_t share) {
    const int64_t size = end - begin;
    const auto expected =
        static_cast<int64_t>(uint64_t{share} * static_cast<uint64_t>(size) >> TimeShares::kBits);
    begins_[count_] = begin;
    ends_[count_] = end;
    sizes_[count_] = size;
    bounds_[count_] = bound;
    if (codes_ != nullptr) {
      wanted_[count_] = TimeIndex::code(share);
      probes_[count_] = begin + expected;
      prefetch_far(&codes_[probes_[count_]]);
    } else {
      probes_[count_] = begin + (size > kLong ? expected : size / 2);
      __builtin_prefetch(&times_[probes_[count_]]);
    }
    ++count_;
  }

  // Moves the begin of each search behind the edges before its bound, and, unless `strict`, those
  // of its time.
  void run(bool strict) {
    if (codes_ != nullptr) search_codes();
    strict ? search_times<true>() : search_times<false>();
  }

  int64_t begin(int64_t i) const { return begins_[i]; }

 private:
  // Longer lists of times are searched from where the bound is expected.
  static constexpr int64_t kLong = 32;

  int64_t list_active(int32_t* active) const;
  void search_codes();
  void find_equal(int64_t i);
  template <bool kStrict>
  void search_times();
  template <bool kStrict, typename Next>
  int64_t step(int32_t* active, int64_t num_active, Next&& next);

  const int64_t* times_;
  const int16_t* codes_;
  int64_t count_ = 0;
  // Of each list: the edges that are left, the end of all, the next edge to read, and the bound.
  int64_t begins_[kTogether], sizes_[kTogether], ends_[kTogether], probes_[kTogether];
  int64_t bounds_[kTogether];
  int16_t wanted_[kTogether];  // codes of the bounds
};

}  // namespace gnnscale
