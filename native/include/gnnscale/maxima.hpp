// The largest row of each destination's neighbours, feature by feature, and its gradient.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// out[i] = max of x[indices[e]] over the edges e of destination i, zeros without any; a NaN stays.
// counts[i], if given, is how many edges have that maximum. x and out are float32 or bfloat16.
struct AggregateMax {
  Rows x;
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst;
  MutableRows out;
  MutableRows counts{};  // float32
};
void aggregate_max(const AggregateMax& task, int num_threads);

// out[u] = sum over the destinations i of source u, in their order, of shares[i] where x[u] is
// largest[i]. `indptr` and `indices` are the destinations of each source; x and largest are of the
// same type, shares are float32.
struct AggregateMaxBackward {
  Rows x, largest, shares;
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_src;
  MutableRows out;
};
void aggregate_max_backward(const AggregateMaxBackward& task, int num_threads);

}  // namespace gnnscale
