// Entry point of the kernel that looks vertices up in a bitmap, one for each instruction set.
#pragma once

#include "gnnscale/rank_block.hpp"

namespace gnnscale {

struct RankKernels {
  // ranks[i] = number of cached vertices below vertices[i]; -1 if vertices[i] is not cached.
  void (*rank)(const RankBlock* blocks, const int64_t* vertices, int64_t size, int32_t* ranks);
};

namespace baseline {
extern const RankKernels rank_kernels;
}
namespace v3 {
extern const RankKernels rank_kernels;
}
namespace v4 {
extern const RankKernels rank_kernels;
}

}  // namespace gnnscale
