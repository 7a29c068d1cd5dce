// Picks neighbors of each vertex of a hop, and reads their ids. Compiled once per instruction set.
#include "pick_kernels.hpp"

#include <cstddef>
#include <limits>

#include "equal_lanes.hpp"
#include "gnnscale/limits.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kMaxLanes = 32;
// Edges whose addresses are computed before the first neighbor is read. Prefetches go to the
// second-level cache, which supports more outstanding misses than the first.
constexpr int64_t kWindow = 256;

// Returns floor(random * bound / 2^64) for a 32-bit bound: equals gnnscale::below, in two products
// that vectorize.
inline uint32_t below32(uint64_t random, uint64_t bound) {
  return static_cast<uint32_t>(((random >> 32) * bound + ((random & 0xffffffff) * bound >> 32)) >>
                               32);
}

// Floyd's sampling without replacement (Bentley and Floyd, CACM 1987): every k-subset of [0, n) has
// equal probability, with k draws and no rejection. Candidate i is uniform in [0, n - k + i]; a
// previously chosen candidate is replaced by n - k + i. Candidates are drawn vectorized, and each
// is compared with all earlier ones by one vector comparison. Writes kLanes positions, of which k
// are valid.
template <int kLanes>
inline void pick_few(uint64_t key, int64_t begin, uint32_t n, uint32_t k, int64_t* out) {
  alignas(64) uint32_t chosen[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t candidate = below32(draw(key, lane), n - k + lane + 1);
    chosen[lane] = lane < k ? candidate : ~lane;  // no position is this large
  }
  for (uint32_t i = 1; i < k; ++i) {
    const uint32_t earlier = (uint32_t{1} << i) - 1;
    if ((equal_lanes<kLanes>(chosen, chosen[i]) & earlier) != 0) chosen[i] = n - k + i;
  }
  for (int lane = 0; lane < kLanes; ++lane) out[lane] = begin + chosen[lane];
}

inline void pick_positions(uint64_t key, int64_t begin, int64_t n, int64_t k, bool replace,
                           int64_t* out) {
  if (replace) {
    for (int64_t i = 0; i < k; ++i) {
      out[i] = begin + static_cast<int64_t>(below(draw(key, i), static_cast<uint64_t>(n)));
    }
  } else if (k == n && k <= 16) {
    // The number of neighbors is unpredictable: no loop over it.
    for (int64_t i = 0; i < 16; ++i) out[i] = begin + i;
  } else if (k == n) {
    for (int64_t i = 0; i < k; ++i) out[i] = begin + i;
  } else if (k > kMaxLanes || n >= int64_t{1} << 31) {
    pick_many(key, begin, n, k, out);
  } else if (k <= 16) {
    pick_few<16>(key, begin, static_cast<uint32_t>(n), static_cast<uint32_t>(k), out);
  } else {
    pick_few<32>(key, begin, static_cast<uint32_t>(n), static_cast<uint32_t>(k), out);
  }
}

// Returns whether all ids are of `type`: read as unsigned, an id below the first exceeds every
// bound. The ids were just written, so they are in the first-level cache.
template <typename Vertex, typename Unsigned>
inline bool all_within(const Vertex* ids, int64_t size, const VertexType& type) {
  const auto first = static_cast<Unsigned>(type.first);
  Unsigned max = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Unsigned id = static_cast<Unsigned>(ids[i]) - first;
    max = id > max ? id : max;
  }
  return size == 0 || static_cast<uint64_t>(max) < static_cast<uint64_t>(type.size);
}
inline bool all_of(const VertexType& type, const int32_t* ids, int64_t size) {
  return all_within<int32_t, uint32_t>(ids, size, type);
}
inline bool all_of(const VertexType& type, const int64_t* ids, int64_t size) {
  return all_within<int64_t, uint64_t>(ids, size, type);
}

// Returns the key of a destination's draws.
template <typename Vertex>
inline uint64_t key_of(const Pick<Vertex>& hop, int64_t dst) {
  if (hop.keys != nullptr) return hop.keys[dst];
  return combine(hop.key, static_cast<uint64_t>(hop.vertices[dst]));
}

enum class Table { none, dense, hashed };

// The address is invalid if the id is no vertex; prefetching it has no effect.
template <Table kTable, typename Vertex>
inline void prefetch_entry(const Pick<Vertex>& hop, Vertex id) {
  if constexpr (kTable == Table::none) return;
  const auto word = static_cast<uint64_t>(id);
  const uint64_t offset = kTable == Table::dense ? word * 4 : (word * kGolden >> hop.shift) * 8;
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(hop.table) + offset),
                     1, 2);
}

// Positions are computed and prefetched one window ahead of the reads, and table entries are
// prefetched for the relabeling that follows: arithmetic overlaps both kinds of cache misses.
template <Table kTable, typename Vertex>
bool pick_as(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions) {
  constexpr int64_t kLine = 64 / sizeof(Vertex), kLines = 4;
  int64_t* computed = positions;
  const int64_t* read = positions;
  Vertex* picked = hop.picked + hop.indptr[first];
  const auto read_until = [&](const int64_t* end) {
    for (; read < end; ++read, ++picked) {
      *picked = hop.indices[*read];
      prefetch_entry<kTable>(hop, *picked);
    }
  };
  for (int64_t dst = first; dst < last; ++dst) {
    const int64_t count = hop.indptr[dst + 1] - hop.indptr[dst];
    if (count == 0) continue;
    const int64_t degree = hop.degrees[dst];
    pick_positions(key_of(hop, dst), hop.begins[dst], degree, count, hop.replace, computed);
    const Vertex* list = &hop.indices[hop.begins[dst]];
    if (degree <= kLine) {
      __builtin_prefetch(list, 0, 2);
      __builtin_prefetch(list + degree - 1, 0, 2);
    } else if (degree <= kLines * kLine && count >= kLines) {
      // Several picks share a line; the number of lines is unpredictable: no loop over it.
      for (int64_t line = 0; line <= kLines; ++line) {
        const int64_t entry = line * kLine;
        __builtin_prefetch(list + (entry < degree ? entry : degree - 1), 0, 2);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(&hop.indices[computed[i]], 0, 2);
    }
    computed += count;
    if (computed - read > kWindow) read_until(computed - kWindow);
  }
  read_until(computed);
  if constexpr (!kChecked) return true;
  return all_of(hop.sources, hop.picked + hop.indptr[first], hop.indptr[last] - hop.indptr[first]);
}

template <typename Vertex>
void find(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions) {
  for (int64_t dst = first; dst < last; ++dst) {
    const int64_t count = hop.indptr[dst + 1] - hop.indptr[dst];
    pick_positions(key_of(hop, dst), hop.begins[dst], hop.degrees[dst], count, hop.replace,
                   positions);
    positions += count;
  }
}

// Cursor over the edges of a hop that copies all lists in full.
struct Place {
  int64_t dst, edge;  // `edge` is in the list of `dst`, or of a later one if that list has ended
};

// Calls use(neighbors, first edge, number) on the pieces of lists from `at` to edge `until`.
template <typename Vertex, typename Use>
inline void walk_lists(const Pick<Vertex>& hop, Place& at, int64_t until, Use&& use) {
  while (at.edge < until) {
    const int64_t list_end = hop.indptr[at.dst + 1];
    const int64_t end = list_end < until ? list_end : until;
    use(hop.indices + hop.begins[at.dst] + (at.edge - hop.indptr[at.dst]), at.edge, end - at.edge);
    at.edge = end;
    at.dst += end == list_end;
  }
}

// Lists are prefetched one window ahead, and table entries after each copy.
template <Table kTable, typename Vertex>
bool copy_as(const Pick<Vertex>& hop, int64_t dst, int64_t first, int64_t last) {
  constexpr int64_t kStep = kWindow / 4, kLine = 64 / sizeof(Vertex);
  Place fetched{dst, first}, copied{dst, first};
  while (copied.edge < last) {
    const int64_t end = copied.edge + kStep < last ? copied.edge + kStep : last;
    walk_lists(hop, fetched, end + kWindow < last ? end + kWindow : last,
               [](const Vertex* list, int64_t, int64_t size) {
                 for (int64_t i = 0; i < size; i += kLine) __builtin_prefetch(list + i, 0, 2);
                 __builtin_prefetch(list + size - 1, 0, 2);
               });
    walk_lists(hop, copied, end, [&](const Vertex* list, int64_t edge, int64_t size) {
      Vertex* to = hop.picked + edge;
      for (int64_t i = 0; i < size; ++i) {
        to[i] = list[i];
        prefetch_entry<kTable>(hop, to[i]);
      }
    });
  }
  if constexpr (!kChecked) return true;
  return all_of(hop.sources, hop.picked + first, last - first);
}

template <typename Vertex>
bool pick(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions) {
  if (hop.table == nullptr) return pick_as<Table::none>(hop, first, last, positions);
  return hop.shift == 0 ? pick_as<Table::dense>(hop, first, last, positions)
                        : pick_as<Table::hashed>(hop, first, last, positions);
}

template <typename Vertex>
bool copy(const Pick<Vertex>& hop, int64_t dst, int64_t first, int64_t last) {
  if (hop.table == nullptr) return copy_as<Table::none>(hop, dst, first, last);
  return hop.shift == 0 ? copy_as<Table::dense>(hop, dst, first, last)
                        : copy_as<Table::hashed>(hop, dst, first, last);
}

// One vector register of doubles, explicit because compilers do not vectorize a division with a
// possibly zero divisor.
#if defined(__AVX512F__)
constexpr int kDoubles = 8;
#elif defined(__AVX2__)
constexpr int kDoubles = 4;
#else
constexpr int kDoubles = 2;
#endif
typedef float Floats __attribute__((vector_size(4 * kDoubles)));
typedef double Doubles __attribute__((vector_size(8 * kDoubles)));
typedef uint64_t Words __attribute__((vector_size(8 * kDoubles)));

// As gnnscale::draw.
inline Words draw_many(uint64_t key, Words indices) {
  Words words = (indices + 1) * kGolden + key;
  words = (words ^ words >> 30) * 0xbf58476d1ce4e5b9;
  words = (words ^ words >> 27) * 0x94d049bb133111eb;
  return words ^ words >> 31;
}

// -log(u) for u in (0, 1) given by 52 bits of `random`. The C library's log rounds differently
// across processors; this one has a fixed order of sums and products. Relative error below 1e-11:
// log(m 2^k) = k log(2) + 2 atanh(s), with m in [sqrt(1/2), sqrt(2)) and s = (m - 1) / (m + 1), by
// the series of atanh.
inline Doubles minus_log(Words random) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kFraction = 0x000fffffffffffff, kTwo52 = 0x4330000000000000;
  const Doubles u = (Doubles)(kOne | random >> 12) - (1.0 - 0x1.0p-53);
  const Words moved = (Words)u + (kOne - kRootHalf);
  const Doubles k = (Doubles)(kTwo52 | moved >> 52) - (0x1.0p52 + 1023.0);
  const Doubles m = (Doubles)((moved & kFraction) + kRootHalf);
  const Doubles s = (m - 1.0) / (m + 1.0), z = s * s;
  Doubles series = Doubles{} + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  series = series * z + 1.0;
  return k * -0.6931471805599453 - 2.0 * s * series;
}

void exponentials(uint64_t key, int64_t first, const float* weights, int64_t n, double* out) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Words indices;
  for (int lane = 0; lane < kDoubles; ++lane) indices[lane] = static_cast<uint64_t>(first + lane);
  for (int64_t i = 0; i < n; i += kDoubles, indices += kDoubles) {
    const int64_t size = i + kDoubles <= n ? kDoubles : n - i;
    Floats floats = {};
    __builtin_memcpy(&floats, weights + i, size * sizeof(float));
    const Doubles by = __builtin_convertvector(floats, Doubles);
    const Doubles times = minus_log(draw_many(key, indices)) / by;
    const Doubles result = by > 0.0 ? times : Doubles{} + kNever;
    __builtin_memcpy(out + i, &result, size * sizeof(double));
  }
}

}  // namespace

namespace GNNSCALE_ISA {
extern const PickKernels pick_kernels;
const PickKernels pick_kernels{pick<int32_t>, pick<int64_t>, find<int32_t>, find<int64_t>,
                               copy<int32_t>, copy<int64_t>, exponentials};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
