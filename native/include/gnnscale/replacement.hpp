// Which rows a device keeps in its cache when the batches to come are known.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gnnscale/idle_rows.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Where serving a batch found its rows, and what is copied into the cache afterwards: the row at
// `positions[k]` of the batch goes to slot `slots[k]`.
struct Replaced {
  int64_t num_hits = 0, num_previous = 0, num_misses = 0;
  Array<int32_t> positions, slots;
};

// Belady's MIN with bypass, a batch at a time: of its rows and of the batch's, the cache keeps
// those that are read again soonest. Rows that are read equally soon, or not within the batches
// known, go by descending priority, then ascending vertex.
//
// With `match` a batch's rows stay on the device until the next batch was served (FastGL, Match).
// Rows that both batches read then need no slot in between, and get one only if it is free.
//
// Slots 0 to capacity - 1 are the cache's; capacity + i is row i of the batch before. A step takes
// time by the rows of the batch, whatever the capacity. One thread calls at a time.
class Replacement {
 public:
  // `priority` [num_vertices] stays where it is. It may even change: it decides an order alone.
  Replacement(const int32_t* priority, int64_t num_vertices, int64_t capacity, bool match);

  // Appends a batch. Throws invalid_argument, and changes nothing, if `vertices` hold what is
  // no vertex or a vertex twice.
  void expect(const RowIds& vertices, int64_t size, int num_threads);

  // The slot of each vertex of the oldest batch expected; -1 if it has none. This and `advance`
  // throw invalid_argument if no batch is expected.
  Array<int32_t> look_up(int num_threads) const;

  // Serves the oldest batch expected, and replaces.
  Replaced advance(int num_threads);

  int64_t num_vertices() const { return num_vertices_; }
  const int32_t* slots() const { return slots_.data(); }  // of every vertex

 private:
  struct Batch {
    Array<int32_t> vertices;
    int64_t first_use;   // its place in uses_
    int64_t num_cached;  // rows in the cache that are read next by it
  };
  // A row of the batch that is served and not in the cache.
  struct Candidate {
    uint64_t key;
    uint32_t next;
    int32_t position;
  };
  // Kept are candidates that are read before `next`, and those read then whose key is below `key`.
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

  // Rows that are read equally soon are a group. Groups are numbered by the steps until then; one
  // more is that of idle rows, and one more that of rows that the buffer of the batch keeps.
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
  std::unique_ptr<uint64_t[]> slot_key_;   // of the vertex whose row is in a slot
  std::unique_ptr<uint32_t[]> slot_next_;  // the step that reads it next
  uint32_t num_used_ = 0;                  // slots, the first ones, that hold a row
  Array<int32_t> previous_;                // the batch before

  std::deque<Batch> expected_;
  uint32_t step_ = 0;  // of the oldest of them
  // For each vertex of each batch expected the step that reads it next: a ring, so that what is
  // known of a use is written once, when the next one is expected.
  std::unique_ptr<uint32_t[]> uses_;
  int64_t ring_size_ = 0, num_uses_ = 0;
  HugeArray<uint32_t> last_use_;  // of every vertex, its place in uses_

  IdleRows idle_;
  int64_t num_idle_ = 0, num_buffered_ = 0;  // rows in the cache
  int64_t idle_group_ = 0;                   // the number of the group of idle rows
  bool counts_hold_ = true;                  // false once a call has run out of memory

  std::vector<int32_t> found_;  // the slots of the batch that is served
  std::vector<Candidate> candidates_;
  std::vector<int64_t> num_hits_, num_candidates_;  // of each group, of the batch that is served
  std::vector<IdleRows::Row> leaving_;
  std::vector<uint64_t> keys_;
  std::vector<int32_t> evicted_, entering_;
};

}  // namespace gnnscale
