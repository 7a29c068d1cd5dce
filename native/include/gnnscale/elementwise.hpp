// ReLU and dropout in one pass. The random bits are a pure function of key, vertex and column.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// x = relu(x) * scale for elements that are not dropped, 0 for dropped ones, in place. An element
// is dropped with probability drop / 2^16: if its 16 random bits are below `drop`. Column j of
// vertex v has the bits from 16 (j mod 4) on of draw(combine(key, v), j / 4), independent of all
// other rows.
struct ReluDropout {
  MutableRows x;    // rows without padding
  RowIds vertices;  // [num_rows], any values
  int64_t num_rows;
  uint64_t key;
  uint32_t drop;
  float scale;
};

void relu_dropout(const ReluDropout& task, int num_threads);

// out = grad * scale where y > 0, otherwise 0; y is the output of relu_dropout.
void relu_dropout_backward(const void* y, const void* grad, void* out, DType dtype, int64_t size,
                           float scale, int num_threads);

}  // namespace gnnscale
