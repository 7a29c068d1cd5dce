// The kernels' entry points, one set for each instruction set they are compiled for.
#pragma once

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Most rows of the next call that gather_at prefetches.
inline constexpr int64_t kMaxAhead = 64;

// Addresses of rows in the order in which they are read: those that a call reads, then those of the
// call after it, of which it prefetches up to kMaxAhead.
struct RowsAt {
  const void* const* data;
  int64_t num_rows;  // of both calls
  bool is_first;     // of the calls, so that no other has prefetched anything
};

struct RowKernels {
  const char* name;
  void (*gather)(const Gather&, int64_t begin, int64_t end);
  // The same, but rows are where `rows` says; what x and ids say of that is not looked at.
  void (*gather_at)(const Gather&, const RowsAt& rows, int64_t begin, int64_t end);
  // Copies the bytes at rows[i] to those at to[i].
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
