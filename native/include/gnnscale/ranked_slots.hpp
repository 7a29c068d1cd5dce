// Slots of static caches in a few bits for each vertex.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/rank_block.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Rows of caches are numbered consecutively, cache by cache; a vertex's slot is its row number, or
// -1. A rank bitmap (Jacobson, FOCS 1989) holds which vertices are cached and how many precede each
// block. If rows are not in vertex order, a table of the cached vertices maps rank to slot.
//
// Immutable after construction, so several threads may use it.
class RankedSlots {
 public:
  struct Member {
    RowIds vertices;
    int64_t size;
  };

  // A vertex with several rows gets the last one. Throws invalid_argument if an id is no vertex.
  RankedSlots(int64_t num_vertices, const std::vector<Member>& members);

  int64_t num_vertices() const { return num_vertices_; }
  // [num_members + 1] first slot of each member, then the number of slots.
  const std::vector<int64_t>& starts() const { return starts_; }
  int64_t num_bytes() const;

  void prefetch(int64_t vertex) const { __builtin_prefetch(&blocks_.data()[vertex / 64], 0, 2); }
  // Writes the ranks of vertices, -1 for vertices that are not cached, and prefetches the slots of
  // the ranks.
  void rank(const int64_t* vertices, int64_t size, int32_t* ranks) const;
  // Replaces ranks by slots, in place.
  void find(int32_t* ranks, int64_t size) const;

 private:
  int64_t num_vertices_;
  std::vector<int64_t> starts_;
  HugeArray<RankBlock> blocks_;
  std::vector<int32_t> order_;  // [cached vertices] slot by rank; empty if slot equals rank
};

}  // namespace gnnscale
