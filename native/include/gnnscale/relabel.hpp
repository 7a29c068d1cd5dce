// Global vertex ids → contiguous local ids, in order of first appearance.
//
// Tables hold a stamp of 32 bits for a vertex. Stamps of a batch are counted from its base: base +
// id for a vertex that has a local id and, while a hop is relabelled by several threads at once,
// base + number of ids + position for one that is claimed by an edge. So of two stamps of a batch
// the smaller one holds, and what is below the base is left over from earlier batches: empty.
// Starting a batch moves the base past all stamps handed out, so nothing is cleared but once in
// 2^32 stamps.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "gnnscale/limits.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {

struct Numbering {
  uint32_t base = 1;  // stamp of local id 0
  uint32_t next = 1;  // of the next local id

  int64_t size() const { return next - base; }

  // The stamp of a vertex that had `stamp`: the next one if that was of an earlier batch. Which of
  // the two is a coin flip that no branch predictor can guess, so there is no branch, and those who
  // ask write to memory in both cases.
  uint32_t given(uint32_t stamp) {
    const uint32_t is_new = stamp < base;
    const uint32_t now = stamp ^ ((stamp ^ next) & (0 - is_new));
    next += is_new;
    return now;
  }
};

// The edges of a hop that is relabelled at once: edge e claims picked[e] by the position e.
template <typename Vertex>
struct Claims {
  Numbering numbering;     // before the hop
  const Vertex* vertices;  // that have ids, in their order
  const Vertex* picked;

  uint32_t stamp(int64_t position) const {
    return numbering.next + static_cast<uint32_t>(position);
  }
  Vertex holder(uint32_t stamp) const {
    return stamp < numbering.next ? vertices[stamp - numbering.base]
                                  : picked[stamp - numbering.next];
  }
};

// A stamp for each vertex of the graph: a look-up touches one cache line.
template <typename Vertex>
class DenseTable {
 public:
  static constexpr bool kHasSlots = false;

  explicit DenseTable(int64_t num_vertices) : num_bytes_(num_vertices * 4), stamps_(num_vertices) {}

  void clear() { std::memset(stamps_.data(), 0, num_bytes_); }
  void prefetch(Vertex vertex) const { __builtin_prefetch(&stamps_.data()[vertex], 1, 2); }
  const void* data() const { return stamps_.data(); }

  // See RelabelMap::insert.
  int32_t insert(Numbering& numbering, Vertex vertex, Vertex* vertices) {
    uint32_t& stamp = stamps_.data()[vertex];
    vertices[numbering.next - numbering.base] = vertex;
    stamp = numbering.given(stamp);
    return static_cast<int32_t>(stamp - numbering.base);
  }

  // Claims the vertex of an edge, from any thread. Returns the slot, by which it is found
  // later; none in a dense table.
  int32_t claim(const Claims<Vertex>& claims, int64_t position) {
    const uint32_t base = claims.numbering.base, mine = claims.stamp(position);
    const std::atomic_ref<uint32_t> entry(stamps_.data()[claims.picked[position]]);
    uint32_t held = entry.load(std::memory_order_relaxed);
    // Without sign: what is below the base is beyond all others.
    while (held - base > mine - base &&
           !entry.compare_exchange_weak(held, mine, std::memory_order_relaxed)) {
    }
    return 0;
  }
  // What follows is of the vertex and of its slot.
  void prefetch_slot(Vertex vertex, int32_t /*slot*/) const { prefetch(vertex); }
  uint32_t stamp(Vertex vertex, int32_t /*slot*/) const { return stamps_.data()[vertex]; }
  void settle(Vertex vertex, int64_t /*slot*/, uint32_t stamp) { stamps_.data()[vertex] = stamp; }

 private:
  int64_t num_bytes_;
  HugeArray<uint32_t> stamps_;
};

// Open addressing with linear probing, of the size of a batch: an entry is a stamp and the low half
// of its vertex, from which a wide id is told by looking at the vertex that has the stamp.
template <typename Vertex>
class HashTable {
 public:
  static constexpr bool kHasSlots = true;

  // Slots for `count` vertices, which fill half of them at most.
  static int64_t slots_for(int64_t count) {
    return static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max(2 * count, kMinSlots))));
  }

  explicit HashTable(int64_t num_slots)
      : mask_(num_slots - 1),
        shift_(64 - std::countr_zero(static_cast<uint64_t>(num_slots))),
        entries_(num_slots) {}

  int64_t num_slots() const { return mask_ + 1; }
  void clear() { std::memset(entries_.data(), 0, num_slots() * sizeof(uint64_t)); }
  void prefetch(Vertex vertex) const { __builtin_prefetch(&entries_.data()[home(vertex)], 1, 2); }
  const void* data() const { return entries_.data(); }
  // Of the hash of a vertex: what is left over it is the slot that is looked at first.
  int shift() const { return shift_; }

  // See RelabelMap::insert.
  int32_t insert(Numbering& numbering, Vertex vertex, Vertex* vertices) {
    int64_t slot = home(vertex);
    uint32_t stamp;
    for (;; slot = (slot + 1) & mask_) {
      const uint64_t entry = entries_.data()[slot];
      stamp = stamp_of(entry);
      // One branch, since which of the two it is cannot be predicted either: all ones where the
      // entry is empty.
      const auto empty = static_cast<uint32_t>((uint64_t{stamp} - numbering.base) >> 32);
      if (((static_cast<uint32_t>(entry) ^ tag(vertex)) & ~empty) != 0) continue;
      if (is_narrow || empty != 0 || vertices[stamp - numbering.base] == vertex) break;
    }
    vertices[numbering.next - numbering.base] = vertex;
    stamp = numbering.given(stamp);
    entries_.data()[slot] = entry_of(stamp, vertex);
    return static_cast<int32_t>(stamp - numbering.base);
  }

  int32_t claim(const Claims<Vertex>& claims, int64_t position) {
    const uint32_t base = claims.numbering.base, mine = claims.stamp(position);
    const Vertex vertex = claims.picked[position];
    for (int64_t slot = home(vertex);; slot = (slot + 1) & mask_) {
      const std::atomic_ref<uint64_t> entry(entries_.data()[slot]);
      uint64_t held = entry.load(std::memory_order_acquire);
      while (stamp_of(held) < base || is_of(claims, held, vertex)) {
        if (stamp_of(held) - base <= mine - base ||
            entry.compare_exchange_weak(held, entry_of(mine, vertex), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
          return static_cast<int32_t>(slot);
        }
      }
    }
  }
  void prefetch_slot(Vertex /*vertex*/, int32_t slot) const {
    __builtin_prefetch(&entries_.data()[slot], 1, 2);
  }
  uint32_t stamp(Vertex /*vertex*/, int32_t slot) const { return stamp_of(entries_.data()[slot]); }
  void settle(Vertex vertex, int64_t slot, uint32_t stamp) {
    entries_.data()[slot] = entry_of(stamp, vertex);
  }

 private:
  static constexpr bool is_narrow = sizeof(Vertex) == sizeof(uint32_t);
  static constexpr int64_t kMinSlots = 1 << 18;  // a large page

  static uint32_t tag(Vertex vertex) { return static_cast<uint32_t>(vertex); }
  static uint32_t stamp_of(uint64_t entry) { return static_cast<uint32_t>(entry >> 32); }
  static uint64_t entry_of(uint32_t stamp, Vertex vertex) {
    return uint64_t{stamp} << 32 | tag(vertex);
  }
  static bool is_of(const Claims<Vertex>& claims, uint64_t entry, Vertex vertex) {
    return static_cast<uint32_t>(entry) == tag(vertex) &&
           (is_narrow || claims.holder(stamp_of(entry)) == vertex);
  }
  int64_t home(Vertex vertex) const {
    return static_cast<int64_t>(static_cast<uint64_t>(vertex) * kGolden >> shift_);
  }

  int64_t mask_;
  int shift_;
  HugeArray<uint64_t> entries_;
};

// A dense table where it stays in the cache or is the smaller one, else a hash table.
template <typename Vertex>
class RelabelMap {
 public:
  // A dense table takes `dense_bytes` at most, unless a batch needs as much. `first_stamp` is above
  // 0, and only how soon the tables are cleared depends on it.
  RelabelMap(int64_t num_vertices, int64_t dense_bytes, uint32_t first_stamp = 1)
      : num_vertices_(num_vertices), numbering_{first_stamp, first_stamp}, end_(first_stamp) {
    if (num_vertices <= dense_bytes / 4) {
      dense_ = std::make_unique<DenseTable<Vertex>>(num_vertices);
    } else {
      hash_ = std::make_unique<HashTable<Vertex>>(HashTable<Vertex>::slots_for(0));
    }
  }

  // Forgets all ids.
  void start() { numbering_.base = numbering_.next = end_ = std::max(end_, numbering_.next); }

  // Makes room for `num_more` inserts or claims. `vertices` are those that have ids.
  void reserve(int64_t num_more, Vertex* vertices) {
    const int64_t most = size() + num_more;
    // Neither ids nor edges are more than kMaxLocal, so one clearing is enough.
    const bool is_last = most > std::numeric_limits<uint32_t>::max() - int64_t{numbering_.base};
    if (is_last) {
      visit([](auto& table) { table.clear(); });
      numbering_ = {1, static_cast<uint32_t>(1 + size())};
      end_ = numbering_.next;
    }
    if (grow(std::min(most, num_vertices_)) || is_last) {
      visit([&](auto& table) { put_all(table, vertices); });
    }
  }

  // Calls `use` with the table that is in use until the next reserve.
  template <typename Use>
  decltype(auto) visit(Use&& use) {
    return dense_ ? use(*dense_) : use(*hash_);
  }

  const DenseTable<Vertex>* dense() const { return dense_.get(); }
  const HashTable<Vertex>* hash() const { return hash_.get(); }

  // Local id of `vertex`; a vertex not seen in this batch gets the next id and is written to
  // `vertices[id]`. There must be room for one more than there are.
  int32_t insert(Vertex vertex, Vertex* vertices) {
    return visit([&](auto& table) { return table.insert(numbering_, vertex, vertices); });
  }

  int64_t size() const { return numbering_.size(); }
  const Numbering& numbering() const { return numbering_; }

  // After inserts by way of a table: what it counted.
  void inserted(const Numbering& numbering) { numbering_ = numbering; }
  // Before claims of `num_edges` edges by way of a table, and after it has been told their ids.
  void claiming(int64_t num_edges) { end_ = numbering_.next + static_cast<uint32_t>(num_edges); }
  void claimed(int64_t num_new) { numbering_.next += static_cast<uint32_t>(num_new); }

 private:
  // Returns whether the table is another one.
  bool grow(int64_t count) {
    if (dense_) return false;
    const int64_t num_slots = HashTable<Vertex>::slots_for(count);
    if (num_slots <= hash_->num_slots()) return false;
    if (num_slots >= num_vertices_ / 2) {
      dense_ = std::make_unique<DenseTable<Vertex>>(num_vertices_);
      hash_ = nullptr;
    } else {
      hash_ = std::make_unique<HashTable<Vertex>>(num_slots);
    }
    return true;
  }

  template <typename Table>
  void put_all(Table& table, Vertex* vertices) {
    Numbering numbering{numbering_.base, numbering_.base};
    // Every vertex is written to where it is.
    for (int64_t id = 0; id < size(); ++id) table.insert(numbering, vertices[id], vertices);
  }

  int64_t num_vertices_;
  Numbering numbering_;
  uint32_t end_;  // of all stamps of the batch
  std::unique_ptr<DenseTable<Vertex>> dense_;
  std::unique_ptr<HashTable<Vertex>> hash_;
};

}  // namespace gnnscale
