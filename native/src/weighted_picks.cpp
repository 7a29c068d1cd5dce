#include "weighted_picks.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"
#include "gnnscale/simd.hpp"
#include "simd/pick_kernels.hpp"

namespace gnnscale {
namespace {

// Vertices whose lists one thread sums at a time.
constexpr int64_t kSummed = 4096;

// The edges of a list that are drawn, at most kMaxDrawn, as 32-bit places in the list.
class Drawn {
 public:
  explicit Drawn(const WeightedList& list) : begin_(list.begin) {}

  // Whether the edge was not drawn before.
  bool insert(int64_t edge) {
    const auto place = static_cast<uint32_t>(edge - begin_);
    bool found = false;
    for (int64_t i = 0; i < size_; ++i) found |= places_[i] == place;
    if (found) return false;
    places_[size_++] = place;
    return true;
  }
  bool has(int64_t edge) const {
    const auto* end = places_ + size_;
    return std::find(places_, end, static_cast<uint32_t>(edge - begin_)) != end;
  }

 private:
  int64_t begin_, size_ = 0;
  uint32_t places_[kMaxDrawn];
};

// Efraimidis and Spirakis (IPL 2006): of independent exponential times with the weights as rates,
// the k smallest are k draws one after the other. A heap keeps the smallest seen so far. Edges of
// which skips(edge) is true are not picked.
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
  // A file may have changed since its weights were counted; what is missing is then any neighbour.
  for (int64_t i = 0; i < k; ++i) {
    out[i] = i < static_cast<int64_t>(heap.size()) ? heap[i].second : list.begin;
  }
  std::sort(out, out + k);
}

void finish_replaced(const WeightedPick& pick, const double* targets, int64_t* out) {
  for (int64_t i = 0; i < pick.k; ++i) {
    const int64_t edge = pick.list.edge_at(targets[i], out[i]);
    out[i] = edge < 0 ? pick.list.begin : edge;  // as above
  }
}

// What is drawn twice is rejected, so that each draw is one from those that are left. When there
// were too many, those that are left have exponential times: the next draws, made another way.
void finish_drawn(const WeightedPick& pick, const double* targets, int64_t* out) {
  const WeightedList& list = pick.list;
  Drawn drawn(list);
  int64_t count = 0;
  const auto take = [&](int64_t edge) {
    if (edge >= 0 && drawn.insert(edge)) out[count++] = edge;
  };
  for (int64_t i = 0; i < pick.k; ++i) take(list.edge_at(targets[i], out[i]));
  if (count == pick.k) return;
  const double total = list.total();
  const int64_t most = max_draws(pick.degree(), pick.k);
  for (int64_t i = pick.k; i < most && count < pick.k; ++i) {
    const double target = weight_target(draw(pick.key, i), total);
    take(list.edge_at(target, list.block_at(target)));
  }
  if (count == pick.k) return;
  pick_smallest(
      times_key(pick.key), list, pick.k - count, [&](int64_t edge) { return drawn.has(edge); },
      out + count);
}

}  // namespace

int64_t num_weighted(const float* weights, int64_t n, int64_t most) {
  int64_t found = 0;
  for (int64_t i = 0; i < n && found < most; ++i) found += weights[i] > 0;
  return found;
}

void WeightedPick::begin(double* targets, int64_t* blocks) const {
  const double total = list.total();
  for (int64_t i = 0; i < k; ++i) {
    targets[i] = weight_target(draw(key, i), total);
    blocks[i] = list.first_block;
  }
  // All searches side by side: the cache misses of one do not wait for those of another.
  for (int64_t size = list.num_blocks(); size > 0; size -= list.half_of(size)) {
    const int64_t half = list.half_of(size);
    for (int64_t i = 0; i < k; ++i) blocks[i] = list.block_in(blocks[i], half, targets[i]);
  }
}

void WeightedPick::finish(const double* targets, int64_t* out) const {
  if (draws()) {
    replace ? finish_replaced(*this, targets, out) : finish_drawn(*this, targets, out);
  } else if (k == degree()) {
    std::iota(out, out + k, list.begin);
  } else if (k > 0) {
    pick_smallest(times_key(key), list, k, [](int64_t) { return false; }, out);
  }
}

void sum_weights(const int64_t* indptr, int64_t num_vertices, const float* weights,
                 int64_t num_edges, double* sums, int num_threads, const Poll& poll) {
  // Damaged lists may overlap; no more is read than there is, and threads may write the same sums.
  std::atomic<int64_t> num_read{0};
  parallel_for(num_vertices, kSummed, num_threads, poll, [&](int64_t first, int64_t last) {
    int64_t end = indptr[first];
    for (int64_t v = first; v < last; ++v) {
      const int64_t begin = end;
      end = indptr[v + 1];
      if (begin < 0 || end < begin || end > num_edges) continue;
      if (num_read.fetch_add(end - begin, std::memory_order_relaxed) > num_edges) return;
      double sum = 0;
      for (int64_t edge = begin; edge < end; ++edge) {
        sum = with_weight(sum, weights[edge]);
        if ((edge + 1) % kWeightBlock != 0) continue;
        std::atomic_ref<double>(sums[edge / kWeightBlock]).store(sum, std::memory_order_relaxed);
      }
    }
  });
}

}  // namespace gnnscale
