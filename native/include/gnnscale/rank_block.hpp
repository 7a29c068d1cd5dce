// Block of a rank bitmap. No standard library headers: GPU kernels include this file.
#pragma once

#include <cstdint>

namespace gnnscale {

// Bitmap of the cached vertices among 64, and the number of cached vertices before the block. Both
// share a cache line, so that a look-up misses once.
struct alignas(16) RankBlock {
  uint64_t cached;
  int64_t num_before;
};

}  // namespace gnnscale
