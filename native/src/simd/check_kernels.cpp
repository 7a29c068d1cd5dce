// Range checks of ids and offsets. Compiled once per instruction set; the loops have no early exit,
// so that they vectorize.
#include "check_kernels.hpp"

namespace gnnscale {
namespace {

// Read as unsigned, a negative id exceeds every bound.
template <typename Id, typename Unsigned>
bool below(const Id* ids, int64_t size, int64_t bound) {
  Unsigned max = 0;
  for (int64_t i = 0; i < size; ++i) {
    const auto id = static_cast<Unsigned>(ids[i]);
    max = id > max ? id : max;
  }
  return size == 0 || static_cast<uint64_t>(max) < static_cast<uint64_t>(bound);
}

bool below32(const int32_t* ids, int64_t size, int64_t bound) {
  return below<int32_t, uint32_t>(ids, size, bound);
}

bool below64(const int64_t* ids, int64_t size, int64_t bound) {
  return below<int64_t, uint64_t>(ids, size, bound);
}

bool never_falls(const int64_t* offsets, int64_t num_lists) {
  int64_t num_falls = 0;
  for (int64_t i = 0; i < num_lists; ++i) num_falls += offsets[i] > offsets[i + 1];
  return num_falls == 0;
}

}  // namespace

namespace GNNSCALE_ISA {
extern const CheckKernels check_kernels;
const CheckKernels check_kernels{below32, below64, never_falls};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
