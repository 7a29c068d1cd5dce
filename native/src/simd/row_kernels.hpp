// Entry points of the row kernels, one set for each instruction set.
#pragma once

#include "gnnscale/rows.hpp"

namespace gnnscale {

struct RowKernels {
  const char* name;
  void (*gather)(const Gather&, int64_t begin, int64_t end);
  void (*gather_columns)(const GatherColumns&, int64_t begin, int64_t end);
  // As gather, but row `begin + i` is at rows[i]; x's data and the ids are ignored.
  void (*gather_at)(const Gather&, const void* const* rows, int64_t begin, int64_t end);
  // Copies `row_bytes` bytes from rows[i] to to[i].
  void (*copy_at)(const void* const* rows, void* const* to, int64_t row_bytes, int64_t num_rows);
  void (*aggregate)(const Aggregate&, int64_t begin, int64_t end);
  float (*dot)(const float* a, const float* b, int64_t length);
};

namespace baseline {
extern const RowKernels row_kernels;
}
namespace v3 {
extern const RowKernels row_kernels;
}
namespace v4 {
extern const RowKernels row_kernels;
}

}  // namespace gnnscale
