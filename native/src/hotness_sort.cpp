#include "hotness_sort.hpp"

#include <limits>
#include <mutex>
#include <utility>

#include "gnnscale/prefetch.hpp"
#include "hotness_keys.hpp"

namespace gnnscale {
namespace {

using SplitBuckets = Buckets<8>;
static_assert(SplitBuckets::of(~uint64_t{0}) < 1 << 16);  // bucket numbers have 16 bits

// Longer segments are split by all threads together; a shorter segment is sorted by one thread, in
// whose cache it fits.
constexpr int64_t kLong = 1 << 17;
// Vertices of one work item of a split; its counters cost less than the vertices.
constexpr int64_t kMinRange = 1 << 15, kMaxRange = 1 << 22;
constexpr int64_t kGrain = 1 << 16;
// Segments up to this size use insertion sort.
constexpr int64_t kFew = 24;
// Distance in items between prefetch and use of the second key.
constexpr int64_t kAhead = 24;
// Vertices of short segments that a thread sorts as one work item.
constexpr int64_t kBatch = 1 << 18;

struct Bounds {
  uint64_t min = std::numeric_limits<uint64_t>::max(), max = 0;

  void add(const Bounds& other) {
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
};

template <typename Key, typename Vertex>
Bounds bounds_of(const Key* keys, const Vertex* ids, int64_t size, int num_threads) {
  Bounds all;
  std::mutex mutex;
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    Bounds range_bounds;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(keys + ids[i + kAhead]);
      const uint64_t key = key_of(keys[ids[i]]);
      range_bounds.add({key, key});
    }
    std::lock_guard lock(mutex);
    all.add(range_bounds);
  });
  return all;
}

// Stable counting sort of one segment by buckets of one key, highest bucket first. Ranges of the
// segment are counted and moved independently; within a bucket the ranges keep their order, so ids
// stay ascending.
template <typename Key, typename Vertex>
class Split {
 public:
  Split(const Key* keys, Vertex* ids, int64_t size, Bounds bounds, int num_threads)
      : keys_(keys),
        ids_(ids),
        size_(size),
        bounds_(bounds),
        num_buckets_(SplitBuckets::of(bounds.max - bounds.min) + 1),
        range_(std::clamp((size + num_threads - 1) / num_threads, kMinRange, kMaxRange)),
        num_ranges_((size + range_ - 1) / range_),
        counts_(num_ranges_ * num_buckets_) {}

  // Needs `moved` with the size of the segment, and as many entries in `bucket_of`.
  void run(Vertex* moved, uint16_t* bucket_of, int num_threads, const Poll& poll) {
    parallel_for(num_ranges_, 1, num_threads, poll, [&](int64_t first, int64_t last) {
      for (int64_t range = first; range < last; ++range) count(range, bucket_of);
    });
    start_buckets();
    parallel_for(num_ranges_, 1, num_threads, poll, [&](int64_t first, int64_t last) {
      for (int64_t range = first; range < last; ++range) move(range, bucket_of, moved);
    });
    parallel_for(size_, kGrain, num_threads, [&](int64_t begin, int64_t end) {
      std::copy(moved + begin, moved + end, ids_ + begin);
    });
  }

  // Calls use(begin, size, whether all keys are equal) for each bucket.
  template <typename Use>
  void buckets(Use&& use) const {
    for (int64_t bucket = 0, begin = 0; bucket < num_buckets_; ++bucket) {
      const int64_t end = counts_[(num_ranges_ - 1) * num_buckets_ + bucket];
      use(begin, end - begin, num_buckets_ - 1 - bucket < SplitBuckets::kNumExact);
      begin = end;
    }
  }

 private:
  void count(int64_t range, uint16_t* bucket_of) {
    int64_t* const counts = counts_.data() + range * num_buckets_;
    const int64_t end = std::min(size_, (range + 1) * range_);
    for (int64_t i = range * range_; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(keys_ + ids_[i + kAhead]);
      // A concurrently changed key may be outside of the bounds.
      const uint64_t key = std::clamp(key_of(keys_[ids_[i]]), bounds_.min, bounds_.max);
      const int64_t bucket = num_buckets_ - 1 - SplitBuckets::of(key - bounds_.min);
      bucket_of[i] = static_cast<uint16_t>(bucket);
      ++counts[bucket];
    }
  }

  void move(int64_t range, const uint16_t* bucket_of, Vertex* moved) {
    int64_t* const offsets = counts_.data() + range * num_buckets_;
    const int64_t end = std::min(size_, (range + 1) * range_);
    for (int64_t i = range * range_; i < end; ++i) moved[offsets[bucket_of[i]]++] = ids_[i];
  }

  // Turns counts into the output offsets of each range and bucket.
  void start_buckets() {
    int64_t next = 0;
    for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) {
      for (int64_t range = 0; range < num_ranges_; ++range) {
        next += std::exchange(counts_[range * num_buckets_ + bucket], next);
      }
    }
  }

  const Key* keys_;
  Vertex* ids_;
  int64_t size_;
  Bounds bounds_;
  int64_t num_buckets_, range_, num_ranges_;
  std::vector<int64_t> counts_;  // [num_ranges, num_buckets], the highest bucket first
};

template <typename Vertex>
struct Item {
  uint64_t falls;  // highest key minus this key
  Vertex id;
};

// Sorts short segments in scratch memory that all of them reuse.
template <typename Vertex>
class ShortSort {
 public:
  explicit ShortSort(const std::array<Keys, 2>& keys) : keys_(keys) {}

  void sort(Vertex* ids, int64_t size, int key) {
    if (size < 2 || key == 2 || keys_[key].data == nullptr) return;
    Item<Vertex>* items = items_[key].reserve(size);
    const uint64_t spread = load(items, ids, size, key);
    if (spread != 0) {
      items = size <= kFew ? insert(items, size) : sort_digits(items, size, spread, key);
      for (int64_t i = 0; i < size; ++i) ids[i] = items[i].id;
    }
    if (key == 1 || keys_[1].data == nullptr) return;
    for (int64_t begin = 0, end = 0; begin < size; begin = end) {
      for (; end < size && items[end].falls == items[begin].falls; ++end) {
        if (end + kAhead < size) fetch_if_alike(items + end + kAhead);
      }
      sort(ids + begin, end - begin, key + 1);
    }
  }

 private:
  // Prefetches the second key of an item whose first key equals that of an adjacent item.
  void fetch_if_alike(const Item<Vertex>* item) const {
    if (item[-1].falls != item->falls && item[-2].falls != item[-1].falls) return;
    with_type(keys_[1], [&](const auto* values) { prefetch(values + item[-1].id); });
  }

  // Loads the items. Returns the difference between the highest and the lowest key.
  uint64_t load(Item<Vertex>* items, const Vertex* ids, int64_t size, int key) const {
    Bounds bounds;
    with_type(keys_[key], [&](const auto* values) {
      for (int64_t i = 0; i < size; ++i) {
        items[i] = {key_of(values[ids[i]]), ids[i]};
        bounds.add({items[i].falls, items[i].falls});
      }
    });
    for (int64_t i = 0; i < size; ++i) items[i].falls = bounds.max - items[i].falls;
    return bounds.max - bounds.min;
  }

  static Item<Vertex>* insert(Item<Vertex>* items, int64_t size) {
    for (int64_t i = 1; i < size; ++i) {
      const Item<Vertex> item = items[i];
      int64_t index = i;
      for (; index > 0 && items[index - 1].falls > item.falls; --index) {
        items[index] = items[index - 1];
      }
      items[index] = item;
    }
    return items;
  }

  // Radix sort from the lowest digit to the highest. Returns the array that has the result.
  Item<Vertex>* sort_digits(Item<Vertex>* items, int64_t size, uint64_t spread, int key) {
    constexpr int kDigit = 8;
    Item<Vertex>* spare = spare_items_[key].reserve(size);
    for (int shift = 0; shift < 64 && spread >> shift != 0; shift += kDigit) {
      std::array<int32_t, 1 << kDigit> offsets{};
      const auto digit = [&](const Item<Vertex>& item) {
        return item.falls >> shift & ((1 << kDigit) - 1);
      };
      for (int64_t i = 0; i < size; ++i) ++offsets[digit(items[i])];
      int32_t next = 0;
      for (int32_t& offset : offsets) next += std::exchange(offset, next);
      for (int64_t i = 0; i < size; ++i) spare[offsets[digit(items[i])]++] = items[i];
      std::swap(items, spare);
    }
    return items;
  }

  const std::array<Keys, 2>& keys_;
  std::array<Scratch<Item<Vertex>>, 2> items_, spare_items_;
};

template <typename Vertex>
void sort_short(Vertex* order, const std::vector<Segment>& segments,
                const std::array<Keys, 2>& keys, int num_threads, const Poll& poll) {
  std::vector<size_t> batches{0};
  int64_t size = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    size += segments[i].size;
    if (size < kBatch && i + 1 < segments.size()) continue;
    batches.push_back(i + 1);
    size = 0;
  }
  const auto num_batches = static_cast<int64_t>(batches.size()) - 1;
  parallel_for(num_batches, 1, num_threads, poll, [&](int64_t first, int64_t last) {
    ShortSort<Vertex> sorter(keys);
    for (size_t i = batches[first]; i < batches[last]; ++i) {
      sorter.sort(order + segments[i].begin, segments[i].size, segments[i].key);
    }
  });
}

}  // namespace

template <typename Vertex>
void sort_segments(Vertex* order, std::vector<Segment> segments, const std::array<Keys, 2>& keys,
                   int num_threads, const Poll& poll) {
  std::vector<Segment> pending, brief;
  const auto add = [&](const Segment& segment) {
    if (segment.size < 2 || segment.key == 2 || keys[segment.key].data == nullptr) return;
    (segment.size > kLong ? pending : brief).push_back(segment);
  };
  int64_t longest = 0;
  for (const Segment& segment : segments) {
    add(segment);
    longest = std::max(longest, segment.size);
  }
  std::vector<Segment>().swap(segments);
  if (pending.empty()) longest = 0;
  const HugeArray<Vertex> moved(longest);
  const HugeArray<uint16_t> bucket_of(longest);
  while (!pending.empty()) {
    const Segment segment = pending.back();
    pending.pop_back();
    Vertex* const ids = order + segment.begin;
    with_type(keys[segment.key], [&](const auto* values) {
      const Bounds bounds = bounds_of(values, ids, segment.size, num_threads);
      if (bounds.min == bounds.max) return add({segment.begin, segment.size, segment.key + 1});
      Split split(values, ids, segment.size, bounds, num_threads);
      split.run(moved.data(), bucket_of.data(), num_threads, poll);
      split.buckets([&](int64_t begin, int64_t size, bool equal) {
        add({segment.begin + begin, size, segment.key + (equal ? 1 : 0)});
      });
    });
  }
  sort_short(order, brief, keys, num_threads, poll);
}

template void sort_segments(int32_t*, std::vector<Segment>, const std::array<Keys, 2>&, int,
                            const Poll&);
template void sort_segments(int64_t*, std::vector<Segment>, const std::array<Keys, 2>&, int,
                            const Poll&);

}  // namespace gnnscale
