#include "weighted_picks.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "gnnscale/random.hpp"
#include "gnnscale/simd.hpp"
#include "simd/pick_kernels.hpp"

namespace gnnscale {
namespace {

// A draw and the place that it is of, or for.
using Drawn = std::pair<double, int64_t>;

// Efraimidis and Spirakis (IPL 2006): of independent exponential times with the weights as rates,
// the k smallest are k draws one after the other. A heap keeps the smallest seen so far.
void pick_smallest(uint64_t key, int64_t begin, const float* weights, int64_t n, int64_t k,
                   int64_t* out) {
  constexpr int64_t kAtOnce = 128;
  double times[kAtOnce];
  thread_local std::vector<Drawn> heap;
  heap.clear();
  double bound = std::numeric_limits<double>::infinity();
  for (int64_t first = 0; first < n; first += kAtOnce) {
    const int64_t size = std::min(kAtOnce, n - first);
    GNNSCALE_FOR_ISA(pick_kernels).exponentials(key, first, weights + first, size, times);
    for (int64_t i = 0; i < size; ++i) {
      if (!(times[i] < bound)) continue;
      if (static_cast<int64_t>(heap.size()) == k) {
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
      }
      heap.emplace_back(times[i], begin + first + i);
      std::push_heap(heap.begin(), heap.end());
      if (static_cast<int64_t>(heap.size()) == k) bound = heap.front().first;
    }
  }
  // A file may have changed since its weights were counted; what is missing is then any neighbour.
  for (int64_t i = 0; i < k; ++i) {
    out[i] = i < static_cast<int64_t>(heap.size()) ? heap[i].second : begin;
  }
  std::sort(out, out + k);
}

// Draws are places in the sum of all weights. They are sorted, so that one walk finds them all.
void pick_replaced(uint64_t key, int64_t begin, const float* weights, int64_t n, int64_t k,
                   int64_t* out) {
  double total = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!(weights[i] > 0)) continue;
    total += static_cast<double>(weights[i]);
    last = i;
  }
  thread_local std::vector<Drawn> draws;
  draws.clear();
  for (int64_t i = 0; i < k; ++i) draws.emplace_back(unit(draw(key, i)) * total, i);
  std::sort(draws.begin(), draws.end());
  double sum = 0;
  auto next = draws.begin();
  for (int64_t i = 0; i < n && next != draws.end(); ++i) {
    if (weights[i] > 0) sum += static_cast<double>(weights[i]);
    for (; next != draws.end() && next->first < sum; ++next) out[next->second] = begin + i;
  }
  for (; next != draws.end(); ++next) out[next->second] = begin + last;
}

}  // namespace

int64_t num_weighted(const float* weights, int64_t n, int64_t most) {
  int64_t found = 0;
  for (int64_t i = 0; i < n && found < most; ++i) found += weights[i] > 0;
  return found;
}

void pick_weighted(uint64_t key, int64_t begin, const float* weights, int64_t n, int64_t k,
                   bool replace, int64_t* out) {
  if (k == 0) return;
  if (replace) {
    pick_replaced(key, begin, weights, n, k, out);
  } else if (k == n) {
    std::iota(out, out + k, begin);
  } else {
    pick_smallest(key, begin, weights, n, k, out);
  }
}

}  // namespace gnnscale
