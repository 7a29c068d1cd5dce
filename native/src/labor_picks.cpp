#include "labor_picks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/simd.hpp"
#include "simd/labor_kernels.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kListsAhead = 2;
// Ids prefetched before a list is searched; the hardware prefetcher continues from there.
constexpr int64_t kIdsAhead = 512;
// Up to this many candidates, the smallest are found by comparing all pairs.
constexpr int64_t kFew = 64;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

void search(uint64_t key, const int32_t* list, int64_t n, uint64_t bound, Candidates& candidates) {
  GNNSCALE_FOR_ISA(labor_kernels).search32(key, list, n, bound, candidates);
}
void search(uint64_t key, const int64_t* list, int64_t n, uint64_t bound, Candidates& candidates) {
  GNNSCALE_FOR_ISA(labor_kernels).search64(key, list, n, bound, candidates);
}

// Candidates with capacity to keep k of them.
Candidates candidates_for(int64_t k) {
  constexpr int64_t kRoom = 512;
  thread_local std::vector<uint64_t> numbers;
  thread_local std::vector<int64_t> positions;
  const auto capacity = static_cast<size_t>((2 * k + kRoom) / kCandidates * kCandidates);
  if (numbers.size() < capacity) {
    numbers.resize(capacity);
    positions.resize(capacity);
  }
  return {numbers.data(), positions.data(), 0, static_cast<int64_t>(numbers.size()), 0, 0};
}

// Returns a bound that fewer than k of n neighbors fall below in about one list of a hundred.
uint64_t first_bound(int64_t n, int64_t k) {
  const double expected = static_cast<double>(k) + 2 * std::sqrt(static_cast<double>(k)) + 4;
  const double share = expected / static_cast<double>(n);
  return share < 1 ? static_cast<uint64_t>(share * 0x1p64) : kMax;
}

// Keeps the k smallest candidates, and returns the largest number among them.
uint64_t drop_large(Candidates& candidates, int64_t k) {
  thread_local std::vector<uint64_t> order;
  order.assign(candidates.numbers, candidates.numbers + candidates.size);
  std::nth_element(order.begin(), order.begin() + k - 1, order.end());
  const uint64_t largest = order[k - 1];
  int64_t num_kept = 0;
  for (int64_t i = 0; i < candidates.size && num_kept < k; ++i) {
    candidates.numbers[num_kept] = candidates.numbers[i];
    candidates.places[num_kept] = candidates.places[i];
    num_kept += candidates.numbers[i] <= largest;
  }
  candidates.size = num_kept;
  return largest;
}

// Counts copies of neighbors, in a hash table with linear probing.
template <typename Vertex>
class Copies {
 public:
  explicit Copies(int64_t n)
      : mask_(std::bit_ceil(static_cast<uint64_t>(2 * n)) - 1),
        shift_(64 - std::countr_one(mask_)) {
    entries().assign(mask_ + 1, {});
  }

  // Returns the number of copies of `vertex` so far.
  uint64_t count(Vertex vertex) {
    uint64_t slot = static_cast<uint64_t>(vertex) * kGolden >> shift_;
    while (entries()[slot].count > 0 && entries()[slot].vertex != vertex) slot = (slot + 1) & mask_;
    entries()[slot].vertex = vertex;
    return entries()[slot].count++;
  }

 private:
  struct Entry {
    Vertex vertex = 0;
    uint32_t count = 0;
  };
  static std::vector<Entry>& entries() {
    thread_local std::vector<Entry> table;
    return table;
  }

  uint64_t mask_;
  int shift_;
};

// As pick_smallest, for a list whose copies of a neighbor lie anywhere.
template <typename Vertex>
void pick_smallest_scattered(uint64_t key, const Vertex* list, int64_t n, int64_t k, int64_t begin,
                             int64_t* out) {
  thread_local std::vector<std::pair<uint64_t, int64_t>> numbers;
  Copies<Vertex> copies(n);
  numbers.clear();
  for (int64_t i = 0; i < n; ++i) {
    const Vertex vertex = list[i];  // memory that may change: read once
    const uint64_t number = draw(key, static_cast<uint64_t>(vertex));
    const uint64_t copy = copies.count(vertex);
    numbers.emplace_back(copy > 0 ? draw(number, copy) : number, i);
  }
  std::nth_element(numbers.begin(), numbers.begin() + (k - 1), numbers.end());
  for (int64_t i = 0; i < k; ++i) out[i] = begin + numbers[i].second;
  std::sort(out, out + k);
}

template <typename Vertex>
void prefetch_entry(const Pick<Vertex>& hop, Vertex id) {
  if (hop.table == nullptr) return;
  const auto word = static_cast<uint64_t>(id);
  const uint64_t offset = hop.shift == 0 ? word * 4 : (word * kGolden >> hop.shift) * 8;
  // The address is invalid if the id is no vertex; prefetching it has no effect.
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(hop.table) + offset),
                     1, 2);
}

}  // namespace

template <typename Vertex>
void pick_smallest(uint64_t key, const Vertex* list, int64_t n, int64_t k, int64_t begin,
                   int64_t* out) {
  Candidates candidates = candidates_for(k);
  for (uint64_t first = first_bound(n, k);; first = first > kMax / 4 ? kMax : 4 * first) {
    uint64_t bound = first;
    candidates.size = candidates.next = 0;
    for (;;) {
      search(key, list, n, bound, candidates);
      if (candidates.next == n) break;
      bound = drop_large(candidates, k);
    }
    // Every number is at most kMax, so the loop ends.
    if (candidates.size >= k) break;
  }
  if (candidates.size <= kFew) {
    GNNSCALE_FOR_ISA(labor_kernels)
        .keep_few(candidates.numbers, candidates.places, candidates.size, k, begin, out);
    return;
  }
  drop_large(candidates, k);
  for (int64_t i = 0; i < k; ++i) out[i] = begin + candidates.places[i];
}

template <typename Vertex>
bool pick_labor(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions,
                bool has_scattered_copies) {
  bool good = true;
  for (int64_t dst = first; dst < last; ++dst) {
    const int64_t later_dst = std::min(dst + kListsAhead, last - 1);
    const Vertex* next = hop.indices + hop.begins[later_dst];
    const int64_t fetched = std::min(hop.degrees[later_dst], kIdsAhead);
    for (int64_t i = 0; i < fetched; i += 64 / sizeof(Vertex)) __builtin_prefetch(next + i);
    const int64_t count = hop.indptr[dst + 1] - hop.indptr[dst];
    const int64_t begin = hop.begins[dst], degree = hop.degrees[dst];
    if (count == degree) {
      std::iota(positions, positions + count, begin);
    } else if (has_scattered_copies && count > 0) {
      pick_smallest_scattered(hop.key, hop.indices + begin, degree, count, begin, positions);
    } else {
      pick_smallest(hop.key, hop.indices + begin, degree, count, begin, positions);
    }
    Vertex* picked = hop.picked + hop.indptr[dst];
    for (int64_t i = 0; i < count; ++i) {
      const Vertex u = hop.indices[positions[i]];
      good = good && hop.sources.has(u);
      picked[i] = u;
      prefetch_entry(hop, u);
    }
    positions += count;
  }
  return good;
}

template void pick_smallest(uint64_t, const int32_t*, int64_t, int64_t, int64_t, int64_t*);
template void pick_smallest(uint64_t, const int64_t*, int64_t, int64_t, int64_t, int64_t*);
template bool pick_labor(const Pick<int32_t>&, int64_t, int64_t, int64_t*, bool);
template bool pick_labor(const Pick<int64_t>&, int64_t, int64_t, int64_t*, bool);

}  // namespace gnnscale
