// Units of timed sampling: vertices as of a cut-off, and their local ids in a batch.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/prefetch.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/relabel.hpp"
#include "gnnscale/time_lists.hpp"

namespace gnnscale {

// Time bound of a hop's sources: the cut-off of their destination, the time of the edge as cut-off,
// the cut-off of their destination and the time of the edge as the time since which edges count, or
// none, for a last hop, whose sources are vertices.
enum class Handed : uint8_t { cutoff, edge_time, since, none };

// Edges that a vertex may reach as of a cut-off c: those of time t <= c, or t < c if `strict`. A
// window w also needs t > c - w, or t >= c - w if `strict`. Lists without times have no bounds.
struct TimeRule {
  // [num_edges] ascending in each list, or kNoTime in all of a list; any values in a damaged store
  const int64_t* times;
  Handed handed = Handed::cutoff;
  bool strict = false;
  int64_t window = 0;                // 0: unlimited
  bool last = false;                 // takes the newest edges, without draws
  bool disjoint = false;             // each seed has a tree of its own
  const TimeIndex* index = nullptr;  // of the times; null: none
};

// Bounds of a unit, a vertex as of a time, and the number of its tree.
struct AsOf {
  int64_t cutoff;
  int64_t since = kNoTime;
  int32_t tree = 0;

  uint64_t hash() const {
    const uint64_t word = combine(static_cast<uint64_t>(cutoff), static_cast<uint64_t>(tree));
    return since == kNoTime ? word : combine(word, static_cast<uint64_t>(since));
  }
};

// Local ids of the units of one vertex type in a batch, in order of first appearance: a hash table
// with linear probing, whose entries are a stamp as in relabel.hpp and half of the unit's hash.
// Equal halves are confirmed by the units, so ids are exact.
template <typename Vertex>
class UnitMap {
 public:
  // Starts a batch without units. Units have cut-offs, and others only if the rule uses them.
  void start(bool has_sinces, bool has_trees) {
    numbering_.base = numbering_.next;
    has_sinces_ = has_sinces;
    has_trees_ = has_trees;
  }

  int64_t size() const { return numbering_.size(); }

  // Reserves capacity for `num_more` inserts. `vertices` are those of the units.
  void reserve(int64_t num_more, const Vertex* vertices) {
    const int64_t count = size() + num_more;
    cutoffs_.reserve(count + 1, size());
    if (has_sinces_) sinces_.reserve(count + 1, size());
    if (has_trees_) trees_.reserve(count + 1, size());
    // Ids and edges number at most kMaxLocal each, so one clearing is enough.
    const bool is_last = count > std::numeric_limits<uint32_t>::max() - int64_t{numbering_.base};
    // A quarter of the slots is used at most: few units find their first slot taken.
    const int64_t num_slots = HashTable<Vertex>::slots_for(2 * count);
    if (is_last) numbering_ = {1, static_cast<uint32_t>(1 + size())};
    if (num_slots > num_slots_) {
      entries_ = std::make_unique<HugeArray<uint64_t>>(num_slots);
      num_slots_ = num_slots;
      shift_ = 64 - std::countr_zero(static_cast<uint64_t>(num_slots));
    } else if (is_last) {
      std::memset(entries_->data(), 0, num_slots_ * sizeof(uint64_t));
    } else {
      return;
    }
    for (int64_t id = 0; id < size(); ++id) put(hash(vertices[id], as_of(id).hash()), id);
  }

  AsOf as_of(int64_t id) const {
    return {cutoffs_.data()[id], has_sinces_ ? sinces_.data()[id] : kNoTime,
            has_trees_ ? trees_.data()[id] : 0};
  }
  // [size] of the units, by id.
  const int64_t* cutoffs() const { return cutoffs_.data(); }
  const int32_t* trees() const { return trees_.data(); }

  // Returns the hash of a unit, from its vertex and the hash of its bounds.
  static uint64_t hash(Vertex vertex, uint64_t as_of) {
    return (as_of + static_cast<uint64_t>(vertex)) * kGolden;
  }
  void prefetch(uint64_t hash) const {
    __builtin_prefetch(&entries_->data()[hash >> shift_], 1, 2);
  }
  // Prefetches the unit in the first entry of a hash, which is prefetched, if it may be the unit of
  // the hash.
  void prefetch_unit(uint64_t hash, const Vertex* vertices) const {
    const uint64_t entry = entries_->data()[hash >> shift_];
    const uint32_t id = stamp_of(entry) - numbering_.base;
    // One branch: it is rarely taken where most units are new, and usually where few are.
    if (static_cast<uint32_t>(id < numbering_.size()) &
        static_cast<uint32_t>(static_cast<uint32_t>(entry) == static_cast<uint32_t>(hash))) {
      gnnscale::prefetch(&vertices[id]);
      gnnscale::prefetch(&cutoffs_.data()[id]);
    }
  }

  // Returns the local id of a unit; a new unit gets the next id, and its vertex is written to
  // `vertices[id]`. Capacity for one more unit must have been reserved.
  int32_t insert(uint64_t hash, Vertex vertex, const AsOf& as_of, Vertex* vertices) {
    uint64_t* const entries = entries_->data();
    const auto mask = static_cast<uint64_t>(num_slots_ - 1);
    const auto tag = static_cast<uint32_t>(hash);
    uint64_t slot = hash >> shift_;
    for (;; slot = (slot + 1) & mask) {
      const uint64_t entry = entries[slot];
      const uint32_t stamp = stamp_of(entry);
      if (stamp < numbering_.base) break;
      const uint32_t id = stamp - numbering_.base;
      if (static_cast<uint32_t>(entry) == tag && vertices[id] == vertex && is(id, as_of)) {
        return static_cast<int32_t>(id);
      }
    }
    const int64_t id = size();
    vertices[id] = vertex;
    cutoffs_.data()[id] = as_of.cutoff;
    if (has_more()) {
      if (has_sinces_) sinces_.data()[id] = as_of.since;
      if (has_trees_) trees_.data()[id] = as_of.tree;
    }
    entries[slot] = uint64_t{numbering_.next++} << 32 | tag;
    return static_cast<int32_t>(id);
  }

 private:
  bool has_more() const { return has_sinces_ || has_trees_; }
  static uint32_t stamp_of(uint64_t entry) { return static_cast<uint32_t>(entry >> 32); }

  bool is(int64_t id, const AsOf& as_of) const {
    return cutoffs_.data()[id] == as_of.cutoff &&
           (!has_sinces_ || sinces_.data()[id] == as_of.since) &&
           (!has_trees_ || trees_.data()[id] == as_of.tree);
  }

  // Writes the entry of a unit that the table lacks.
  void put(uint64_t hash, int64_t id) {
    const auto mask = static_cast<uint64_t>(num_slots_ - 1);
    uint64_t slot = hash >> shift_;
    while (stamp_of(entries_->data()[slot]) >= numbering_.base) slot = (slot + 1) & mask;
    entries_->data()[slot] =
        uint64_t{numbering_.base + static_cast<uint32_t>(id)} << 32 | static_cast<uint32_t>(hash);
  }

  Numbering numbering_;
  bool has_sinces_ = false, has_trees_ = false;
  int64_t num_slots_ = 0;
  int shift_ = 63;
  std::unique_ptr<HugeArray<uint64_t>> entries_;
  Scratch<int64_t> cutoffs_, sinces_;
  Scratch<int32_t> trees_;
};

}  // namespace gnnscale
