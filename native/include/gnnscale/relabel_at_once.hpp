// Parallel relabeling of a hop's edges, with the result of serial relabeling.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/relabel.hpp"

namespace gnnscale {

// Edges claim their picked vertices by position; the smallest position, the first appearance, wins.
// Each chunk counts its winning claims, a prefix sum over the chunks gives the chunk's first new
// id, and every edge finds the id of its vertex by the winning position. Each step requires that
// the previous one has finished on all chunks.
template <typename Vertex>
class RelabelAtOnce {
 public:
  static constexpr int64_t kMaxGrain = 1 << 11;

  // Starts a hop of edges to `picked`, in chunks of `grain` edges (a power of two up to kMaxGrain),
  // whose local ids are written to `local`. The map must have reserved capacity for the edges.
  // `vertices` have local ids already.
  void start(RelabelMap<Vertex>& map, const Vertex* vertices, const Vertex* picked,
             int64_t num_edges, int64_t grain, int32_t* local) {
    map_ = &map;
    claims_ = {map.numbering(), vertices, picked};
    num_edges_ = num_edges;
    shift_ = std::countr_zero(static_cast<uint64_t>(grain));
    local_ = local;
    ranks_.reserve(num_edges);
    winners_.reserve(num_edges);
    map.visit([&](auto& table) {
      if (table.kHasSlots) slots_.reserve(num_edges);
    });
    first_ids_.assign(num_chunks(), 0);
    num_new_.assign(num_chunks(), 0);
    map.claiming(num_edges);
  }

  int64_t num_chunks() const { return (num_edges_ + (int64_t{1} << shift_) - 1) >> shift_; }

  // Claims vertices for any range of picked edges; picking has prefetched their table entries.
  void claim(int64_t first, int64_t last) {
    map_->visit([&](auto& table) {
      for (int64_t edge = first; edge < last; ++edge) local_[edge] = table.claim(claims_, edge);
    });
  }

  // Writes to `local` the ids of vertices that have one, otherwise the complement (a negative
  // number) of the winning position.
  void count(int64_t chunk) {
    map_->visit([&](auto& table) { num_new_[chunk] = count_in(table, chunk); });
  }

  // Computes the first new id of each chunk. Returns the number of new vertices.
  int64_t place() {
    std::exclusive_scan(num_new_.begin(), num_new_.end(), first_ids_.begin(),
                        static_cast<int32_t>(claims_.numbering.size()));
    const auto num_new = std::accumulate(num_new_.begin(), num_new_.end(), int64_t{0});
    map_->claimed(num_new);
    return num_new;
  }

  // Writes the new vertices of a chunk to `vertices`, by id, and the local ids of its edges. With
  // `settles`, later hops find the vertices in the map.
  void number(int64_t chunk, Vertex* vertices, bool settles) {
    const int64_t first = chunk << shift_;
    const int32_t first_id = first_ids_[chunk];
    for (int32_t i = 0; i < num_new_[chunk]; ++i) {
      vertices[first_id + i] = claims_.picked[first + winners_.data()[first + i]];
    }
    if (settles) {
      map_->visit([&](auto& table) {
        for (int32_t i = 0; i < num_new_[chunk]; ++i) {
          const int64_t slot = table.kHasSlots ? slots_.data()[first + i] : 0;
          table.settle(vertices[first_id + i], slot,
                       claims_.numbering.base + static_cast<uint32_t>(first_id + i));
        }
      });
    }
    const int64_t last = std::min(num_edges_, first + (int64_t{1} << shift_));
    const uint16_t* ranks = ranks_.data();
    for (int64_t edge = first; edge < last; ++edge) {
      // Whether the vertex is new is unpredictable: no branch.
      const int32_t id = local_[edge], holder = id < 0 ? ~id : 0;
      const int32_t new_id = first_ids_[holder >> shift_] + ranks[holder];
      local_[edge] = id < 0 ? new_id : id;
    }
  }

 private:
  static constexpr int64_t kDistance = 48;

  template <typename Table>
  int32_t count_in(const Table& table, int64_t chunk) {
    const int64_t first = chunk << shift_;
    const int64_t last = std::min(num_edges_, first + (int64_t{1} << shift_));
    const Numbering numbering = claims_.numbering;
    const auto num_known = static_cast<uint32_t>(numbering.size());
    const Vertex* picked = claims_.picked;
    int32_t* local = local_;
    uint16_t *ranks = ranks_.data(), *winners = winners_.data() + first;
    uint32_t num_new = 0;
    for (int64_t edge = first; edge < last; ++edge) {
      const int64_t later_edge = std::min(edge + kDistance, last - 1);
      table.prefetch_slot(picked[later_edge], local[later_edge]);
      const int32_t slot = local[edge];
      const uint32_t id = table.stamp(picked[edge], slot) - numbering.base;
      const uint32_t holder = id - num_known;
      local[edge] = static_cast<int32_t>(id < num_known ? id : ~holder);
      ranks[edge] = static_cast<uint16_t>(num_new);
      winners[num_new] = static_cast<uint16_t>(edge - first);
      if constexpr (Table::kHasSlots) slots_.data()[first + num_new] = slot;
      num_new += id >= num_known && holder == static_cast<uint32_t>(edge);
    }
    return static_cast<int32_t>(num_new);
  }

  RelabelMap<Vertex>* map_ = nullptr;
  Claims<Vertex> claims_{};
  int64_t num_edges_ = 0;
  int shift_ = 0;
  int32_t* local_ = nullptr;
  Scratch<uint16_t> ranks_;  // [num_edges] winning claims of the chunk before the edge
  // [num_edges] of the edges with winning claims: offset in the chunk, and slot.
  Scratch<uint16_t> winners_;
  Scratch<int32_t> slots_;
  std::vector<int32_t> num_new_, first_ids_;
};

}  // namespace gnnscale
