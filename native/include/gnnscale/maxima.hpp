// Max aggregation: the elementwise maximum of each destination's neighbor rows, and its gradient.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// out[i] = max of x[indices[e]] over the edges e of destination i; 0 without edges; NaN propagates.
// counts[i], unless null, is the number of edges with that maximum. x and out are float32 or
// bfloat16.
struct AggregateMax {
  Rows x;
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst;
  MutableRows out;
  MutableRows counts{};  // float32
};
void aggregate_max(const AggregateMax& task, int num_threads);

// out[u] = sum of shares[i] over the destinations i of source u, in ascending order, where x[u]
// equals largest[i]. `indptr` and `indices` list the destinations of each source; x and largest
// have one type, shares are float32.
struct AggregateMaxBackward {
  Rows x, largest, shares;
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_src;
  MutableRows out;
};
void aggregate_max_backward(const AggregateMaxBackward& task, int num_threads);

}  // namespace gnnscale
