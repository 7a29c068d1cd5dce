// Limits that array checks use. No standard library headers: GPU kernels include this file.
#pragma once

#include <cstdint>

namespace gnnscale {

// False only in the build that measures the cost of the checks (scripts/benchmarks checkouts).
#ifdef GNNSCALE_MEASURE_UNCHECKED
inline constexpr bool kChecked = false;
#else
inline constexpr bool kChecked = true;
#endif

// Maximum number of vertices or edges of a hop, since local ids are int32.
inline constexpr int64_t kMaxLocal = (int64_t{1} << 31) - 1;

}  // namespace gnnscale
