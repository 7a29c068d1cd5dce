#include "weighted_picks.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"
#include "gnnscale/simd.hpp"
#include "simd/labor_kernels.hpp"
#include "simd/pick_kernels.hpp"
#include "simd/weighted_kernels.hpp"

namespace gnnscale {
namespace {

// Up to this many neighbors, the smallest times are found by comparing all pairs.
constexpr int64_t kFew = 128;
// Vertices whose slots one work item fills.
constexpr int64_t kListsAtOnce = 4096;

// Set of a list's drawn edges, at most kMaxDrawn. No two edges of a list with draws have equal
// lower 32 bits.
class Drawn {
 public:
  // Inserts an edge. Returns whether it was new.
  bool insert(int64_t edge) {
    const auto key = static_cast<uint32_t>(edge);
    bool is_drawn = false;
    for (int64_t i = 0; i < size_; ++i) is_drawn |= keys_[i] == key;
    if (!is_drawn) keys_[size_++] = key;
    return !is_drawn;
  }

 private:
  int64_t size_ = 0;
  uint32_t keys_[kMaxDrawn];
};

// Efraimidis and Spirakis (IPL 2006): of independent exponential times with the weights as rates,
// the k smallest are k successive draws. A heap keeps the smallest times so far. Edges with
// skips(edge) are not picked.
template <typename Skips>
void pick_smallest(uint64_t key, const WeightedList& list, int64_t k, Skips&& skips, int64_t* out) {
  constexpr int64_t kAtOnce = 128;
  double times[kAtOnce];
  thread_local std::vector<std::pair<double, int64_t>> heap;
  heap.clear();
  double bound = std::numeric_limits<double>::infinity();
  for (int64_t first = list.begin; first < list.end; first += kAtOnce) {
    const int64_t size = std::min(kAtOnce, list.end - first);
    GNNSCALE_FOR_ISA(pick_kernels)
        .exponentials(key, first - list.begin, list.weights + first, size, times);
    for (int64_t i = 0; i < size; ++i) {
      if (!(times[i] < bound) || skips(first + i)) continue;
      if (static_cast<int64_t>(heap.size()) == k) {
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
      }
      heap.emplace_back(times[i], first + i);
      std::push_heap(heap.begin(), heap.end());
      if (static_cast<int64_t>(heap.size()) == k) bound = heap.front().first;
    }
  }
  // The file may have changed since its weights were counted; missing picks become arbitrary
  // neighbors.
  for (int64_t i = 0; i < k; ++i) {
    out[i] = i < static_cast<int64_t>(heap.size()) ? heap[i].second : list.begin;
  }
  std::sort(out, out + k);
}

// As above, for at most kFew neighbors.
void pick_smallest_of_few(uint64_t key, const WeightedList& list, int64_t k, int64_t* out) {
  static const auto positions = [] {
    std::array<int64_t, kFew> numbers;
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }();
  const int64_t n = list.end - list.begin;
  double times[kFew];
  uint64_t bits[kFew + kCandidates];
  int64_t picks[kFew + 1];
  GNNSCALE_FOR_ISA(pick_kernels).exponentials(key, 0, list.weights + list.begin, n, times);
  std::memcpy(bits, times, n * sizeof(double));  // times are positive, so their bits are ordered
  std::fill(bits + n, bits + n + kCandidates, 0);
  GNNSCALE_FOR_ISA(labor_kernels).keep_few(bits, positions.data(), n, k, list.begin, picks);
  std::copy_n(picks, k, out);
}

// Stores slots word by word, atomically: several threads may write the slots of damaged lists.
void store(const WeightSlot* filled, int64_t size, WeightSlot* slots) {
  constexpr int64_t kWords = sizeof(WeightSlot) / sizeof(uint64_t);
  const auto* from = reinterpret_cast<const unsigned char*>(filled);
  auto* to = reinterpret_cast<uint64_t*>(slots);
  for (int64_t i = 0; i < size * kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, from + i * sizeof(word), sizeof(word));
    std::atomic_ref<uint64_t>(to[i]).store(word, std::memory_order_relaxed);
  }
}

int64_t checked_slots(int64_t num_vertices, int64_t num_edges) {
  if (num_edges <= kMaxWeighted) return num_weight_slots(num_vertices, num_edges);
  throw std::length_error("by_weight: a graph of more than " + std::to_string(kMaxWeighted) +
                          " edges");
}

void finish_replaced(const WeightedPick& pick, int64_t* out) {
  GNNSCALE_FOR_ISA(weighted_kernels).edges_in(pick.list, pick.key, pick.k, out);
  for (int64_t i = 0; i < pick.k; ++i) out[i] = out[i] < 0 ? pick.list.begin : out[i];  // missing
}

// As finish_replaced, without slots: by sums of the weights.
void replaced_by_sums(const WeightedPick& pick, int64_t* out) {
  thread_local std::vector<double> sums;
  sums.clear();
  double total = 0;
  for (int64_t edge = pick.list.begin; edge < pick.list.end; ++edge) {
    const float weight = pick.list.weights[edge];
    sums.push_back(total += weight > 0 ? static_cast<double>(weight) : 0.0);
  }
  // Weights may have changed since they were counted: a draw is within the list regardless.
  const auto last = std::lower_bound(sums.begin(), sums.end(), total) - sums.begin();
  for (int64_t i = 0; i < pick.k; ++i) {
    const double random = unit(draw(pick.key, static_cast<uint64_t>(i))) * total;
    const auto place = std::upper_bound(sums.begin(), sums.end(), random) - sums.begin();
    out[i] = pick.list.begin + std::min<int64_t>(place, std::min<int64_t>(last, pick.degree() - 1));
  }
}

// Draws k > kCompared distinct edges, equal to the kernel's draws.
int64_t distinct_of_many(const WeightedPick& pick, int64_t max_count, int64_t* out) {
  GNNSCALE_FOR_ISA(weighted_kernels).edges_in(pick.list, pick.key, pick.k, out);
  Drawn distinct;
  int64_t count = 0;
  for (int64_t i = 0; i < max_count && count < pick.k; ++i) {
    const auto number = static_cast<uint64_t>(i);
    const int64_t edge =
        i < pick.k ? out[i]
                   : pick.list.edge_in(pick.list.aliased_at(block_random(pick.key, number)),
                                       edge_random(pick.key, number));
    if (edge >= 0 && distinct.insert(edge)) out[count++] = edge;
  }
  return count;
}

// Completes a list of distinct draws: rejecting repeated draws makes each pick a draw from the
// remaining edges. If the number of draws was exhausted, exponential times pick the remaining
// edges.
void finish_drawn(const WeightedPick& pick, int64_t* out) {
  const int64_t max_count = max_draws(pick.degree(), pick.k);
  const int64_t count = pick.k <= kCompared
                            ? GNNSCALE_FOR_ISA(weighted_kernels)
                                  .distinct_in(pick.list, pick.key, pick.k, max_count, out)
                            : distinct_of_many(pick, max_count, out);
  if (count == pick.k) return;
  const auto is_drawn = [&](int64_t edge) {
    return std::find(out, out + count, edge) != out + count;
  };
  pick_smallest(times_key(pick.key), pick.list, pick.k - count, is_drawn, out + count);
}

}  // namespace

int64_t num_weighted(const float* weights, int64_t n, int64_t max_count) {
  int64_t num_positive = 0;
  for (int64_t i = 0; i < n && num_positive < max_count; ++i) num_positive += weights[i] > 0;
  return num_positive;
}

void WeightedPick::finish(int64_t* out) const {
  if (draws()) {
    replace ? finish_replaced(*this, out) : finish_drawn(*this, out);
  } else if (replace && k > 0) {
    replaced_by_sums(*this, out);
  } else if (k == degree()) {
    std::iota(out, out + k, list.begin);
  } else if (k > 0 && degree() <= kFew) {
    pick_smallest_of_few(times_key(key), list, k, out);
  } else if (k > 0) {
    pick_smallest(times_key(key), list, k, [](int64_t) { return false; }, out);
  }
}

WeightSlots::WeightSlots(const int64_t* indptr, int64_t num_vertices, const float* weights,
                         int64_t num_edges, int num_threads, const Poll& poll)
    : slots_(checked_slots(num_vertices, num_edges)) {
  // Damaged lists may overlap: reads are capped at the number of edges, and threads may write one
  // slot concurrently.
  std::atomic<int64_t> num_read{0};
  std::atomic<bool> all_positive{true};
  parallel_for(num_vertices, kListsAtOnce, num_threads, poll, [&](int64_t first, int64_t last) {
    std::vector<WeightSlot> filled;
    int64_t end = indptr[first];
    for (int64_t v = first; v < last; ++v) {
      const int64_t begin = end;
      end = indptr[v + 1];
      if (begin < 0 || end < begin || end > num_edges) continue;
      if (num_read.fetch_add(end - begin, std::memory_order_relaxed) > num_edges) return;
      if (num_weighted(weights + begin, end - begin, end - begin) < end - begin) {
        all_positive.store(false, std::memory_order_relaxed);
      }
      const WeightedList list = weighted_list(weights, slots_.data(), v, begin, end - begin);
      filled.resize(std::max<size_t>(filled.size(), list.num_blocks()));
      SlotFiller(list, filled.data()).fill();
      store(filled.data(), list.num_blocks(), slots_.data() + (list.slots - slots_.data()));
    }
  });
  all_positive_ = all_positive.load();
}

}  // namespace gnnscale
