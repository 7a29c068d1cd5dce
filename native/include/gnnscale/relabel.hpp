// Relabels global vertex ids to contiguous local ids, in order of first appearance.
//
// Tables hold a 32-bit stamp for each vertex. A batch counts its stamps from a base: base + id for
// a vertex with a local id and, during parallel relabeling of a hop, base + number of ids +
// position for a vertex claimed by an edge. The smaller of two stamps of a batch wins. Stamps below
// the base belong to earlier batches and mean "empty". A new batch moves the base past all used
// stamps, so tables are cleared only once in 2^32 stamps.
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
  uint32_t next = 1;  // stamp of the next local id

  int64_t size() const { return next - base; }

  // Returns the current stamp of a vertex with stamp `stamp`, or the next stamp if `stamp` is of an
  // earlier batch. The branch would be unpredictable, so there is none, and callers write to memory
  // in both cases.
  uint32_t given(uint32_t stamp) {
    const uint32_t is_new = stamp < base;
    const uint32_t now = stamp ^ ((stamp ^ next) & (0 - is_new));
    next += is_new;
    return now;
  }
};

// Edges of a hop for parallel relabeling: edge e claims picked[e] by its position e.
template <typename Vertex>
struct Claims {
  Numbering numbering;     // before the hop
  const Vertex* vertices;  // vertices with ids, in the order of ids
  const Vertex* picked;

  uint32_t stamp(int64_t position) const {
    return numbering.next + static_cast<uint32_t>(position);
  }
  Vertex holder(uint32_t stamp) const {
    return stamp < numbering.next ? vertices[stamp - numbering.base]
                                  : picked[stamp - numbering.next];
  }
};

// Dense table: a stamp for each vertex of the graph, one cache line a look-up.
template <typename Vertex>
class DenseTable {
 public:
  static constexpr bool kHasSlots = false;

  // For vertices `first` to `first + num_vertices - 1`.
  explicit DenseTable(int64_t num_vertices, int64_t first = 0)
      : num_bytes_(num_vertices * 4),
        stamps_(num_vertices),
        origin_(reinterpret_cast<uint32_t*>(reinterpret_cast<uintptr_t>(stamps_.data()) -
                                            4 * static_cast<uintptr_t>(first))) {}

  void clear() { std::memset(stamps_.data(), 0, num_bytes_); }
  void prefetch(Vertex vertex) const { __builtin_prefetch(&origin_[vertex], 1, 2); }
  // Where the stamp of vertex 0 is or would be.
  const void* data() const { return origin_; }

  // As RelabelMap::insert.
  int32_t insert(Numbering& numbering, Vertex vertex, Vertex* vertices) {
    uint32_t& stamp = origin_[vertex];
    vertices[numbering.next - numbering.base] = vertex;
    stamp = numbering.given(stamp);
    return static_cast<int32_t>(stamp - numbering.base);
  }

  // Claims the vertex of an edge, from any thread. Returns its slot for later look-ups; a dense
  // table has no slots and returns 0.
  int32_t claim(const Claims<Vertex>& claims, int64_t position) {
    const uint32_t base = claims.numbering.base, claim_stamp = claims.stamp(position);
    const std::atomic_ref<uint32_t> entry(origin_[claims.picked[position]]);
    uint32_t current = entry.load(std::memory_order_relaxed);
    // Unsigned: stamps below the base compare as larger than all stamps of the batch.
    while (current - base > claim_stamp - base &&
           !entry.compare_exchange_weak(current, claim_stamp, std::memory_order_relaxed)) {
    }
    return 0;
  }
  // Table entry of a vertex, by vertex and slot.
  void prefetch_slot(Vertex vertex, int32_t /*slot*/) const { prefetch(vertex); }
  uint32_t stamp(Vertex vertex, int32_t /*slot*/) const { return origin_[vertex]; }
  void settle(Vertex vertex, int64_t /*slot*/, uint32_t stamp) { origin_[vertex] = stamp; }

 private:
  int64_t num_bytes_;
  HugeArray<uint32_t> stamps_;
  uint32_t* origin_;  // of vertex 0, before the table if it begins with a later vertex
};

// Hash table with linear probing, sized for a batch. An entry is a stamp and the lower half of its
// vertex; a 64-bit id is confirmed by the vertex of the stamp.
template <typename Vertex>
class HashTable {
 public:
  static constexpr bool kHasSlots = true;

  // Returns the number of slots for `count` vertices at a load of at most one half.
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
  // Shift of a vertex's hash that leaves the index of its first slot.
  int shift() const { return shift_; }

  // As RelabelMap::insert.
  int32_t insert(Numbering& numbering, Vertex vertex, Vertex* vertices) {
    int64_t slot = home(vertex);
    uint32_t stamp;
    for (;; slot = (slot + 1) & mask_) {
      const uint64_t entry = entries_.data()[slot];
      stamp = stamp_of(entry);
      // All ones if the entry is empty. One combined branch, since each single condition is
      // unpredictable.
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
    const uint32_t base = claims.numbering.base, claim_stamp = claims.stamp(position);
    const Vertex vertex = claims.picked[position];
    for (int64_t slot = home(vertex);; slot = (slot + 1) & mask_) {
      const std::atomic_ref<uint64_t> entry(entries_.data()[slot]);
      uint64_t current = entry.load(std::memory_order_acquire);
      while (stamp_of(current) < base || is_of(claims, current, vertex)) {
        if (stamp_of(current) - base <= claim_stamp - base ||
            entry.compare_exchange_weak(current, entry_of(claim_stamp, vertex),
                                        std::memory_order_acq_rel, std::memory_order_acquire)) {
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

// Relabeling map: a dense table if it fits into the cache or is smaller, otherwise a hash table.
template <typename Vertex>
class RelabelMap {
 public:
  // A dense table has at most `dense_bytes`, unless a batch's hash table would be larger.
  // `first_stamp` is above 0 and only affects when tables are cleared. Ids begin with `first`.
  RelabelMap(int64_t num_vertices, int64_t dense_bytes, uint32_t first_stamp = 1, int64_t first = 0)
      : num_vertices_(num_vertices),
        first_(first),
        numbering_{first_stamp, first_stamp},
        end_(first_stamp) {
    if (num_vertices <= dense_bytes / 4) {
      dense_ = std::make_unique<DenseTable<Vertex>>(num_vertices, first);
    } else {
      hash_ = std::make_unique<HashTable<Vertex>>(HashTable<Vertex>::slots_for(0));
    }
  }

  // Starts a new batch without ids.
  void start() { numbering_.base = numbering_.next = end_ = std::max(end_, numbering_.next); }

  // Reserves capacity for `num_more` inserts or claims. `vertices` are those with ids.
  void reserve(int64_t num_more, Vertex* vertices) {
    const int64_t max_size = size() + num_more;
    // Ids and edges number at most kMaxLocal each, so one clearing is enough.
    const bool is_last = max_size > std::numeric_limits<uint32_t>::max() - int64_t{numbering_.base};
    if (is_last) {
      visit([](auto& table) { table.clear(); });
      numbering_ = {1, static_cast<uint32_t>(1 + size())};
      end_ = numbering_.next;
    }
    if (grow(std::min(max_size, num_vertices_)) || is_last) {
      visit([&](auto& table) { put_all(table, vertices); });
    }
  }

  // Calls `use` with the current table, which is valid until the next reserve.
  template <typename Use>
  decltype(auto) visit(Use&& use) {
    return dense_ ? use(*dense_) : use(*hash_);
  }

  const DenseTable<Vertex>* dense() const { return dense_.get(); }
  const HashTable<Vertex>* hash() const { return hash_.get(); }

  // Returns the local id of `vertex`; a new vertex gets the next id and is written to
  // `vertices[id]`. Capacity for one more vertex must have been reserved.
  int32_t insert(Vertex vertex, Vertex* vertices) {
    return visit([&](auto& table) { return table.insert(numbering_, vertex, vertices); });
  }

  int64_t size() const { return numbering_.size(); }
  const Numbering& numbering() const { return numbering_; }

  // Takes over the numbering after inserts directly into a table.
  void inserted(const Numbering& numbering) { numbering_ = numbering; }
  // Reserves the stamps of `num_edges` claims made directly in a table.
  void claiming(int64_t num_edges) { end_ = numbering_.next + static_cast<uint32_t>(num_edges); }
  void claimed(int64_t num_new) { numbering_.next += static_cast<uint32_t>(num_new); }

 private:
  // Grows the table for `count` vertices. Returns whether the table was replaced.
  bool grow(int64_t count) {
    if (dense_) return false;
    const int64_t num_slots = HashTable<Vertex>::slots_for(count);
    if (num_slots <= hash_->num_slots()) return false;
    if (num_slots >= num_vertices_ / 2) {
      dense_ = std::make_unique<DenseTable<Vertex>>(num_vertices_, first_);
      hash_ = nullptr;
    } else {
      hash_ = std::make_unique<HashTable<Vertex>>(num_slots);
    }
    return true;
  }

  template <typename Table>
  void put_all(Table& table, Vertex* vertices) {
    Numbering numbering{numbering_.base, numbering_.base};
    // Rewrites every vertex to its own index.
    for (int64_t id = 0; id < size(); ++id) table.insert(numbering, vertices[id], vertices);
  }

  int64_t num_vertices_, first_;
  Numbering numbering_;
  uint32_t end_;  // end of the batch's stamps
  std::unique_ptr<DenseTable<Vertex>> dense_;
  std::unique_ptr<HashTable<Vertex>> hash_;
};

}  // namespace gnnscale
