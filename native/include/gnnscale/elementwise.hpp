// ReLU and dropout in one pass: random bits are a pure function of key, vertex and column.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// x = relu(x) * scale where kept, else 0, in place. An element is dropped with probability
// drop / 2^16: where its 16 random bits are below `drop`. Column j of the row of vertex v has bits
// 16 (j mod 4) and up of draw(combine(key, v), j / 4), whichever the other rows are.
struct ReluDropout {
  MutableRows x;    // without gaps between rows
  RowIds vertices;  // [num_rows], any number
  int64_t num_rows;
  uint64_t key;
  uint32_t drop;
  float scale;
};

void relu_dropout(const ReluDropout& task, int num_threads);

// out = grad * scale where y > 0, else 0; y is what relu_dropout wrote.
void relu_dropout_backward(const void* y, const void* grad, void* out, DType dtype, int64_t size,
                           float scale, int num_threads);

}  // namespace gnnscale
