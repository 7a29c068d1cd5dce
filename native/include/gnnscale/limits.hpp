// What the checks of arrays go by. Nothing from the standard library: kernels include it.
#pragma once

#include <cstdint>

namespace gnnscale {

// Off only in the build that measures what the checks cost (scripts/benchmarks checks).
#ifdef GNNSCALE_MEASURE_UNCHECKED
inline constexpr bool kChecked = false;
#else
inline constexpr bool kChecked = true;
#endif

// Local ids are int32, so a hop has no more vertices and edges than this.
inline constexpr int64_t kMaxLocal = (int64_t{1} << 31) - 1;

}  // namespace gnnscale
