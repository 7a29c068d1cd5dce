#include "labor_picks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/simd.hpp"
#include "simd/labor_kernels.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kListsAhead = 2;
// Ids of a list that are fetched before it is searched; the processor continues by itself.
constexpr int64_t kIdsAhead = 512;
// Of so many candidates the smallest are found by comparing each with all.
constexpr int64_t kFew = 64;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

void search(uint64_t key, const int32_t* list, int64_t n, uint64_t bound, Candidates& found) {
  GNNSCALE_FOR_ISA(labor_kernels).search32(key, list, n, bound, found);
}
void search(uint64_t key, const int64_t* list, int64_t n, uint64_t bound, Candidates& found) {
  GNNSCALE_FOR_ISA(labor_kernels).search64(key, list, n, bound, found);
}

// Room for candidates, of which at least k are kept.
Candidates room_for(int64_t k) {
  constexpr int64_t kRoom = 512;
  thread_local std::vector<uint64_t> numbers;
  thread_local std::vector<int64_t> places;
  const auto room = static_cast<size_t>((2 * k + kRoom) / kCandidates * kCandidates);
  if (numbers.size() < room) {
    numbers.resize(room);
    places.resize(room);
  }
  return {numbers.data(), places.data(), 0, static_cast<int64_t>(numbers.size()), 0, 0};
}

// Of n neighbours about this share is below the bound, so that fewer than k of them rarely are: in
// about one list of a hundred.
uint64_t first_bound(int64_t n, int64_t k) {
  const double wanted = static_cast<double>(k) + 2 * std::sqrt(static_cast<double>(k)) + 4;
  const double share = wanted / static_cast<double>(n);
  return share < 1 ? static_cast<uint64_t>(share * 0x1p64) : kMax;
}

// Keeps the k smallest candidates, and returns the largest of them.
uint64_t drop_large(Candidates& found, int64_t k) {
  thread_local std::vector<uint64_t> order;
  order.assign(found.numbers, found.numbers + found.size);
  std::nth_element(order.begin(), order.begin() + k - 1, order.end());
  const uint64_t largest = order[k - 1];
  int64_t kept = 0;
  for (int64_t i = 0; i < found.size && kept < k; ++i) {
    found.numbers[kept] = found.numbers[i];
    found.places[kept] = found.places[i];
    kept += found.numbers[i] <= largest;
  }
  found.size = kept;
  return largest;
}

template <typename Vertex>
void prefetch_entry(const Pick<Vertex>& hop, Vertex id) {
  if (hop.table == nullptr) return;
  const auto word = static_cast<uint64_t>(id);
  const uint64_t offset = hop.shift == 0 ? word * 4 : (word * kGolden >> hop.shift) * 8;
  // The address is not that of an object if the id is no vertex; a prefetch of it does nothing.
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(hop.table) + offset),
                     1, 2);
}

}  // namespace

template <typename Vertex>
void pick_smallest(uint64_t key, const Vertex* list, int64_t n, int64_t k, int64_t begin,
                   int64_t* out) {
  Candidates found = room_for(k);
  for (uint64_t first = first_bound(n, k);; first = first > kMax / 4 ? kMax : 4 * first) {
    uint64_t bound = first;
    found.size = found.next = 0;
    for (;;) {
      search(key, list, n, bound, found);
      if (found.next == n) break;
      bound = drop_large(found, k);
    }
    // Every number is at most kMax, so that this ends.
    if (found.size >= k) break;
  }
  if (found.size <= kFew) {
    GNNSCALE_FOR_ISA(labor_kernels)
        .keep_few(found.numbers, found.places, found.size, k, begin, out);
    return;
  }
  drop_large(found, k);
  for (int64_t i = 0; i < k; ++i) out[i] = begin + found.places[i];
}

template <typename Vertex>
bool pick_labor(const Pick<Vertex>& hop, int64_t first, int64_t last, int64_t* positions) {
  bool good = true;
  for (int64_t dst = first; dst < last; ++dst) {
    const int64_t ahead = std::min(dst + kListsAhead, last - 1);
    const Vertex* next = hop.indices + hop.begins[ahead];
    const int64_t fetched = std::min(hop.degrees[ahead], kIdsAhead);
    for (int64_t i = 0; i < fetched; i += 64 / sizeof(Vertex)) __builtin_prefetch(next + i);
    const int64_t count = hop.indptr[dst + 1] - hop.indptr[dst];
    const int64_t begin = hop.begins[dst], degree = hop.degrees[dst];
    if (count == degree) {
      std::iota(positions, positions + count, begin);
    } else {
      pick_smallest(hop.key, hop.indices + begin, degree, count, begin, positions);
    }
    Vertex* picked = hop.picked + hop.indptr[dst];
    for (int64_t i = 0; i < count; ++i) {
      const Vertex u = hop.indices[positions[i]];
      good = good && u >= 0 && u < hop.num_vertices;
      picked[i] = u;
      prefetch_entry(hop, u);
    }
    positions += count;
  }
  return good;
}

template void pick_smallest(uint64_t, const int32_t*, int64_t, int64_t, int64_t, int64_t*);
template void pick_smallest(uint64_t, const int64_t*, int64_t, int64_t, int64_t, int64_t*);
template bool pick_labor(const Pick<int32_t>&, int64_t, int64_t, int64_t*);
template bool pick_labor(const Pick<int64_t>&, int64_t, int64_t, int64_t*);

}  // namespace gnnscale
