// The slots of rows that stay in caches, in a few bits a vertex.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/rank_block.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Rows of caches are numbered one cache after the other; a vertex's slot is such a number, or -1. A
// bitmap says which vertices are cached and how many before each (its rank: Jacobson, FOCS 1989).
// Where the rows are not in the order of their vertices, a table of cached vertices alone says
// which row is whose.
//
// Nothing changes once it is made, so several threads may use it.
class RankedSlots {
 public:
  struct Member {
    RowIds vertices;
    int64_t size;
  };

  // A vertex that several rows are of has the last of them. Throws invalid_argument if a vertex
  // is none.
  RankedSlots(int64_t num_vertices, const std::vector<Member>& members);

  int64_t num_vertices() const { return num_vertices_; }
  // [num_members + 1] number of each member's first row, and of all rows.
  const std::vector<int64_t>& starts() const { return starts_; }
  int64_t num_bytes() const;

  void prefetch(int64_t vertex) const { __builtin_prefetch(&blocks_.data()[vertex / 64], 0, 2); }
  // The ranks of vertices, -1 of those that are not cached; the slots of these ranks are on their
  // way afterwards.
  void rank(const int64_t* vertices, int64_t size, int32_t* ranks) const;
  // Turns ranks into slots, in place.
  void find(int32_t* ranks, int64_t size) const;

 private:
  int64_t num_vertices_;
  std::vector<int64_t> starts_;
  HugeArray<RankBlock> blocks_;
  std::vector<int32_t> order_;  // [cached vertices] slot by rank; empty if each is its rank
};

}  // namespace gnnscale
