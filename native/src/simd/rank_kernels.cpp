// Ranks of vertices in a bitmap. Compiled once per instruction set: all but the oldest have an
// instruction for counting bits.
#include "rank_kernels.hpp"

namespace gnnscale {
namespace {

void rank(const RankBlock* blocks, const int64_t* vertices, int64_t size, int32_t* ranks) {
  for (int64_t i = 0; i < size; ++i) {
    const auto vertex = static_cast<uint64_t>(vertices[i]);
    const RankBlock block = blocks[vertex / 64];
    const uint64_t up_to = block.cached << (63 - vertex % 64);  // the vertex's own bit comes last
    const int64_t number = block.num_before + __builtin_popcountll(up_to);
    const auto is_cached = -static_cast<int64_t>(up_to >> 63);  // all bits set or none
    ranks[i] = static_cast<int32_t>((number & is_cached) - 1);
  }
}

}  // namespace

namespace GNNSCALE_ISA {
extern const RankKernels rank_kernels;
const RankKernels rank_kernels{rank};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
