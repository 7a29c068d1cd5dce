// Priority queue of cached rows that no expected batch reads: candidates for eviction.
#pragma once

#include <cstdint>
#include <vector>

namespace gnnscale {

// Rows with larger keys are evicted first. Only the next candidates are listed; the list is
// refilled when it runs out, so the cost of a step depends on the rows that enter and leave, not on
// the cache's size.
//
// Not thread-safe.
class IdleRows {
 public:
  struct Row {
    uint64_t key;
    int32_t slot;
    friend bool operator<(const Row& a, const Row& b) { return a.key < b.key; }
  };

  // keys[slot] is the unique key of the row in a slot, and next[slot] is `never` while the row is
  // idle, for `capacity` slots. The arrays must outlive the object.
  IdleRows(const uint64_t* keys, const uint32_t* next, uint32_t never, int64_t capacity);

  // Marks the row of `slot` as idle. The arrays must agree before the next `take` or `refill`.
  void add(uint64_t key, int32_t slot);

  // Removes all rows.
  void clear();

  // Forgets all idle rows until the next refill.
  void forget();
  bool lists_any() const { return lowest_ != UINT64_MAX; }

  // Appends the next rows to evict to `taken` until it has `count` rows, in descending order of
  // keys. Returns false if the list runs out first.
  bool take(int64_t count, std::vector<Row>& taken);

  // Puts back the most recently taken rows, from `first` on.
  void put_back(const std::vector<Row>& taken, int64_t first);

  // Lists the next rows to evict among the first `num_used` slots: at least `count`, or all idle
  // rows.
  void refill(int64_t num_used, int64_t count);

 private:
  bool is_idle(const Row& row) const {
    return next_[row.slot] == never_ && keys_[row.slot] == row.key;
  }
  Row pop();
  void settle();  // sorts the added rows

  const uint64_t* keys_;
  const uint32_t* next_;
  uint32_t never_;
  int64_t limit_;        // rows that a refill lists, and maximum of added rows before sorting
  uint64_t lowest_ = 0;  // rows with smaller keys are not listed
  // Lists are cleaned lazily: they may have rows that are no longer idle, and duplicates, both of
  // which are dropped when the row is taken.
  std::vector<Row> sorted_;  // rows of the last refill
  std::vector<Row> added_;   // a heap
};

}  // namespace gnnscale
