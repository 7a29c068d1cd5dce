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

// Vertices whose slots are on their way together.
constexpr int64_t kChunk = 64;

// Counts that are on their way while others are added to.
constexpr int64_t kCountAhead = 32;

const RowKernels& kernels() { return GNNSCALE_FOR_ISA(row_kernels); }

[[noreturn]] [[gnu::cold]] void refuse(const char* name, int64_t found, int64_t place, int64_t min,
                                       int64_t max) {
  throw std::invalid_argument(std::string(name) + ": " + std::to_string(found) + " at place " +
                              std::to_string(place) + ", allowed are " + std::to_string(min) +
                              " to " + std::to_string(max));
}

// A chunk of ids, each read once and found to be below `bound`.
struct Chunk {
  int64_t begin = 0, size = 0;
  int64_t ids[kChunk];
  int32_t slots[kChunk];  // once they are looked up

  // Calls use(id) with each.
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
    const Id* const found = static_cast<const Id*>(from) + begin;
    for (int64_t i = 0, count = size; i < count; ++i) {
      const int64_t id = found[i];
      if (id < 0 || id >= bound) [[unlikely]]
        refuse(name, id, begin + i, 0, bound - 1);
      ids[i] = id;
      use(id);
    }
  }
};

// The member that holds a vertex's row, num_caches for the host, and the row's number among those
// of all caches, or of the host.
struct Found {
  int64_t member, row;
};

// Finds what slots stand for. No branch depends on what is found: hits and misses come in any
// order. Made for each loop, so that its fields stay in registers.
struct Finder {
  explicit Finder(const Slots& slots)
      : starts(slots.starts),
        num_caches(slots.num_caches),
        num_rows(slots.starts[slots.num_caches]) {}

  Found operator()(int64_t vertex, int32_t slot) const {
    const auto number = static_cast<uint32_t>(slot);  // -1 is beyond all rows
    if (uint32_t{number + 1} > num_rows) [[unlikely]]
      refuse("slots", slot, vertex, -1, num_rows - 1);
    const int64_t* start = starts;  // the last that is known to be at most `number`
    for (int64_t left = num_caches + 1; left > 1;) {
      const int64_t half = left / 2;
      start += start[half] <= number ? half : 0;
      left -= half;
    }
    const int64_t miss = slot >> 31;  // all bits or none
    return {start - starts, (vertex & miss) | (slot & ~miss)};
  }

  const int64_t* starts;
  int64_t num_caches, num_rows;
};

// Looks the slots of chunks up, in three steps that lie apart: memory brings meanwhile what the
// next one reads.
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

// Rows whose slots are looked up before the first of them is read. Rows drive the slots out of the
// processor's caches, so slots are better read many at once.
constexpr int64_t kMaxPiece = 32768;

int64_t piece_size(int64_t num_rows, int num_threads) {
  return std::clamp(num_rows / (4 * num_threads), kChunk, kMaxPiece);  // the work of threads evens
}

// Calls look(chunk, found) in each thread, with a copy of `look` of its own, for the chunks of the
// pieces that it takes, and at the end of each piece for an empty chunk; adds what was found to
// `counts`. What a chunk reads is on its way, to the cache that most misses can be under way to,
// while the chunk before is worked on.
template <typename LookUp, typename Look>
void for_chunks(const LookUp& look_up, const Slots& slots, const RowIds& vertices, int64_t size,
                int64_t* counts, int num_threads, const Look& look) {
  const int64_t piece = piece_size(size, num_threads), num_pieces = (size + piece - 1) / piece;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  run_threads(static_cast<int>(std::min<int64_t>(num_threads, num_pieces)), [&] {
    Look own = look;
    std::vector<int64_t> found(slots.num_caches + 1);
    Chunk chunks[2];
    Chunk *now = &chunks[0], *ahead = &chunks[1];
    for (int64_t at; (at = next.fetch_add(1)) < num_pieces;) {
      int64_t first = at * piece;
      const int64_t end = std::min(size, first + piece);
      const auto take = [&](Chunk* chunk) {
        const int64_t last = std::min(end, first + kChunk);
        chunk->read(vertices, first, last, slots.num_vertices, "vertices",
                    [&](int64_t v) { look_up.prefetch(v); });
        look_up.begin(*chunk);
        first = last;
      };
      for (take(now); now->size > 0; std::swap(now, ahead)) {
        take(ahead);
        look_up.finish(*now);
        own(*now, found.data());
      }
      own(*now, found.data());
    }
    std::lock_guard lock(mutex);
    for (int64_t k = 0; k <= slots.num_caches; ++k) counts[k] += found[k];
  });
}

template <typename Look>
void for_chunks(const Slots& slots, const RowIds& vertices, int64_t size, int64_t* counts,
                int num_threads, const Look& look) {
  slots.ranked != nullptr
      ? for_chunks(Ranks{*slots.ranked}, slots, vertices, size, counts, num_threads, look)
      : for_chunks(Table{slots.data}, slots, vertices, size, counts, num_threads, look);
}

// Where rows are that are numbered from `first`. Row 0 may be outside of all memory, so addresses
// are whole numbers, which wrap.
class Place {
 public:
  Place(const void* data, DType dtype, int64_t stride, int64_t first = 0)
      : apart_(static_cast<uintptr_t>(stride * element_bytes(dtype))),
        row_0_(reinterpret_cast<uintptr_t>(data) - static_cast<uintptr_t>(first) * apart_) {}

  void* row(int64_t i) const {
    return reinterpret_cast<void*>(row_0_ + static_cast<uintptr_t>(i) * apart_);
  }

 private:
  uintptr_t apart_, row_0_;
};

// Notes where the rows of a piece are, then reads them.
class GatherChunks {
 public:
  GatherChunks(const GatherCached& task, const std::vector<Place>& places)
      : task_(task), places_(places) {}

  void operator()(const Chunk& chunk, int64_t* found) {
    if (chunk.size == 0) return read();
    const Finder find(task_.slots);
    const Place* const places = places_.data();
    rows_.resize(size_ + chunk.size);
    const void** const to = rows_.data() + size_;
    for (int64_t i = 0, size = chunk.size; i < size; ++i) {
      const auto [member, row] = find(chunk.ids[i], chunk.slots[i]);
      to[i] = places[member].row(row);
      ++found[member];
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
  const std::vector<Place>& places_;
  std::vector<const void*> rows_;
  int64_t size_ = 0, end_ = 0;
};

}  // namespace

void gather_cached(const GatherCached& task, int64_t* counts, int num_threads) {
  std::vector<Place> places;
  for (int64_t k = 0; k < task.slots.num_caches; ++k) {
    const Rows& rows = task.caches[k];
    places.emplace_back(rows.data, rows.dtype, rows.stride, task.slots.starts[k]);
  }
  const Gather& host = task.from_host;
  places.emplace_back(host.x.data, host.x.dtype, host.x.stride);
  for_chunks(task.slots, host.ids, host.num_rows, counts, num_threads, GatherChunks(task, places));
}

void count_slots(const Slots& slots, const RowIds& vertices, int64_t size, const int64_t* weights,
                 int64_t* counts, int num_threads) {
  for_chunks(slots, vertices, size, counts, num_threads, [&](const Chunk& chunk, int64_t* found) {
    const Finder find(slots);
    const int64_t* const of_chunk = weights == nullptr ? nullptr : weights + chunk.begin;
    for (int64_t i = 0, size = chunk.size; i < size; ++i) {
      const int64_t weight = of_chunk == nullptr ? 1 : of_chunk[i + 1] - of_chunk[i];
      found[find(chunk.ids[i], chunk.slots[i]).member] += weight;
    }
  });
}

namespace {

// Adds 0 or more, up to the type's largest number.
void add(int32_t& count, int64_t more) {
  const std::atomic_ref<int32_t> shared(count);
  int32_t before = shared.load(std::memory_order_relaxed), after;
  do {
    const int64_t room = int64_t{INT32_MAX} - before;
    after = more < room ? static_cast<int32_t>(before + more) : INT32_MAX;
  } while (!shared.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

// Counts in one thread, which needs no atomic adds: they take longer than the lines of memory.
template <typename Id>
void count_alone(const Id* vertices, int64_t size, const int64_t* weights, int32_t* counts,
                 int64_t num_vertices) {
  for (int64_t i = 0; i < size; ++i) {
    // Of an id that is none it does nothing.
    __builtin_prefetch(counts + vertices[std::min(i + kCountAhead, size - 1)], 1);
    const int64_t vertex = vertices[i];
    if (vertex < 0 || vertex >= num_vertices) [[unlikely]]
      refuse("vertices", vertex, i, 0, num_vertices - 1);
    const int64_t more = weights == nullptr ? 1 : weights[i + 1] - weights[i];
    const int64_t room = int64_t{INT32_MAX} - counts[vertex];
    counts[vertex] = more < room ? static_cast<int32_t>(counts[vertex] + more) : INT32_MAX;
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
        const int64_t place = begin + i;
        add(counts[chunk.ids[i]], weights == nullptr ? 1 : weights[place + 1] - weights[place]);
      }
    }
  });
}

namespace {

// A bit for each row of a target.
class Marks {
 public:
  explicit Marks(int64_t size) : words_((size + 63) / 64) {}
  // Returns whether it was set before.
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
  const Place source(task.source.data, task.source.dtype, task.source.stride);
  const Place target(task.target.data, task.target.dtype, task.target.stride);
  // Rows without columns may be more than memory has bits, and are never written.
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
