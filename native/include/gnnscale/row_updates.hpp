// Optimizer updates of some rows of a table, with gradients that are sums over a block's edges.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Update of rows ids[i] of `x`, which must be distinct; all other rows and their optimizer state
// stay unchanged. Tables are float32 and contiguous. The gradient of row ids[i] is row i of
// `gradients`, summed just before the update: the gradient matrix is never materialized.
struct RowUpdates {
  float* x;  // [any number of rows, width]
  RowIds ids;
  int64_t width;
  Aggregate gradients;  // without `out` and `gate`
  float rate;
  float epsilon;
};

// One step of lazy Adam.
//   m += (g - m) (1 - beta1);  v += (g g - v) (1 - beta2);  x -= rate m / (sqrt(v) + epsilon)
// `rate` includes both bias corrections.
struct AdamRows : RowUpdates {
  float* means = nullptr;    // m, shaped as x
  float* squares = nullptr;  // v, shaped as x
  float beta1 = 0.0F, beta2 = 0.0F;
};

// One step of row-wise Adagrad.
//   s += mean of g g over the row;  x -= rate / (sqrt(s) + epsilon) g
struct AdagradRows : RowUpdates {
  float* sums = nullptr;  // s, one for each row of x
};

void adam_rows(const AdamRows& task, int num_threads);
void adagrad_rows(const AdagradRows& task, int num_threads);

}  // namespace gnnscale
