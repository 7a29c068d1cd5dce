// A piece of a bitmap that tells ranks. Nothing from the standard library: kernels include it.
#pragma once

#include <cstdint>

namespace gnnscale {

// Which of 64 vertices are cached, and how many are of those before them. Both lie in one cache
// line, so that a look-up misses once.
struct alignas(16) RankBlock {
  uint64_t cached;
  int64_t num_before;
};

}  // namespace gnnscale
