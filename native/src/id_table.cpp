#include "gnnscale/id_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Items of one work item.
constexpr int64_t kGrain = 1 << 14;
// Texts, or numbers, whose slots are prefetched together.
constexpr int64_t kAtOnce = 32;
constexpr int64_t kAhead = 64;
// Maximum id range for each id at which a direct table is no larger than a hash table.
constexpr uint64_t kRangePerId = 8;

// Folds the halves of a 128-bit product: every bit of the result depends on all of `a`.
uint64_t folded(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_of(const uint8_t* bytes, int64_t length, uint64_t seed) {
  constexpr uint64_t kOdd = 0xa0761d6478bd642f;
  uint64_t hash = folded(seed ^ static_cast<uint64_t>(length), kOdd);
  for (; length > 0; bytes += 8, length -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, static_cast<size_t>(std::min<int64_t>(length, 8)));
    hash = folded(hash ^ word ^ seed, kOdd);
  }
  return hash;
}

// Finds the smallest unknown index over parallel chunks.
class FirstUnknown {
 public:
  void add(int64_t item) {
    int64_t first = first_.load(std::memory_order_relaxed);
    while (item < first && !first_.compare_exchange_weak(first, item)) {
    }
  }
  int64_t value() const { return first_ == kNone ? -1 : first_.load(); }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_ = kNone;
};

uint64_t slot_of(uint64_t key, uint64_t seed) { return folded(key ^ seed, 0x9e3779b97f4a7c15); }

// Calls visitor(table) with the active table.
template <typename Variant, typename Visitor>
void visit(Variant& tables, Visitor&& visitor) {
  std::visit(
      [&]<typename Table>(Table& table) {
        if constexpr (!std::is_same_v<std::remove_const_t<Table>, std::monostate>) visitor(table);
      },
      tables);
}

uint64_t num_slots(int64_t num_ids) {
  // A load of at most one half, so that most keys are in their first slot.
  return std::bit_ceil(std::max<uint64_t>(static_cast<uint64_t>(num_ids) * 2, 8));
}

}  // namespace

IdSlots::IdSlots(int64_t num_ids, uint64_t seed)
    : seed_(seed), mask_(num_slots(num_ids) - 1), slots_(static_cast<int64_t>(mask_ + 1)) {}

uint64_t IdSlots::first(uint64_t key) const { return slot_of(key, seed_) & mask_; }

int64_t RangeTable::insert(uint64_t key, int64_t position) {
  int32_t& entry = places_.data()[key];
  if (entry != 0) return entry - 1;
  entry = static_cast<int32_t>(position + 1);
  return -1;
}

bool PackedTable::fits(int64_t num_ids, uint64_t last_key) {
  return std::bit_width(last_key) + std::bit_width(static_cast<uint64_t>(num_ids)) <= 64;
}

PackedTable::PackedTable(int64_t num_ids, uint64_t seed)
    : seed_(seed),
      // Twice as many slots as a table of wider slots, for equal memory: more keys are in their
      // first slot.
      mask_(2 * num_slots(num_ids) - 1),
      place_bits_(std::bit_width(static_cast<uint64_t>(num_ids))),
      words_(static_cast<int64_t>(mask_ + 1)) {}

uint64_t PackedTable::first(uint64_t key) const { return slot_of(key, seed_) & mask_; }

int64_t PackedTable::insert(uint64_t key, int64_t position) {
  uint64_t* words = words_.data();
  const uint64_t position_mask = (uint64_t{1} << place_bits_) - 1;
  uint64_t slot = first(key);
  for (; words[slot] != 0; slot = (slot + 1) & mask_) {
    if (words[slot] >> place_bits_ == key)
      return static_cast<int64_t>(words[slot] & position_mask) - 1;
  }
  words[slot] = key << place_bits_ | static_cast<uint64_t>(position + 1);
  return -1;
}

int64_t PackedTable::find(uint64_t key) const {
  const uint64_t* words = words_.data();
  uint64_t slot = first(key);
  // A key with too many bits for a word matches no entry.
  while (words[slot] != 0 && words[slot] >> place_bits_ != key) slot = (slot + 1) & mask_;
  return static_cast<int64_t>(words[slot] & ((uint64_t{1} << place_bits_) - 1)) - 1;
}

int64_t WideTable::insert(uint64_t key, int64_t position) {
  uint64_t slot = slots_.first(key);
  for (; slots_[slot].place != 0; slot = slots_.next(slot)) {
    if (slots_[slot].key == key) return slots_[slot].place - 1;
  }
  slots_[slot] = {key, position + 1};
  return -1;
}

int64_t WideTable::find(uint64_t key) const {
  uint64_t slot = slots_.first(key);
  while (slots_[slot].place != 0 && slots_[slot].key != key) slot = slots_.next(slot);
  return slots_[slot].place - 1;
}

IntegerIds::IntegerIds(const int64_t* ids, int64_t num_ids, uint64_t seed) : size_(num_ids) {
  uint64_t last = 0;
  if (num_ids > 0) {
    const auto [low, high] = std::minmax_element(ids, ids + num_ids);
    low_ = static_cast<uint64_t>(*low);
    last = key_of(*high);
  }
  if (last < kRangePerId * static_cast<uint64_t>(num_ids) &&
      num_ids < std::numeric_limits<int32_t>::max()) {
    table_.emplace<RangeTable>(last + 1);
  } else if (PackedTable::fits(num_ids, last)) {
    table_.emplace<PackedTable>(num_ids, seed);
  } else {
    table_.emplace<WideTable>(num_ids, seed);
  }
  visit(table_, [&](auto& table) {
    for (int64_t position = 0; position < size_ && repeated_.first < 0; ++position) {
      table.prefetch(key_of(ids[std::min(position + kAhead, size_ - 1)]));
      const int64_t first_position = table.insert(key_of(ids[position]), position);
      if (first_position >= 0) repeated_ = {first_position, position};
    }
  });
}

int64_t IntegerIds::num_bytes() const {
  int64_t bytes = 0;
  visit(table_, [&](const auto& table) { bytes = table.num_bytes(); });
  return bytes;
}

template <typename Vertex>
int64_t IntegerIds::find(const int64_t* ids, int64_t num_wanted, Vertex* out,
                         int num_threads) const {
  FirstUnknown unknown;
  visit(table_, [&](const auto& table) {
    parallel_for(num_wanted, kGrain, num_threads, [&, out](int64_t begin, int64_t end) {
      int64_t missing = -1;
      for (int64_t item = begin; item < end; ++item) {
        table.prefetch(key_of(ids[std::min(item + kAhead, num_wanted - 1)]));
        const int64_t position = table.find(key_of(ids[item]));
        out[item] = static_cast<Vertex>(position);
        if (position < 0 && missing < 0) missing = item;
      }
      if (missing >= 0) unknown.add(missing);
    });
  });
  return unknown.value();
}

TextIds::TextIds(const Texts& ids, uint64_t seed)
    : offsets_(ids.offsets, ids.offsets + ids.size + 1),
      bytes_(ids.bytes, ids.bytes + ids.offsets[ids.size]),
      seed_(seed),
      slots_(ids.size, seed) {
  for (int64_t position = 0; position < ids.size; ++position) {
    const uint8_t* bytes = bytes_.data() + offsets_[position];
    const int64_t length = offsets_[position + 1] - offsets_[position];
    const uint64_t key = hash_of(bytes, length, seed_);
    uint64_t slot = slots_.first(key);
    for (; slots_[slot].place != 0; slot = slots_.next(slot)) {
      if (slots_[slot].key == key && equal(slots_[slot].place - 1, bytes, length)) {
        repeated_ = {slots_[slot].place - 1, position};
        return;
      }
    }
    slots_[slot] = {key, position + 1};
  }
}

int64_t TextIds::num_bytes() const {
  return slots_.num_bytes() + static_cast<int64_t>(offsets_.size() * sizeof(int64_t)) +
         static_cast<int64_t>(bytes_.size());
}

bool TextIds::equal(int64_t position, const uint8_t* bytes, int64_t length) const {
  return offsets_[position + 1] - offsets_[position] == length &&
         std::equal(bytes, bytes + length, bytes_.data() + offsets_[position]);
}

int64_t TextIds::place_from(uint64_t slot, uint64_t key, const uint8_t* bytes,
                            int64_t length) const {
  for (; slots_[slot].place != 0; slot = slots_.next(slot)) {
    const int64_t position = slots_[slot].place - 1;
    if (slots_[slot].key == key && equal(position, bytes, length)) return position;
  }
  return -1;
}

template <typename Vertex>
int64_t TextIds::find(const Texts& texts, Vertex* out, int num_threads) const {
  FirstUnknown unknown;
  parallel_for(texts.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    std::array<uint64_t, kAtOnce> keys{}, slots{};
    for (int64_t first = begin; first < end; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, end - first);
      const int64_t* offsets = texts.offsets + first;
      for (int64_t i = 0; i < count; ++i) {
        keys[i] = hash_of(texts.bytes + offsets[i], offsets[i + 1] - offsets[i], seed_);
        slots[i] = slots_.first(keys[i]);
        slots_.prefetch(slots[i]);
      }
      for (int64_t i = 0; i < count; ++i) {  // most keys are in their first slot
        const int64_t position = std::max<int64_t>(slots_[slots[i]].place - 1, 0);
        __builtin_prefetch(&offsets_[position]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t position = std::max<int64_t>(slots_[slots[i]].place - 1, 0);
        __builtin_prefetch(bytes_.data() + offsets_[position]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t position =
            place_from(slots[i], keys[i], texts.bytes + offsets[i], offsets[i + 1] - offsets[i]);
        out[first + i] = static_cast<Vertex>(position);
        if (position < 0) unknown.add(first + i);
      }
    }
  });
  return unknown.value();
}

template int64_t IntegerIds::find(const int64_t*, int64_t, int32_t*, int) const;
template int64_t IntegerIds::find(const int64_t*, int64_t, int64_t*, int) const;
template int64_t TextIds::find(const Texts&, int32_t*, int) const;
template int64_t TextIds::find(const Texts&, int64_t*, int) const;

}  // namespace gnnscale
