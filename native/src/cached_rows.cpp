#include "gnnscale/cached_rows.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/simd.hpp"
#include "simd/row_kernels.hpp"

namespace gnnscale {
namespace {

// Vertices whose slots are prefetched together.
constexpr int64_t kChunk = 64;

// Distance between prefetch and increment of a count.
constexpr int64_t kCountAhead = 32;

const RowKernels& kernels() { return GNNSCALE_FOR_ISA(row_kernels); }

[[noreturn]] [[gnu::cold]] void refuse(const char* name, int64_t value, int64_t index, int64_t min,
                                       int64_t max) {
  throw std::invalid_argument(std::string(name) + ": " + std::to_string(value) + " at place " +
                              std::to_string(index) + ", allowed are " + std::to_string(min) +
                              " to " + std::to_string(max));
}

// A chunk of ids, each read once and checked to be below `bound`.
struct Chunk {
  int64_t begin = 0, size = 0;
  int64_t ids[kChunk];
  int32_t slots[kChunk];  // after the look-up

  // Calls use(id) for each id.
  template <typename Use>
  void read(const RowIds& from, int64_t first, int64_t last, int64_t bound, const char* name,
            Use&& use) {
    begin = first;
    size = last - first;
    from.wide ? read_as<int64_t>(from.data, bound, name, use)
              : read_as<int32_t>(from.data, bound, name, use);
  }

 private:
  template <typename Id, typename Use>
  void read_as(const void* from, int64_t bound, const char* name, Use&& use) {
    const Id* const source = static_cast<const Id*>(from) + begin;
    for (int64_t i = 0, count = size; i < count; ++i) {
      const int64_t id = source[i];
      if (id < 0 || id >= bound) [[unlikely]]
        refuse(name, id, begin + i, 0, bound - 1);
      ids[i] = id;
      use(id);
    }
  }
};

// Location of a vertex's row: the member, or num_caches for the host; and the row's slot among all
// caches, or its vertex.
struct Found {
  int64_t member, row;
};

// Resolves slots to locations. Branch-free, since hits and misses come in unpredictable order.
// Constructed for each loop, so that its fields stay in registers.
struct Finder {
  explicit Finder(const Slots& slots)
      : starts(slots.starts),
        num_caches(slots.num_caches),
        num_rows(slots.starts[slots.num_caches]) {}

  Found operator()(int64_t vertex, int32_t slot) const {
    const auto number = static_cast<uint32_t>(slot);  // -1 becomes larger than all slots
    if (uint32_t{number + 1} > num_rows) [[unlikely]]
      refuse("slots", slot, vertex, -1, num_rows - 1);
    const int64_t* start = starts;  // the last one known to be at most `number`
    for (int64_t remaining = num_caches + 1; remaining > 1;) {
      const int64_t half = remaining / 2;
      start += start[half] <= number ? half : 0;
      remaining -= half;
    }
    const int64_t miss = slot >> 31;  // all bits set or none
    return {start - starts, (vertex & miss) | (slot & ~miss)};
  }

  const int64_t* starts;
  int64_t num_caches, num_rows;
};

// Looks up the slots of chunks in three separate steps; the step between prefetch and use hides the
// memory latency.
struct Table {
  const int32_t* slots;

  void prefetch(int64_t vertex) const { __builtin_prefetch(slots + vertex, 0, 2); }
  void begin(Chunk&) const {}
  void finish(Chunk& chunk) const {
    for (int64_t i = 0; i < chunk.size; ++i) chunk.slots[i] = slots[chunk.ids[i]];
  }
};

struct Ranks {
  const RankedSlots& slots;

  void prefetch(int64_t vertex) const { slots.prefetch(vertex); }
  void begin(Chunk& chunk) const { slots.rank(chunk.ids, chunk.size, chunk.slots); }
  void finish(Chunk& chunk) const { slots.find(chunk.slots, chunk.size); }
};

// Rows whose slots are looked up before the first row is read. Reading rows evicts slots from the
// processor's caches, so slots are read in large batches.
constexpr int64_t kMaxPiece = 32768;

int64_t piece_size(int64_t num_rows, int num_threads) {
  return std::clamp(num_rows / (4 * num_threads), kChunk, kMaxPiece);  // balances the threads
}

// Calls look(chunk, found) in each thread, with a thread-local copy of `look`, for the chunks of
// its pieces, and at the end of each piece for an empty chunk; adds the hits to `counts`. The reads
// of a chunk are prefetched while the previous chunk is processed, into the cache level that
// supports the most outstanding misses.
template <typename LookUp, typename Look>
void for_chunks(const LookUp& look_up, const Slots& slots, const RowIds& vertices, int64_t size,
                int64_t* counts, int num_threads, const Look& look) {
  const int64_t piece = piece_size(size, num_threads), num_pieces = (size + piece - 1) / piece;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  run_threads(static_cast<int>(std::min<int64_t>(num_threads, num_pieces)), [&] {
    Look thread_look = look;
    std::vector<int64_t> hits(slots.num_caches + 1);
    Chunk chunks[2];
    Chunk *now = &chunks[0], *next_chunk = &chunks[1];
    for (int64_t at; (at = next.fetch_add(1)) < num_pieces;) {
      int64_t first = at * piece;
      const int64_t end = std::min(size, first + piece);
      const auto load_chunk = [&](Chunk* chunk) {
        const int64_t last = std::min(end, first + kChunk);
        chunk->read(vertices, first, last, slots.num_vertices, "vertices",
                    [&](int64_t v) { look_up.prefetch(v); });
        look_up.begin(*chunk);
        first = last;
      };
      for (load_chunk(now); now->size > 0; std::swap(now, next_chunk)) {
        load_chunk(next_chunk);
        look_up.finish(*now);
        thread_look(*now, hits.data());
      }
      thread_look(*now, hits.data());
    }
    std::lock_guard lock(mutex);
    for (int64_t k = 0; k <= slots.num_caches; ++k) counts[k] += hits[k];
  });
}

template <typename Look>
void for_chunks(const Slots& slots, const RowIds& vertices, int64_t size, int64_t* counts,
                int num_threads, const Look& look) {
  slots.ranked != nullptr
      ? for_chunks(Ranks{*slots.ranked}, slots, vertices, size, counts, num_threads, look)
      : for_chunks(Table{slots.data}, slots, vertices, size, counts, num_threads, look);
}

// Base address of rows numbered from `first`. Row 0 may lie outside of any memory, so the address
// is an integer, which may wrap.
class RowAddress {
 public:
  RowAddress(const void* data, DType dtype, int64_t stride, int64_t first = 0)
      : row_bytes_(static_cast<uintptr_t>(stride * element_bytes(dtype))),
        first_row_(reinterpret_cast<uintptr_t>(data) - static_cast<uintptr_t>(first) * row_bytes_) {
  }

  void* row(int64_t i) const {
    return reinterpret_cast<void*>(first_row_ + static_cast<uintptr_t>(i) * row_bytes_);
  }

 private:
  uintptr_t row_bytes_, first_row_;
};

// Collects the row addresses of a piece, then copies the rows.
class GatherChunks {
 public:
  GatherChunks(const GatherCached& task, const std::vector<RowAddress>& addresses)
      : task_(task), addresses_(addresses) {}

  void operator()(const Chunk& chunk, int64_t* hits) {
    if (chunk.size == 0) return read();
    const Finder find(task_.slots);
    const RowAddress* const addresses = addresses_.data();
    rows_.resize(size_ + chunk.size);
    const void** const to = rows_.data() + size_;
    for (int64_t i = 0, size = chunk.size; i < size; ++i) {
      const auto [member, row] = find(chunk.ids[i], chunk.slots[i]);
      to[i] = addresses[member].row(row);
      ++hits[member];
    }
    size_ += chunk.size;
    end_ = chunk.begin + chunk.size;
  }

 private:
  void read() {
    kernels().gather_at(task_.from_host, rows_.data(), end_ - size_, end_);
    size_ = 0;
  }

  const GatherCached& task_;
  const std::vector<RowAddress>& addresses_;
  std::vector<const void*> rows_;
  int64_t size_ = 0, end_ = 0;
};

}  // namespace

void gather_cached(const GatherCached& task, int64_t* counts, int num_threads) {
  std::vector<RowAddress> addresses;
  for (int64_t k = 0; k < task.slots.num_caches; ++k) {
    const Rows& rows = task.caches[k];
    addresses.emplace_back(rows.data, rows.dtype, rows.stride, task.slots.starts[k]);
  }
  const Gather& host = task.from_host;
  addresses.emplace_back(host.x.data, host.x.dtype, host.x.stride);
  for_chunks(task.slots, host.ids, host.num_rows, counts, num_threads,
             GatherChunks(task, addresses));
}

void count_slots(const Slots& slots, const RowIds& vertices, int64_t size, const int64_t* weights,
                 int64_t* counts, int num_threads) {
  for_chunks(slots, vertices, size, counts, num_threads, [&](const Chunk& chunk, int64_t* hits) {
    const Finder find(slots);
    const int64_t* const of_chunk = weights == nullptr ? nullptr : weights + chunk.begin;
    for (int64_t i = 0, size = chunk.size; i < size; ++i) {
      const int64_t weight = of_chunk == nullptr ? 1 : of_chunk[i + 1] - of_chunk[i];
      hits[find(chunk.ids[i], chunk.slots[i]).member] += weight;
    }
  });
}

namespace {

// Adds a non-negative number, saturating at the type's maximum.
void add(int32_t& count, int64_t more) {
  const std::atomic_ref<int32_t> shared(count);
  int32_t old_count = shared.load(std::memory_order_relaxed), after;
  do {
    const int64_t free = int64_t{INT32_MAX} - old_count;
    after = more < free ? static_cast<int32_t>(old_count + more) : INT32_MAX;
  } while (!shared.compare_exchange_weak(old_count, after, std::memory_order_relaxed));
}

// Counts in a single thread without atomic additions, which would take longer than the cache
// misses.
template <typename Id>
void count_alone(const Id* vertices, int64_t size, const int64_t* weights, int32_t* counts,
                 int64_t num_vertices) {
  for (int64_t i = 0; i < size; ++i) {
    // A prefetch of an out-of-range id has no effect.
    __builtin_prefetch(counts + vertices[std::min(i + kCountAhead, size - 1)], 1);
    const int64_t vertex = vertices[i];
    if (vertex < 0 || vertex >= num_vertices) [[unlikely]]
      refuse("vertices", vertex, i, 0, num_vertices - 1);
    const int64_t more = weights == nullptr ? 1 : weights[i + 1] - weights[i];
    const int64_t free = int64_t{INT32_MAX} - counts[vertex];
    counts[vertex] = more < free ? static_cast<int32_t>(counts[vertex] + more) : INT32_MAX;
  }
}

}  // namespace

void count_uses(const RowIds& vertices, int64_t size, const int64_t* weights, int32_t* counts,
                int64_t num_vertices, int num_threads) {
  if (num_threads == 1) {
    vertices.wide ? count_alone(static_cast<const int64_t*>(vertices.data), size, weights, counts,
                                num_vertices)
                  : count_alone(static_cast<const int32_t*>(vertices.data), size, weights, counts,
                                num_vertices);
    return;
  }
  parallel_for(size, kChunk, num_threads, [&](int64_t first, int64_t last) {
    Chunk chunk;
    for (int64_t begin = first; begin < last; begin += kChunk) {
      chunk.read(vertices, begin, std::min(last, begin + kChunk), num_vertices, "vertices",
                 [&](int64_t v) { __builtin_prefetch(counts + v, 1); });
      for (int64_t i = 0; i < chunk.size; ++i) {
        const int64_t index = begin + i;
        add(counts[chunk.ids[i]], weights == nullptr ? 1 : weights[index + 1] - weights[index]);
      }
    }
  });
}

namespace {

// One bit for each row of a target.
class Marks {
 public:
  explicit Marks(int64_t size) : words_((size + 63) / 64) {}
  // Sets a bit. Returns whether it was set before.
  bool set(int64_t i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    return (std::atomic_ref(words_[i / 64]).fetch_or(bit, std::memory_order_relaxed) & bit) != 0;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace

void copy_rows(const CopyRows& task, int num_threads) {
  const int64_t row_bytes = task.source.length * element_bytes(task.source.dtype);
  const RowAddress source(task.source.data, task.source.dtype, task.source.stride);
  const RowAddress target(task.target.data, task.target.dtype, task.target.stride);
  // A matrix without columns may have more rows than memory has bits, and its rows are never
  // written.
  Marks written(row_bytes == 0 ? 0 : task.num_target);
  parallel_for(task.size, kChunk, num_threads, [&](int64_t first, int64_t last) {
    Chunk chunk;
    const void* from[kChunk];
    void* to[kChunk];
    for (int64_t begin = first; begin < last; begin += kChunk) {
      const int64_t end = std::min(last, begin + kChunk);
      int64_t i = 0;
      chunk.read(task.source_ids, begin, end, task.num_source, "vertices",
                 [&](int64_t id) { from[i++] = source.row(id); });
      i = 0;
      chunk.read(task.target_ids, begin, end, task.num_target, "slots_of_target", [&](int64_t id) {
        if (row_bytes != 0 && written.set(id)) {
          throw std::invalid_argument("slots_of_target: " + std::to_string(id) +
                                      " at more than one place, allowed are distinct ones");
        }
        to[i++] = target.row(id);
      });
      kernels().copy_at(from, to, row_bytes, chunk.size);
    }
  });
}

}  // namespace gnnscale
