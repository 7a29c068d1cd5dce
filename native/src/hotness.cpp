// Selection of the hottest vertices. The first pass counts vertices and bytes of every hotness
// bucket, which gives the bucket where the capacity ends; the second pass collects the vertices
// down to that bucket, bucket by bucket; then each bucket is sorted, and the last one truncated.
#include "gnnscale/hotness.hpp"

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include "gnnscale/checks.hpp"
#include "hotness_keys.hpp"
#include "hotness_sort.hpp"

namespace gnnscale {
namespace {

// Vertices of one work item; clearing its counters costs less than counting the vertices.
constexpr int64_t kMinRange = 1 << 20, kMaxRange = 1 << 24;
constexpr int64_t kGrain = 1 << 16;

using CountBuckets = Buckets<10>;
// float32 buckets use sign, exponent and 7 mantissa bits. The lowest bucket has only 0; every other
// bucket may mix values.
constexpr int kFloatShift = 16;

template <typename Value>
int64_t bucket_of(Value hotness) {
  if constexpr (std::is_floating_point_v<Value>) {
    return static_cast<int64_t>((key_of(hotness) + (1 << kFloatShift) - 1) >> kFloatShift);
  } else {
    return CountBuckets::of(key_of(hotness));
  }
}

// Returns the bucket of any bit pattern, including negative values.
template <typename Value>
constexpr int64_t kNumBuckets = CountBuckets::of(~uint64_t{0} >> (64 - 8 * sizeof(Value))) + 1;
template <>
constexpr int64_t kNumBuckets<float> = (int64_t{1} << (32 - kFloatShift)) + 1;

template <typename Value>
constexpr int64_t kNumExact = std::is_floating_point_v<Value> ? 1 : CountBuckets::kNumExact;

// Bucket counts, hottest bucket first, by ranges of vertices.
struct Census {
  Census(int64_t num_vertices, int64_t num_buckets, bool weighed, int num_threads)
      : range(std::clamp((num_vertices + num_threads - 1) / num_threads, kMinRange, kMaxRange)),
        num_ranges((num_vertices + range - 1) / range),
        num_buckets(num_buckets),
        counts(num_ranges * num_buckets),
        bytes(weighed ? num_ranges * num_buckets : 0) {}

  int64_t range, num_ranges, num_buckets;
  std::vector<int64_t> counts;  // [num_ranges, num_buckets]
  std::vector<uint64_t> bytes;  // [num_ranges, num_buckets]; empty if all vertices have equal bytes
  bool all_fit = true;          // whether no vertex has too many bytes to be counted
};

template <typename Value>
[[noreturn]] void refuse_hotness(const Value* hotness, int64_t num_vertices) {
  const Value* wrong = std::find_if(hotness, hotness + num_vertices,
                                    [](Value value) { return !(value >= Value{0}); });
  if (wrong == hotness + num_vertices) refuse_changed();
  throw std::invalid_argument("hotness: " + std::to_string(*wrong) + " of vertex " +
                              std::to_string(wrong - hotness) + ", must be 0 or more");
}

template <typename Value>
Census census_of(const Value* hotness, const HotVertices& task, int num_threads, const Poll& poll) {
  constexpr int64_t kBuckets = kNumBuckets<Value>;
  Census census(task.num_vertices, kBuckets, task.bytes.offsets != nullptr, num_threads);
  std::atomic<bool> good{true}, all_fit{true};
  parallel_for(census.num_ranges, 1, num_threads, poll, [&](int64_t first, int64_t last) {
    for (int64_t range = first; range < last; ++range) {
      int64_t* const counts = census.counts.data() + range * kBuckets;
      uint64_t* const bytes =
          census.bytes.empty() ? nullptr : census.bytes.data() + range * kBuckets;
      const int64_t end = std::min(task.num_vertices, (range + 1) * census.range);
      bool legal = true, fit = true;
      for (int64_t v = range * census.range; v < end; ++v) {
        const Value value = hotness[v];
        legal &= value >= Value{0};
        const uint64_t size = task.bytes.of(v);
        if (size > static_cast<uint64_t>(task.max_bytes)) [[unlikely]] {
          fit = false;
          continue;
        }
        const int64_t index = kBuckets - 1 - bucket_of(value);
        ++counts[index];
        if (bytes != nullptr) bytes[index] += size;
      }
      if (!legal) good.store(false, std::memory_order_relaxed);
      if (!fit) all_fit.store(false, std::memory_order_relaxed);
    }
  });
  census.all_fit = all_fit.load();
  if (!good.load()) refuse_hotness(hotness, task.num_vertices);
  return census;
}

// The buckets with vertices that begin below the capacity.
struct Candidates {
  int64_t num_buckets = 0, num_vertices = 0;
  int64_t last_begin = 0;   // index of the last bucket's first vertex
  uint64_t last_bytes = 0;  // bytes of the buckets before the last one
  uint64_t num_bytes = 0;
};

Candidates candidates_of(const Census& census, const HotVertices& task) {
  Candidates candidates;
  const auto capacity = static_cast<uint64_t>(task.capacity);
  const int64_t num_buckets = census.num_buckets - (task.only_hot ? 1 : 0);  // last bucket: 0
  for (; candidates.num_buckets < num_buckets && candidates.num_bytes < capacity;
       ++candidates.num_buckets) {
    candidates.last_begin = candidates.num_vertices;
    candidates.last_bytes = candidates.num_bytes;
    for (int64_t range = 0; range < census.num_ranges; ++range) {
      const int64_t index = range * census.num_buckets + candidates.num_buckets;
      candidates.num_vertices += census.counts[index];
      candidates.num_bytes +=
          census.bytes.empty() ? static_cast<uint64_t>(census.counts[index]) * task.bytes.per_vertex
                               : census.bytes[index];
    }
  }
  return candidates;
}

// Turns the counts of the candidate buckets into the output offsets of each bucket and range.
// Returns the segments of the buckets.
template <typename Value>
std::vector<Segment> start_buckets(Census& census, const Candidates& candidates) {
  std::vector<Segment> segments;
  int64_t next = 0;
  for (int64_t bucket = 0; bucket < candidates.num_buckets; ++bucket) {
    const int64_t begin = next;
    for (int64_t range = 0; range < census.num_ranges; ++range) {
      next += std::exchange(census.counts[range * census.num_buckets + bucket], next);
    }
    const bool exact = census.num_buckets - 1 - bucket < kNumExact<Value>;
    if (next - begin > 1) segments.push_back({begin, next - begin, exact ? 1 : 0});
  }
  return segments;
}

// Writes the candidates bucket by bucket, in ascending id order within a bucket.
template <typename Value, typename Vertex>
void collect(const Value* hotness, const HotVertices& task, Census& census,
             const Candidates& candidates, Vertex* order, int num_threads, const Poll& poll) {
  const std::vector<int64_t> starts = census.counts;
  parallel_for(census.num_ranges, 1, num_threads, poll, [&](int64_t first, int64_t last) {
    for (int64_t range = first; range < last; ++range) {
      int64_t* const offsets = census.counts.data() + range * census.num_buckets;
      const int64_t end = std::min(task.num_vertices, (range + 1) * census.range);
      for (int64_t v = range * census.range; v < end; ++v) {
        const int64_t bucket = census.num_buckets - 1 - bucket_of(hotness[v]);
        if (bucket >= candidates.num_buckets) continue;
        if (!census.all_fit && task.bytes.of(v) > static_cast<uint64_t>(task.max_bytes)) continue;
        if (offsets[bucket] >= candidates.num_vertices) [[unlikely]]
          refuse_changed();
        order[offsets[bucket]++] = static_cast<Vertex>(v);
      }
    }
  });
  // Each entry was written once if each range ended where the next range or bucket began.
  for (int64_t bucket = 0; bucket < candidates.num_buckets; ++bucket) {
    for (int64_t range = 0; range < census.num_ranges; ++range) {
      const int64_t after = range + 1 < census.num_ranges
                                ? starts[(range + 1) * census.num_buckets + bucket]
                            : bucket + 1 < candidates.num_buckets ? starts[bucket + 1]
                                                                  : candidates.num_vertices;
      if (census.counts[range * census.num_buckets + bucket] != after) refuse_changed();
    }
  }
}

// Returns the number of `vertices` that begin below `capacity`; the first vertex begins at `bytes`.
template <typename Vertex>
int64_t count_fitting(const Vertex* vertices, int64_t size, const CacheBytes& bytes_of,
                      uint64_t bytes, uint64_t capacity, int num_threads) {
  std::vector<uint64_t> of_chunk((size + kGrain - 1) / kGrain);
  parallel_for(static_cast<int64_t>(of_chunk.size()), 1, num_threads, [&](int64_t a, int64_t b) {
    for (int64_t i = a * kGrain; i < std::min(size, b * kGrain); ++i) {
      of_chunk[i / kGrain] += bytes_of.of(vertices[i]);
    }
  });
  size_t chunk = 0;
  while (chunk < of_chunk.size() && bytes + of_chunk[chunk] < capacity) bytes += of_chunk[chunk++];
  int64_t i = static_cast<int64_t>(chunk) * kGrain;
  for (; i < size && bytes < capacity; ++i) bytes += bytes_of.of(vertices[i]);
  return std::min(i, size);
}

// Returns the first vertices, copied to a smaller array if they are less than half of all.
template <typename Vertex>
Array<Vertex> prefix_of(Array<Vertex>&& order, int64_t size, int num_threads) {
  if (2 * size >= order.size) {
    order.size = size;
    return std::move(order);
  }
  Array<Vertex> prefix(size);
  const Vertex* const from = order.data.get();
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    std::copy(from + begin, from + end, prefix.data.get() + begin);
  });
  return prefix;
}

template <typename Vertex, typename Value>
Array<Vertex> hottest_by(const Value* hotness, const HotVertices& task, int num_threads,
                         const Poll& poll) {
  Array<Vertex> order;
  Candidates candidates;
  std::vector<Segment> segments;
  {
    Census census = census_of(hotness, task, num_threads, poll);
    candidates = candidates_of(census, task);
    segments = start_buckets<Value>(census, candidates);
    order = Array<Vertex>(candidates.num_vertices);
    prefer_large_pages(order.data.get(), order.size * sizeof(Vertex));  // many write positions
    collect(hotness, task, census, candidates, order.data.get(), num_threads, poll);
  }
  sort_segments(order.data.get(), std::move(segments), {task.hotness, task.tie_break}, num_threads,
                poll);
  if (candidates.num_bytes < static_cast<uint64_t>(task.capacity)) return order;
  const int64_t fitting =
      count_fitting(order.data.get() + candidates.last_begin, order.size - candidates.last_begin,
                    task.bytes, candidates.last_bytes, task.capacity, num_threads);
  return prefix_of(std::move(order), candidates.last_begin + fitting, num_threads);
}

void check_tie_break(const Keys& keys, int64_t size, int num_threads) {
  if (keys.data == nullptr) return;
  with_type(keys, [&]<typename Value>(const Value* values) {
    if constexpr (!std::is_floating_point_v<Value>) {
      constexpr int64_t kBound = sizeof(Value) == 4 ? int64_t{INT32_MAX} + 1 : INT64_MAX;
      check_below(values, size, kBound, "tie_break", num_threads);
    }
  });
}

}  // namespace

void CacheBytes::refuse(int64_t v, int64_t begin, int64_t end) const {
  throw TopologyError("offsets: the list of vertex " + std::to_string(v) + " goes from " +
                      std::to_string(begin) + " to " + std::to_string(end) + ", there are " +
                      std::to_string(num_entries) + " entries");
}

template <typename Vertex>
Array<Vertex> hottest(const HotVertices& task, int num_threads, const Poll& poll) {
  check_tie_break(task.tie_break, task.num_vertices, num_threads);
  return with_type(task.hotness, [&](const auto* hotness) {
    return hottest_by<Vertex>(hotness, task, num_threads, poll);
  });
}

template Array<int32_t> hottest(const HotVertices&, int, const Poll&);
template Array<int64_t> hottest(const HotVertices&, int, const Poll&);

}  // namespace gnnscale
