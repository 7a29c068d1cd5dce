#include "gnnscale/replacement.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "gnnscale/checks.hpp"
#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 1 << 13;
// Prefetch distance in rows: unpredictable branches would otherwise wait for memory.
constexpr int64_t kDistance = 24;
// Next use of rows without a use in the known batches, and of rows in the batch buffer; larger than
// any step, in this order.
constexpr uint32_t kNever = UINT32_MAX - 1, kBuffered = UINT32_MAX;
constexpr uint32_t kMaxSteps = uint32_t{1} << 31;
constexpr uint32_t kNowhere = UINT32_MAX;  // no index in the ring of uses
constexpr int32_t kNoSlot = -1;
constexpr int64_t kFewLeave = 64;   // idle rows examined first
constexpr int64_t kSmallCache = 8;  // in batch sizes; smaller caches are scanned in full

// Relaxed atomic: a batch with a repeated vertex has several threads at one vertex.
uint32_t load(uint32_t& from) {
  return std::atomic_ref<uint32_t>(from).load(std::memory_order_relaxed);
}
void store(uint32_t& to, uint32_t value) {
  std::atomic_ref<uint32_t>(to).store(value, std::memory_order_relaxed);
}

// The smaller key is kept: higher priority first, then lower vertex.
int32_t vertex_of(uint64_t key) { return static_cast<int32_t>(key & UINT32_MAX); }

// Converts to int32; a value out of range becomes -1, which is no vertex either.
Array<int32_t> narrow(const RowIds& vertices, int64_t size, int num_threads) {
  Array<int32_t> out(size);
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = vertices[i];
      out.data[i] = id == static_cast<int32_t>(id) ? static_cast<int32_t>(id) : -1;
    }
  });
  return out;
}

}  // namespace

Replacement::Replacement(const int32_t* priority, int64_t num_vertices, int64_t capacity,
                         bool match)
    : priority_(priority),
      num_vertices_(num_vertices),
      capacity_(capacity),
      match_(match),
      slots_(num_vertices),
      slot_key_(std::make_unique<uint64_t[]>(capacity)),
      slot_next_(std::make_unique<uint32_t[]>(capacity)),
      last_use_(num_vertices),
      idle_(slot_key_.get(), slot_next_.get(), kNever, capacity) {
  std::fill_n(slots_.data(), num_vertices, kNoSlot);
  std::fill_n(last_use_.data(), num_vertices, kNowhere);
}

const Replacement::Batch& Replacement::oldest() const {
  if (expected_.empty()) throw std::invalid_argument("vertices: no batch is expected");
  return expected_.front();
}

int64_t Replacement::use_at(int64_t first, int64_t i) const {
  const int64_t index = first + i;
  return index < ring_size_ ? index : index - ring_size_;
}

uint64_t Replacement::key_of(int32_t vertex) const {
  const auto rising = static_cast<uint32_t>(priority_[vertex]) ^ (uint32_t{1} << 31);
  return uint64_t{~rising} << 32 | static_cast<uint32_t>(vertex);
}

// Grows the ring to `num_uses` entries.
void Replacement::make_room(int64_t num_uses) {
  if (num_uses <= ring_size_) return;
  if (num_uses >= kNowhere) {
    throw std::invalid_argument("vertices: too many expected at once, allowed are " +
                                std::to_string(kNowhere - 1));
  }
  const int64_t size = std::clamp<int64_t>(ring_size_ + ring_size_ / 4, num_uses, kNowhere - 1);
  auto larger = std::make_unique_for_overwrite<uint32_t[]>(size);
  int64_t first = 0;
  for (Batch& batch : expected_) {
    for (int64_t i = 0; i < batch.vertices.size; ++i) {
      const uint32_t next = uses_[use_at(batch.first_use, i)];
      larger[first + i] = next;
      if (next == kNever) last_use_.data()[batch.vertices.data[i]] = first + i;
    }
    batch.first_use = std::exchange(first, first + batch.vertices.size);
  }
  uses_ = std::move(larger);
  ring_size_ = size;
}

void Replacement::expect(const RowIds& vertices, int64_t size, int num_threads) {
  if (size > INT32_MAX - capacity_) {
    throw std::invalid_argument("vertices: " + std::to_string(size) + " entries, allowed are " +
                                std::to_string(INT32_MAX - capacity_));
  }
  if (step_ + expected_.size() >= kMaxSteps) throw std::length_error("vertices: too many batches");
  Batch batch{narrow(vertices, size, num_threads), 0, 0};
  check_below(batch.vertices.data.get(), size, num_vertices_, "vertices", num_threads);
  make_room(num_uses_ + size);
  if (!expected_.empty()) {
    batch.first_use = use_at(expected_.back().first_use, expected_.back().vertices.size);
  }
  if (!append(batch, num_threads)) {
    throw std::invalid_argument("vertices: one comes twice, allowed are distinct ones");
  }
  expected_.push_back(std::move(batch));
  num_uses_ += size;
}

// Links each use to its vertex's previous use. Returns false, and changes nothing, if a vertex
// appears twice.
bool Replacement::append(Batch& batch, int num_threads) {
  const int32_t* vertices = batch.vertices.data.get();
  const int64_t size = batch.vertices.size;
  // The new use's entry holds the previous last use until all vertices have been examined.
  parallel_for(size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      __builtin_prefetch(&last_use_.data()[vertices[std::min(i + kDistance, end - 1)]], 1);
      const int64_t use = use_at(batch.first_use, i);
      uint32_t& last = last_use_.data()[vertices[i]];
      uses_[use] = load(last);
      store(last, static_cast<uint32_t>(use));
    }
  });
  if (!chain(batch, step_ + static_cast<uint32_t>(expected_.size()), num_threads)) {
    unchain(batch);
    return false;
  }
  for (int64_t i = 0; i < size; ++i) uses_[use_at(batch.first_use, i)] = kNever;
  num_idle_ -= batch.num_cached;
  return true;
}

// Returns whether a use belongs to the batch.
bool Replacement::is_of(const Batch& batch, uint32_t use) const {
  if (use == kNowhere) return false;
  const int64_t offset = use - batch.first_use;
  return (offset < 0 ? offset + ring_size_ : offset) < batch.vertices.size;
}

// Sets the next use of each vertex's previous use to `step`. Returns false if a vertex appears
// twice.
bool Replacement::chain(Batch& batch, uint32_t step, int num_threads) {
  std::atomic<bool> distinct{true};
  std::atomic<int64_t> num_cached{0};
  parallel_for(batch.vertices.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    int64_t num_new = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t later = std::min(i + kDistance, end - 1);
      const uint32_t last = uses_[use_at(batch.first_use, later)];
      __builtin_prefetch(&last_use_.data()[batch.vertices.data[later]]);
      if (last == kNowhere) {
        __builtin_prefetch(&slots_.data()[batch.vertices.data[later]]);
      } else {
        __builtin_prefetch(&uses_[last], 1);
      }
      const int32_t vertex = batch.vertices.data[i];
      const int64_t use = use_at(batch.first_use, i);
      if (last_use_.data()[vertex] != use) distinct = false;
      if (!is_of(batch, uses_[use])) num_new += set_next(uses_[use], vertex, step);
    }
    num_cached += num_new;
  });
  batch.num_cached = num_cached;
  return distinct;
}

void Replacement::unchain(const Batch& batch) {
  for (int64_t i = 0; i < batch.vertices.size; ++i) {
    const int32_t vertex = batch.vertices.data[i];
    const uint32_t last = uses_[use_at(batch.first_use, i)];
    if (is_of(batch, last)) continue;
    last_use_.data()[vertex] = last;
    set_next(last, vertex, kNever);
  }
}

// Returns whether the row is cached and this is its next use.
bool Replacement::set_next(uint32_t last_use, int32_t vertex, uint32_t step) {
  if (last_use != kNowhere) {
    store(uses_[last_use], step);
    return false;
  }
  const int32_t slot = slots_.data()[vertex];
  if (!is_cached(slot)) return false;
  store(slot_next_[slot], step);
  return true;
}

Array<int32_t> Replacement::look_up(int num_threads) const {
  const Batch& batch = oldest();
  Array<int32_t> slots(batch.vertices.size);
  parallel_for(slots.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) slots.data[i] = slots_.data()[batch.vertices.data[i]];
  });
  return slots;
}

Replaced Replacement::advance(int num_threads) {
  const Batch& batch = oldest();
  Replaced result;
  const bool counts_hold = std::exchange(counts_hold_, false);
  idle_group_ = std::ssize(expected_);
  serve(batch, result, num_threads);
  regroup();
  if (!counts_hold) recount();
  choose(result);
  counts_hold_ = true;
  move_in(result, num_threads);
  num_uses_ -= batch.vertices.size;
  if (match_) hold(std::move(expected_.front().vertices), num_threads);
  expected_.pop_front();
  ++step_;
  return result;
}

// Looks up the batch's rows, and updates the next uses of its rows and of cached rows.
void Replacement::serve(const Batch& batch, Replaced& result, int num_threads) {
  found_.resize(batch.vertices.size);
  candidates_.resize(batch.vertices.size);
  std::atomic<int64_t> num_hits{0}, num_previous{0};
  parallel_for(batch.vertices.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    int64_t hits = 0, previous = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t later = std::min(i + kDistance, end - 1);
      __builtin_prefetch(&slots_.data()[batch.vertices.data[later]]);
      __builtin_prefetch(&priority_[batch.vertices.data[later]]);
      if (uses_[use_at(batch.first_use, later)] == kNever) {
        __builtin_prefetch(&last_use_.data()[batch.vertices.data[later]], 1);
      }
      const int32_t vertex = batch.vertices.data[i];
      uint32_t next = uses_[use_at(batch.first_use, i)];
      if (next == kNever) last_use_.data()[vertex] = kNowhere;
      if (match_ && next == step_ + 1) next = kBuffered;
      const int32_t slot = found_[i] = slots_.data()[vertex];
      if (is_cached(slot)) {
        slot_next_[slot] = next;
        ++hits;
      } else {
        candidates_[i] = {key_of(vertex), next, static_cast<int32_t>(i)};
        previous += slot != kNoSlot;
      }
    }
    num_hits += hits;
    num_previous += previous;
  });
  result.num_hits = num_hits;
  result.num_previous = num_previous;
  result.num_misses = batch.vertices.size - num_hits - num_previous;
  // Hits are unpredictable: no branch.
  int64_t num_kept = 0;
  for (int64_t i = 0; i < batch.vertices.size; ++i) {
    candidates_[num_kept] = candidates_[i];
    num_kept += !is_cached(found_[i]);
  }
  candidates_.resize(num_kept);
}

int64_t Replacement::group_of(uint32_t next) const {
  return std::min<int64_t>(next - step_, idle_group_ + (next == kBuffered));
}

uint32_t Replacement::next_of(int64_t group) const {
  return group < idle_group_ ? step_ + group : group == idle_group_ ? kNever : kBuffered;
}

int64_t& Replacement::num_cached(int64_t group) {
  if (group < idle_group_) return expected_[group].num_cached;
  return group == idle_group_ ? num_idle_ : num_buffered_;
}

// Counts the batch's rows by next use. Its hits were the cached rows whose next use was this batch,
// and the rows of the previous buffer.
void Replacement::regroup() {
  num_hits_.assign(num_groups(), 0);
  num_candidates_.assign(num_groups(), 0);
  if (num_used_ > 0) {
    // Hits are unpredictable: misses are counted, and subtracted.
    int64_t* const num_first = &num_hits_[group_of(slot_next_[0])];
    for (const int32_t slot : found_) {
      const bool hit = is_cached(slot);
      ++num_hits_[group_of(slot_next_[hit ? slot : 0])];
      *num_first -= !hit;
    }
  }
  if (idle_.lists_any()) {
    for (const int32_t slot : found_) {
      if (is_cached(slot) && slot_next_[slot] == kNever) idle_.add(slot_key_[slot], slot);
    }
  }
  for (const Candidate& candidate : candidates_) ++num_candidates_[group_of(candidate.next)];
  num_cached(0) = num_buffered_ = 0;
  for (int64_t group = 0; group < num_groups(); ++group) num_cached(group) += num_hits_[group];
}

// Recounts all cached rows, after a call that failed midway.
void Replacement::recount() {
  idle_.forget();
  for (int64_t group = 0; group < num_groups(); ++group) num_cached(group) = 0;
  for (uint32_t slot = 0; slot < num_used_; ++slot) ++num_cached(group_of(slot_next_[slot]));
}

// Calls use(slot) for each cached row of a group.
template <typename Use>
void Replacement::for_cached(int64_t group, Use&& use) const {
  const uint32_t next = next_of(group);
  const auto use_if = [&](int32_t slot) {
    if (is_cached(slot) && slot_next_[slot] == next) use(slot);
  };
  if (next == kNever) {
    for (uint32_t slot = 0; slot < num_used_; ++slot) use_if(static_cast<int32_t>(slot));
  } else if (next == kBuffered) {
    for (const int32_t slot : found_) use_if(slot);
  } else {
    // The batch of the group's next use has all rows of the group.
    const Array<int32_t>& vertices = expected_[group].vertices;
    for (int64_t i = 0; i < vertices.size; ++i) {
      const int64_t later = std::min(i + kDistance, vertices.size - 1);
      __builtin_prefetch(&slots_.data()[vertices.data[later]]);
      use_if(slots_.data()[vertices.data[i]]);
    }
  }
}

void Replacement::choose(Replaced& result) {
  evicted_.clear();
  const bool all_fit = num_used_ + std::ssize(candidates_) <= capacity_;
  enter(all_fit ? Bound{kBuffered, UINT64_MAX} : evict(), result);
}

// Evicts rows beyond the capacity, and returns the admission bound.
Replacement::Bound Replacement::evict() {
  int64_t group = 0, free = capacity_;
  for (; num_cached(group) + num_candidates_[group] <= free; ++group) {
    free -= num_cached(group) + num_candidates_[group];
  }
  if (num_used_ <= kSmallCache * std::ssize(found_)) return evict_by_scan(group, free);
  evict_beyond(group);
  const bool idle = next_of(group) == kNever;
  const Bound bound =
      idle ? evict_idle(num_cached(group) + num_candidates_[group] - free) : evict_of(group, free);
  std::sort(evicted_.begin(), evicted_.end());
  return bound;
}

// Evicts all but `num_kept` rows of a group, candidates included, and all later groups.
Replacement::Bound Replacement::evict_by_scan(int64_t group, int64_t num_kept) {
  const uint32_t next = next_of(group);
  // Group membership is unpredictable: every key is written, the last one to a dummy entry.
  keys_.resize(num_cached(group) + num_candidates_[group] + 1);
  int64_t num_keys = 0;
  const auto add = [&](uint32_t at, uint64_t key) {
    keys_[num_keys] = key;
    num_keys += at == next;
  };
  for (uint32_t slot = 0; slot < num_used_; ++slot) add(slot_next_[slot], slot_key_[slot]);
  for (const Candidate& candidate : candidates_) add(candidate.next, candidate.key);
  std::nth_element(keys_.begin(), keys_.begin() + num_kept, keys_.end() - 1);
  const Bound bound{next, keys_[num_kept]};
  evicted_.resize(num_used_ + 1);
  int64_t num_evicted = 0;
  for (uint32_t slot = 0; slot < num_used_; ++slot) {
    evicted_[num_evicted] = static_cast<int32_t>(slot);
    num_evicted += !bound.keeps(slot_next_[slot], slot_key_[slot]);
  }
  evicted_.resize(num_evicted);
  for (int64_t after = group + 1; after < num_groups(); ++after) {
    num_evicted -= std::exchange(num_cached(after), 0);
  }
  num_cached(group) -= num_evicted;
  idle_.forget();  // relisting idle rows costs more than a scan of all slots
  return bound;
}

// Evicts all groups after `last`.
void Replacement::evict_beyond(int64_t last) {
  int64_t num_hits = 0;
  for (int64_t group = last + 1; group < num_groups(); ++group) {
    // Most often the group has only rows of the batch.
    if (num_cached(group) > num_hits_[group]) {
      for_cached(group, [&](int32_t slot) { evicted_.push_back(slot); });
      num_hits_[group] = 0;
    }
    num_cached(group) = 0;
    num_hits += num_hits_[group];
  }
  if (num_hits > 0) {
    for (const int32_t slot : found_) {
      if (!is_cached(slot)) continue;
      const int64_t group = group_of(slot_next_[slot]);
      if (group > last && num_hits_[group] > 0) evicted_.push_back(slot);
    }
  }
  if (last < idle_group_) idle_.clear();
}

// Evicts all but `num_kept` rows of a group, candidates included.
Replacement::Bound Replacement::evict_of(int64_t group, int64_t num_kept) {
  leaving_.clear();
  for_cached(group, [&](int32_t slot) { leaving_.push_back({slot_key_[slot], slot}); });
  keys_.clear();
  for (const IdleRows::Row& row : leaving_) keys_.push_back(row.key);
  add_candidates(group);
  std::nth_element(keys_.begin(), keys_.begin() + num_kept, keys_.end());
  const Bound bound{next_of(group), keys_[num_kept]};
  for (const IdleRows::Row& row : leaving_) {
    if (row.key < bound.key) continue;
    evicted_.push_back(row.slot);
    --num_cached(group);
  }
  return bound;
}

// Evicts `count` idle rows, candidates included.
Replacement::Bound Replacement::evict_idle(int64_t count) {
  keys_.clear();
  add_candidates(idle_group_);
  const int64_t num_candidates = std::ssize(keys_);
  const int64_t max_taken = std::min(count, num_idle_);
  // Few cached rows are evicted: take enough of them to know that all further ones stay.
  int64_t num_taken = std::min(std::max(count - num_candidates, kFewLeave), max_taken);
  for (leaving_.clear();; num_taken = std::min(2 * num_taken, max_taken)) {
    take_idle(num_taken);
    if (num_taken == max_taken) break;
    const uint64_t last = leaving_.back().key;
    const auto after = [&](uint64_t key) { return key > last; };
    if (num_taken + std::count_if(keys_.begin(), keys_.end(), after) >= count) break;
  }
  for (const IdleRows::Row& row : leaving_) keys_.push_back(row.key);
  std::nth_element(keys_.begin(), keys_.end() - count, keys_.end());
  const Bound bound{kNever, keys_.end()[-count]};
  int64_t num_evicted = 0;
  for (; num_evicted < num_taken && leaving_[num_evicted].key >= bound.key; ++num_evicted) {
    evicted_.push_back(leaving_[num_evicted].slot);
  }
  idle_.put_back(leaving_, num_evicted);
  num_idle_ -= num_evicted;
  return bound;
}

void Replacement::take_idle(int64_t count) {
  if (idle_.take(count, leaving_)) return;
  leaving_.clear();
  idle_.refill(num_used_, count);
  idle_.take(count, leaving_);
}

void Replacement::add_candidates(int64_t group) {
  const uint32_t next = next_of(group);
  for (const Candidate& candidate : candidates_) {
    if (candidate.next == next) keys_.push_back(candidate.key);
  }
}

// Assigns slots to admitted candidates: first evicted slots, then free ones.
void Replacement::enter(const Bound& bound, Replaced& result) {
  entering_.resize(candidates_.size() + 1);  // the last entry is a dummy
  int64_t num_entering = 0;
  for (int32_t k = 0; k < std::ssize(candidates_); ++k) {
    entering_[num_entering] = k;
    num_entering += bound.keeps(candidates_[k].next, candidates_[k].key);
  }
  entering_.resize(num_entering);
  result.positions = Array<int32_t>(num_entering);
  result.slots = Array<int32_t>(num_entering);
  const int64_t num_evicted = std::ssize(evicted_);
  for (int64_t k = 0; k < num_entering; ++k) {
    const Candidate& row = candidates_[entering_[k]];
    const auto slot =
        static_cast<int32_t>(k < num_evicted ? evicted_[k] : num_used_ + k - num_evicted);
    result.positions.data[k] = row.position;
    result.slots.data[k] = slot;
    ++num_cached(group_of(row.next));
    if (row.next == kNever) idle_.add(row.key, slot);
  }
}

void Replacement::move_in(const Replaced& result, int num_threads) {
  parallel_for(std::ssize(evicted_), kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      slots_.data()[vertex_of(slot_key_[evicted_[k]])] = kNoSlot;
    }
  });
  parallel_for(std::ssize(entering_), kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const Candidate& row = candidates_[entering_[k]];
      const int32_t slot = result.slots.data[k];
      slots_.data()[vertex_of(row.key)] = slot;
      slot_key_[slot] = row.key;
      slot_next_[slot] = row.next;
    }
  });
  num_used_ += static_cast<uint32_t>(entering_.size() - evicted_.size());
}

// Replaces the buffered batch by the served batch.
void Replacement::hold(Array<int32_t>&& vertices, int num_threads) {
  const auto set_where = [&](const Array<int32_t>& batch, auto&& applies, auto&& slot_of) {
    parallel_for(batch.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        __builtin_prefetch(&slots_.data()[batch.data[std::min(i + kDistance, end - 1)]], 1);
        int32_t& slot = slots_.data()[batch.data[i]];
        if (applies(slot)) slot = slot_of(i);
      }
    });
  };
  const auto capacity = static_cast<int32_t>(capacity_);
  set_where(
      previous_, [&](int32_t slot) { return slot >= capacity; }, [](int64_t) { return kNoSlot; });
  set_where(
      vertices, [](int32_t slot) { return slot == kNoSlot; },
      [&](int64_t i) { return capacity + static_cast<int32_t>(i); });
  previous_ = std::move(vertices);
}

}  // namespace gnnscale
