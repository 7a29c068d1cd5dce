#include "gnnscale/idle_rows.hpp"

#include <algorithm>
#include <iterator>

namespace gnnscale {
namespace {

// Fraction and minimum of the slots that a refill lists: sorting more costs more than it saves.
constexpr int64_t kPart = 16, kMinListed = 1024;
// Prefetch distance in rows.
constexpr int64_t kDistance = 16;

}  // namespace

IdleRows::IdleRows(const uint64_t* keys, const uint32_t* next, uint32_t never, int64_t capacity)
    : keys_(keys), next_(next), never_(never), limit_(std::max(capacity / kPart, kMinListed)) {}

void IdleRows::add(uint64_t key, int32_t slot) {
  if (std::ssize(added_) == limit_) settle();
  if (key < lowest_) return;
  added_.push_back({key, slot});
  std::push_heap(added_.begin(), added_.end());
}

void IdleRows::settle() {
  std::sort_heap(added_.begin(), added_.end());
  const int64_t num_sorted = std::ssize(sorted_);
  sorted_.insert(sorted_.end(), added_.begin(), added_.end());
  std::inplace_merge(sorted_.begin(), sorted_.begin() + num_sorted, sorted_.end());
  added_.clear();
  if (std::ssize(sorted_) > 2 * limit_) {
    sorted_.erase(sorted_.begin(), sorted_.end() - limit_);
    lowest_ = sorted_.front().key;
  }
}

void IdleRows::clear() {
  sorted_.clear();
  added_.clear();
  lowest_ = 0;
}

void IdleRows::forget() {
  clear();
  lowest_ = UINT64_MAX;
}

IdleRows::Row IdleRows::pop() {
  std::vector<Row>* from = &sorted_;
  if (sorted_.empty() || (!added_.empty() && sorted_.back() < added_.front())) {
    std::pop_heap(added_.begin(), added_.end());
    from = &added_;
  }
  const Row row = from->back();
  from->pop_back();
  return row;
}

bool IdleRows::take(int64_t count, std::vector<Row>& rows) {
  rows.reserve(count);
  while (std::ssize(rows) < count) {
    if (sorted_.empty() && added_.empty()) return false;
    if (std::ssize(sorted_) > kDistance) {
      const int32_t later_slot = sorted_.end()[-1 - kDistance].slot;
      __builtin_prefetch(&next_[later_slot]);
      __builtin_prefetch(&keys_[later_slot]);
    }
    const Row row = pop();
    const bool again = !rows.empty() && rows.back().key == row.key;
    if (is_idle(row) && !again) rows.push_back(row);
  }
  return true;
}

void IdleRows::put_back(const std::vector<Row>& rows, int64_t first) {
  sorted_.insert(sorted_.end(), rows.rbegin(), rows.rend() - first);
}

void IdleRows::refill(int64_t num_used, int64_t count) {
  const int64_t num_listed = std::max(limit_, count);
  clear();
  sorted_.reserve(std::min(num_used, 2 * num_listed));
  for (int64_t slot = 0; slot < num_used; ++slot) {
    if (next_[slot] != never_ || keys_[slot] < lowest_) continue;
    if (std::ssize(sorted_) == 2 * num_listed) {
      std::nth_element(sorted_.begin(), sorted_.begin() + num_listed, sorted_.end());
      sorted_.erase(sorted_.begin(), sorted_.begin() + num_listed);
      lowest_ = std::min_element(sorted_.begin(), sorted_.end())->key;
      if (keys_[slot] < lowest_) continue;
    }
    sorted_.push_back({keys_[slot], static_cast<int32_t>(slot)});
  }
  std::sort(sorted_.begin(), sorted_.end());
}

}  // namespace gnnscale
