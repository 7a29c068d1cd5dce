// The cached rows that no known batch reads, by how soon they leave.
#pragma once

#include <cstdint>
#include <vector>

namespace gnnscale {

// Rows with larger keys leave first. Only the ones that leave next are listed; the list is refilled
// when it runs out, so that a step costs what enters and leaves, and not what is cached.
//
// One thread calls at a time.
class IdleRows {
 public:
  struct Row {
    uint64_t key;
    int32_t slot;
    friend bool operator<(const Row& a, const Row& b) { return a.key < b.key; }
  };

  // Of `capacity` slots `keys[slot]` is the key of the row, unlike that of any other, and
  // `next[slot]` is `never` while it is idle. Both arrays stay where they are.
  IdleRows(const uint64_t* keys, const uint32_t* next, uint32_t never, int64_t capacity);

  // The row of `slot` is idle from now on, and in the arrays once it is asked for.
  void add(uint64_t key, int32_t slot);

  // No row is idle.
  void clear();

  // Nothing is known of the rows that are idle, until the next refill.
  void forget();
  bool lists_any() const { return lowest_ != UINT64_MAX; }

  // Appends the rows that leave next to `taken` until these are `count`, in descending order of
  // keys. Returns false if the list runs out before.
  bool take(int64_t count, std::vector<Row>& taken);

  // Puts back the rows that were taken last, from `first` on.
  void put_back(const std::vector<Row>& taken, int64_t first);

  // Lists again, of the first `num_used` slots, at least `count` rows, or all idle ones.
  void refill(int64_t num_used, int64_t count);

 private:
  bool is_idle(const Row& row) const {
    return next_[row.slot] == never_ && keys_[row.slot] == row.key;
  }
  Row pop();
  void settle();  // sorts what was added

  const uint64_t* keys_;
  const uint32_t* next_;
  uint32_t never_;
  int64_t limit_;        // rows that a refill lists, and that are added until they are sorted
  uint64_t lowest_ = 0;  // rows with a smaller key are not listed
  // Rows that are idle no more stay listed, and one may be listed twice: both show when it is
  // taken.
  std::vector<Row> sorted_;  // those of the last refill
  std::vector<Row> added_;   // a heap
};

}  // namespace gnnscale
