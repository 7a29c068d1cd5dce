// Entry points of the kernels that check ids and offsets, one set for each instruction set.
#pragma once

#include <cstdint>

namespace gnnscale {

struct CheckKernels {
  // Returns whether 0 <= ids[i] < bound for all i.
  bool (*below32)(const int32_t* ids, int64_t size, int64_t bound);
  bool (*below64)(const int64_t* ids, int64_t size, int64_t bound);
  // Returns whether offsets[i] <= offsets[i + 1] for all i < num_lists.
  bool (*never_falls)(const int64_t* offsets, int64_t num_lists);
};

namespace baseline {
extern const CheckKernels check_kernels;
}
namespace v3 {
extern const CheckKernels check_kernels;
}
namespace v4 {
extern const CheckKernels check_kernels;
}

}  // namespace gnnscale
