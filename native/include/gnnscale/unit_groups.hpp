// Local ids of the units of trees whose vertices have the bounds of their seeds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/relabel.hpp"

namespace gnnscale {

// Local ids of the units of one vertex type in a batch, in order of first appearance. Units of
// equal bounds are a group with a hash table of its own. The edges of a hop come group by group, if
// seeds of equal bounds are neighbors, so that the tables of large batches stay in the cache.
//
// Entries are stamps as in relabel.hpp, confirmed by the vertices of their ids.
template <typename Vertex>
class UnitGroups {
 public:
  // Starts a batch without units.
  void start(int64_t num_groups) {
    tables_.assign(num_groups, {});
    numbering_.base = numbering_.next;
  }

  int64_t size() const { return numbering_.size(); }
  // [size] group of each unit, by id.
  const int32_t* groups() const { return groups_.data(); }

  // Reserves capacity for `num_more[g]` inserts into group g. `vertices` are those of the units.
  void reserve(const std::vector<int64_t>& num_more, const Vertex* vertices) {
    std::vector<int64_t> counts = num_more;
    for (int64_t id = 0; id < size(); ++id) ++counts[groups()[id]];
    int64_t count = 0, num_slots = 0;
    bool fits = true;
    for (size_t g = 0; g < counts.size(); ++g) {
      count += counts[g];
      num_slots += slots_for(counts[g]);
      fits = fits && slots_for(counts[g]) <= tables_[g].size;
    }
    groups_.reserve(count + 1, size());
    // Stamps of the batch so far, of its units in new tables, and of those to come.
    const int64_t last_stamp = int64_t{numbering_.next} + count;
    if (fits && last_stamp <= kMaxStamp) return;
    lay_out(counts, num_slots, last_stamp > kMaxStamp, vertices);
  }

  // Returns where the stamp of a vertex is looked for first, in the table of a group.
  int64_t slot(int32_t group, Vertex vertex) const {
    const Table& table = tables_[group];
    const uint64_t hash = static_cast<uint64_t>(vertex) * kGolden >> 32;
    return table.first + static_cast<int64_t>(hash * static_cast<uint64_t>(table.size) >> 32);
  }
  void prefetch(int64_t slot) const { __builtin_prefetch(&stamps_->data()[slot], 1, 2); }

  // Writes the local ids of `n` units of a group, given their slots; a new unit gets the next id,
  // and its vertex is written to `known[id]`. Capacity for `n` more units must have been reserved.
  void insert(int32_t group, const Vertex* units, const int64_t* slots, int64_t n, Vertex* known,
              int32_t* ids) {
    // Copies, which writes to arrays cannot change.
    uint32_t* const stamps = stamps_->data();
    int32_t* const groups = groups_.data();
    const Table table = tables_[group];
    Numbering numbering = numbering_;
    for (int64_t i = 0; i < n; ++i) {
      int64_t slot = slots[i], id;
      for (;; slot = table.after(slot)) {
        id = int64_t{stamps[slot]} - numbering.base;
        if (id < 0 || known[id] == units[i]) break;
      }
      if (id < 0) {
        id = numbering.size();
        known[id] = units[i];
        groups[id] = group;
        stamps[slot] = numbering.next++;
      }
      ids[i] = static_cast<int32_t>(id);
    }
    numbering_ = numbering;
  }

 private:
  static constexpr int64_t kMaxStamp = std::numeric_limits<uint32_t>::max();

  // Slots of a group among the stamps.
  struct Table {
    int64_t first = 0, size = 0;

    int64_t after(int64_t slot) const { return ++slot == first + size ? first : slot; }
  };

  // Number of slots for `count` units at a load of at most one half.
  static int64_t slots_for(int64_t count) { return 6 * count; }

  // Gives each group a table for its count of units, and enters those of the batch anew. With
  // `restarts`, stamps begin at 1 again.
  void lay_out(const std::vector<int64_t>& counts, int64_t num_slots, bool restarts,
               const Vertex* vertices) {
    const int64_t num_units = size();
    if (num_slots > num_slots_) {
      num_slots_ = num_slots + num_slots / 4;
      stamps_ = std::make_unique<HugeArray<uint32_t>>(num_slots_);
    } else if (restarts) {
      std::memset(stamps_->data(), 0, num_slots_ * sizeof(uint32_t));
    }
    numbering_.base = restarts ? 1 : numbering_.next;
    numbering_.next = numbering_.base;
    int64_t first = 0;
    for (size_t g = 0; g < counts.size(); ++g) {
      const int64_t size = slots_for(counts[g]);
      tables_[g] = {first, size};
      first += size;
    }
    for (int64_t id = 0; id < num_units; ++id) {
      const int32_t group = groups()[id];
      int64_t at = slot(group, vertices[id]);
      while (stamps_->data()[at] >= numbering_.base) at = tables_[group].after(at);
      stamps_->data()[at] = numbering_.next++;
    }
  }

  Numbering numbering_;
  std::vector<Table> tables_;
  Scratch<int32_t> groups_;
  int64_t num_slots_ = 0;
  std::unique_ptr<HugeArray<uint32_t>> stamps_;
};

}  // namespace gnnscale
