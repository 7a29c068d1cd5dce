// An optimizer's update of some rows of a table.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// One step of lazy Adam for rows ids[i], which are distinct: rows that are not named stay, and so
// do their moments. The tables are float32 and contiguous, of `width` columns; gradients are
// [num_rows, width].
//   m += (g - m) (1 - beta1);  v += (g g - v) (1 - beta2);  x -= rate m / (sqrt(v) + epsilon)
struct AdamRows {
  float* x;
  float* means;    // m
  float* squares;  // v
  RowIds ids;
  int64_t num_rows;
  int64_t width;
  const float* gradients;
  float rate;  // with both corrections of the bias
  float beta1, beta2, epsilon;
};

void adam_rows(const AdamRows& task, int num_threads);

}  // namespace gnnscale
