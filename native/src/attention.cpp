#include "gnnscale/attention.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "gnnscale/edge_chunks.hpp"
#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Edges times heads of one work item.
constexpr int64_t kGrain = 1 << 12;

// Returns e^x to within 0.5001 ulp. The C library's expf uses fused multiply-add where the
// processor has it and then rounds differently; this version is bit-identical everywhere.
float exponential(float x) {
  if (!(x > -150.0F)) return x <= -150.0F ? 0.0F : x;  // NaN propagates
  constexpr double kLog2e = 0x1.71547652b82fep0, kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kShift = 0x1.8p52;  // adding it rounds to an integer in the low bits
  const double power = std::min(x, 150.0F) * kLog2e;
  const double shifted = power + kShift;
  const double r = (power - (shifted - kShift)) * kLn2;  // at most ln(2) / 2 in magnitude
  const double r2 = r * r, r4 = r2 * r2;
  const double low = (1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  const double high = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  const double mantissa = low + r4 * (high + r4 * (1.0 / 40320 + r * (1.0 / 362880)));
  const auto exponent = std::bit_cast<uint64_t>(shifted) << 52;
  const double value = std::bit_cast<double>(std::bit_cast<uint64_t>(mantissa) + exponent);
  return static_cast<float>(value);
}

// Calls `body` on ranges of destinations with about equal numbers of edges.
void for_destinations(const int64_t* indptr, int64_t num_dst, int64_t num_heads, int num_threads,
                      const std::function<void(int64_t begin, int64_t end)>& body) {
  const EdgeChunks chunks(indptr, num_dst, std::max<int64_t>(kGrain / num_heads, 1));
  parallel_for(chunks.size(), 1, num_threads, [&](int64_t first, int64_t last) {
    body(chunks[first].first, chunks[last - 1].second);
  });
}

}  // namespace

void edge_softmax(const int64_t* indptr, int64_t num_dst, int64_t num_heads, const float* scores,
                  const float* bias, float* alpha, int num_threads) {
  for_destinations(indptr, num_dst, num_heads, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t head = 0; head < num_heads; ++head) {
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          largest = std::max(largest, scores[edge * num_heads + head]);
        }
        float total = 0.0F;
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          float value = exponential(scores[edge * num_heads + head] - largest);
          if (bias != nullptr) value *= bias[edge];
          alpha[edge * num_heads + head] = value;
          total += value;
        }
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          alpha[edge * num_heads + head] /= total;
        }
      }
    }
  });
}

void edge_softmax_backward(const int64_t* indptr, int64_t num_dst, int64_t num_heads,
                           const float* alpha, const float* grad, float* grad_scores,
                           int num_threads) {
  for_destinations(indptr, num_dst, num_heads, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t dst = begin; dst < end; ++dst) {
      for (int64_t head = 0; head < num_heads; ++head) {
        float total = 0.0F;
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          total += alpha[edge * num_heads + head] * grad[edge * num_heads + head];
        }
        for (int64_t edge = indptr[dst]; edge < indptr[dst + 1]; ++edge) {
          const int64_t at = edge * num_heads + head;
          grad_scores[at] = alpha[at] * (grad[at] - total);
        }
      }
    }
  });
}

}  // namespace gnnscale
