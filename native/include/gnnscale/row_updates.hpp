// An optimizer's update of some rows of a table, by gradients that are sums over the edges of a
// block.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Rows ids[i] of `x`, which are distinct; others stay, and so does what is kept of them. Tables are
// float32 and contiguous. The gradient of row ids[i] is that of destination i of `gradients`, which
// is summed just before the row is updated: a matrix of gradients is never in memory.
struct RowUpdates {
  float* x;  // [any number, width]
  RowIds ids;
  int64_t width;
  Aggregate gradients;  // without `out` and `gate`
  float rate;
  float epsilon;
};

// One step of lazy Adam.
//   m += (g - m) (1 - beta1);  v += (g g - v) (1 - beta2);  x -= rate m / (sqrt(v) + epsilon)
// `rate` has both corrections of the bias.
struct AdamRows : RowUpdates {
  float* means = nullptr;    // m, as x
  float* squares = nullptr;  // v, as x
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
