#include "gnnscale/ranked_slots.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "gnnscale/limits.hpp"
#include "gnnscale/simd.hpp"
#include "simd/rank_kernels.hpp"

namespace gnnscale {
namespace {

const RankKernels& kernels() { return GNNSCALE_FOR_ISA(rank_kernels); }

[[noreturn]] [[gnu::cold]] void refuse(int64_t member, int64_t vertex, int64_t index,
                                       int64_t num_vertices) {
  throw std::invalid_argument("members[" + std::to_string(member) + "]: " + std::to_string(vertex) +
                              " at place " + std::to_string(index) + ", allowed are 0 to " +
                              std::to_string(num_vertices - 1));
}

// Calls use(vertex) for each vertex of a member, in order.
template <typename Use>
void for_members(const std::vector<RankedSlots::Member>& members, int64_t num_vertices, Use&& use) {
  for (size_t k = 0; k < members.size(); ++k) {
    const auto read = [&]<typename Id>(const Id* vertices) {
      for (int64_t i = 0; i < members[k].size; ++i) {
        const int64_t vertex = vertices[i];
        if (vertex < 0 || vertex >= num_vertices || !use(vertex)) [[unlikely]]
          refuse(static_cast<int64_t>(k), vertex, i, num_vertices);
      }
    };
    const RowIds& ids = members[k].vertices;
    ids.wide ? read(static_cast<const int64_t*>(ids.data))
             : read(static_cast<const int32_t*>(ids.data));
  }
}

}  // namespace

RankedSlots::RankedSlots(int64_t num_vertices, const std::vector<Member>& members)
    : num_vertices_(num_vertices), starts_{0}, blocks_(num_vertices / 64 + 1) {
  for (const Member& member : members) starts_.push_back(starts_.back() + member.size);
  RankBlock* const blocks = blocks_.data();
  int64_t last = -1, highest = -1;
  bool ascending = true;
  for_members(members, num_vertices, [&](int64_t vertex) {
    blocks[vertex / 64].cached |= uint64_t{1} << (vertex % 64);
    ascending &= vertex > last;
    last = vertex;
    highest = std::max(highest, vertex);
    return true;
  });
  int64_t num_cached = 0;
  for (int64_t i = 0; i <= highest / 64; ++i) {
    if (blocks[i].cached == 0) continue;  // leaves untouched pages unallocated
    blocks[i].num_before = num_cached;
    num_cached += __builtin_popcountll(blocks[i].cached);
  }
  if (ascending) return;
  order_.resize(num_cached);
  int32_t slot = 0;
  for_members(members, num_vertices, [&](int64_t vertex) {
    int32_t rank;
    kernels().rank(blocks, &vertex, 1, &rank);
    if (rank < 0) return false;  // not in vertex order
    order_[rank] = slot++;
    return true;
  });
}

int64_t RankedSlots::num_bytes() const {
  return (num_vertices_ / 64 + 1) * static_cast<int64_t>(sizeof(RankBlock)) +
         static_cast<int64_t>(order_.size() * sizeof(int32_t));
}

void RankedSlots::rank(const int64_t* vertices, int64_t size, int32_t* ranks) const {
  kernels().rank(blocks_.data(), vertices, size, ranks);
  if (order_.empty()) return;
  for (int64_t i = 0; i < size; ++i) {
    __builtin_prefetch(order_.data() + (ranks[i] < 0 ? 0 : ranks[i]), 0, 2);
  }
}

void RankedSlots::find(int32_t* ranks, int64_t size) const {
  if (order_.empty()) return;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t miss = ranks[i] >> 31;  // all bits set or none
    ranks[i] = order_[ranks[i] & ~miss] | miss;
  }
}

}  // namespace gnnscale
