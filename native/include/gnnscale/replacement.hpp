// Replacement policy of a device's dynamic cache when the next batches are known.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gnnscale/idle_rows.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Slots of a served batch's rows, and the cache updates that follow: row `positions[k]` of the
// batch is copied to slot `slots[k]`.
struct Replaced {
  int64_t num_hits = 0, num_previous = 0, num_misses = 0;
  Array<int32_t> positions, slots;
};

// Belady's MIN with bypass, batch by batch: of the cached rows and the batch's rows, the cache
// keeps the rows with the nearest next use. Ties, and rows without a use in the known batches, are
// ordered by descending priority, then ascending vertex.
//
// With `match` a batch's rows stay on the device until the next batch has been served (FastGL,
// Match). Rows read by both batches need no slot in between, and get one only if it is free.
//
// Slots 0 to capacity - 1 are the cache's; slot capacity + i is row i of the previous batch. The
// time of a step depends on the batch's rows, not on the capacity. Not thread-safe.
class Replacement {
 public:
  // `priority` [num_vertices] must outlive the object. Its values may change, since they only
  // affect the order.
  Replacement(const int32_t* priority, int64_t num_vertices, int64_t capacity, bool match);

  // Appends a batch. Throws invalid_argument, and changes nothing, if `vertices` has an id that is
  // no vertex or a vertex twice.
  void expect(const RowIds& vertices, int64_t size, int num_threads);

  // Returns the slot of each vertex of the oldest expected batch; -1 without a slot. `look_up` and
  // `advance` throw invalid_argument if no batch is expected.
  Array<int32_t> look_up(int num_threads) const;

  // Serves the oldest expected batch, and updates the cache.
  Replaced advance(int num_threads);

  int64_t num_vertices() const { return num_vertices_; }
  const int32_t* slots() const { return slots_.data(); }  // of every vertex

 private:
  struct Batch {
    Array<int32_t> vertices;
    int64_t first_use;   // index in uses_ of the batch's first use
    int64_t num_cached;  // cached rows whose next use is in the batch
  };
  // A row of the served batch that is not in the cache.
  struct Candidate {
    uint64_t key;
    uint32_t next;
    int32_t position;
  };
  // Admission bound: candidates with a use before `next` are kept, and candidates with their use at
  // `next` whose key is below `key`.
  struct Bound {
    uint32_t next;
    uint64_t key;
    bool keeps(uint32_t at, uint64_t by) const { return (at < next) | ((at == next) & (by < key)); }
  };

  const Batch& oldest() const;
  uint64_t key_of(int32_t vertex) const;
  bool is_cached(int32_t slot) const { return static_cast<uint32_t>(slot) < num_used_; }

  int64_t use_at(int64_t first, int64_t i) const;
  void make_room(int64_t num_uses);
  bool append(Batch& batch, int num_threads);
  bool is_of(const Batch& batch, uint32_t use) const;
  bool chain(Batch& batch, uint32_t step, int num_threads);
  void unchain(const Batch& batch);
  bool set_next(uint32_t last_use, int32_t vertex, uint32_t step);

  // Rows with equal next use form a group, numbered by the steps until the use; then come the group
  // of idle rows and the group of rows that the batch buffer holds.
  int64_t num_groups() const { return idle_group_ + 2; }
  int64_t group_of(uint32_t next) const;
  uint32_t next_of(int64_t group) const;
  int64_t& num_cached(int64_t group);
  template <typename Use>
  void for_cached(int64_t group, Use&& use) const;

  void serve(const Batch& batch, Replaced& result, int num_threads);
  void regroup();
  void recount();
  void choose(Replaced& result);
  Bound evict();
  Bound evict_by_scan(int64_t group, int64_t num_kept);
  void evict_beyond(int64_t last);
  Bound evict_of(int64_t group, int64_t num_kept);
  Bound evict_idle(int64_t count);
  void take_idle(int64_t count);
  void add_candidates(int64_t group);
  void enter(const Bound& bound, Replaced& result);
  void move_in(const Replaced& result, int num_threads);
  void hold(Array<int32_t>&& vertices, int num_threads);

  const int32_t* priority_;
  int64_t num_vertices_, capacity_;
  bool match_;

  HugeArray<int32_t> slots_;
  std::unique_ptr<uint64_t[]> slot_key_;   // [capacity] key of the slot's vertex
  std::unique_ptr<uint32_t[]> slot_next_;  // [capacity] step of the row's next use
  uint32_t num_used_ = 0;                  // number of filled slots, which are the first ones
  Array<int32_t> previous_;                // the previous batch

  std::deque<Batch> expected_;
  uint32_t step_ = 0;  // step of the oldest expected batch
  // Ring with the next use of each vertex of each expected batch: an entry is written once, when
  // the vertex is expected again.
  std::unique_ptr<uint32_t[]> uses_;
  int64_t ring_size_ = 0, num_uses_ = 0;
  HugeArray<uint32_t> last_use_;  // [num_vertices] index in uses_ of the last use

  IdleRows idle_;
  int64_t num_idle_ = 0, num_buffered_ = 0;  // number of cached rows
  int64_t idle_group_ = 0;                   // number of the idle rows' group
  bool counts_hold_ = true;                  // false after a call ran out of memory

  std::vector<int32_t> found_;  // slots of the served batch's rows
  std::vector<Candidate> candidates_;
  std::vector<int64_t> num_hits_, num_candidates_;  // of each group of the served batch
  std::vector<IdleRows::Row> leaving_;
  std::vector<uint64_t> keys_;
  std::vector<int32_t> evicted_, entering_;
};

}  // namespace gnnscale
