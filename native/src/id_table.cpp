#include "gnnscale/id_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Items of a chunk of parallel work, and how many of them have their slots on the way from memory.
constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kAtOnce = 32;
// Largest range of ids, per id, of which a table takes no more than the slots of a hash table.
constexpr uint64_t kRangePerId = 4;

// The two halves of a product of 128 bits, folded: every bit of it depends on all of `a`.
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

// Finds what is unknown in parallel chunks: the smallest wins.
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

uint64_t num_slots(int64_t num_ids) {
  // At most 3/4 are taken, so that a key is found within few slots.
  return std::bit_ceil(std::max<uint64_t>(static_cast<uint64_t>(num_ids) * 4 / 3 + 1, 8));
}

}  // namespace

IdSlots::IdSlots(int64_t num_ids, uint64_t seed)
    : seed_(seed), mask_(num_slots(num_ids) - 1), slots_(static_cast<int64_t>(mask_ + 1)) {}

uint64_t IdSlots::first(uint64_t key) const {
  return folded(key ^ seed_, 0x9e3779b97f4a7c15) & mask_;
}

IntegerIds::IntegerIds(const int64_t* ids, int64_t num_ids, uint64_t seed) : size_(num_ids) {
  if (num_ids > 0) {
    const auto [low, high] = std::minmax_element(ids, ids + num_ids);
    const uint64_t last = static_cast<uint64_t>(*high) - static_cast<uint64_t>(*low);
    if (last < kRangePerId * static_cast<uint64_t>(num_ids) &&
        num_ids < std::numeric_limits<int32_t>::max()) {
      low_ = *low;
      range_ = last + 1;
    }
  }
  if (range_ > 0) {
    places_ = std::make_unique<HugeArray<int32_t>>(static_cast<int64_t>(range_));
    fill_range(ids);
  } else {
    slots_ = std::make_unique<IdSlots>(num_ids, seed);
    fill_slots(ids);
  }
}

void IntegerIds::fill_range(const int64_t* ids) {
  for (int64_t place = 0; place < size_; ++place) {
    int32_t& found =
        places_->data()[static_cast<uint64_t>(ids[place]) - static_cast<uint64_t>(low_)];
    if (found != 0) {
      repeated_ = {found - 1, place};
      return;
    }
    found = static_cast<int32_t>(place + 1);
  }
}

void IntegerIds::fill_slots(const int64_t* ids) {
  for (int64_t place = 0; place < size_; ++place) {
    const int64_t ahead = std::min(place + kAtOnce, size_ - 1);
    slots_->prefetch(slots_->first(static_cast<uint64_t>(ids[ahead])));
    const auto key = static_cast<uint64_t>(ids[place]);
    uint64_t slot = slots_->first(key);
    while ((*slots_)[slot].place != 0) {
      if ((*slots_)[slot].key == key) {
        repeated_ = {(*slots_)[slot].place - 1, place};
        return;
      }
      slot = slots_->next(slot);
    }
    (*slots_)[slot] = {key, place + 1};
  }
}

int64_t IntegerIds::num_bytes() const {
  return range_ > 0 ? static_cast<int64_t>(range_ * sizeof(int32_t)) : slots_->num_bytes();
}

int64_t IntegerIds::place_of(int64_t id) const {
  const uint64_t offset = static_cast<uint64_t>(id) - static_cast<uint64_t>(low_);
  return offset < range_ ? places_->data()[offset] - 1 : -1;
}

int64_t IntegerIds::place_in_slots(uint64_t slot, uint64_t key) const {
  while ((*slots_)[slot].place != 0 && (*slots_)[slot].key != key) slot = slots_->next(slot);
  return (*slots_)[slot].place - 1;
}

template <typename Vertex>
int64_t IntegerIds::find(const int64_t* wanted, int64_t num_wanted, Vertex* out,
                         int num_threads) const {
  FirstUnknown unknown;
  const auto set = [&](int64_t item, int64_t place) {
    out[item] = static_cast<Vertex>(place);
    if (place < 0) unknown.add(item);
  };
  parallel_for(num_wanted, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    if (range_ > 0) {
      for (int64_t item = begin; item < end; ++item) set(item, place_of(wanted[item]));
      return;
    }
    std::array<uint64_t, kAtOnce> slots{};  // of the items ahead, on their way from memory
    const auto fetch = [&](int64_t item) {
      uint64_t& slot = slots[item % kAtOnce];
      slot = slots_->first(static_cast<uint64_t>(wanted[item]));
      slots_->prefetch(slot);
    };
    for (int64_t item = begin; item < std::min(begin + kAtOnce, end); ++item) fetch(item);
    for (int64_t item = begin; item < end; ++item) {
      const uint64_t slot = slots[item % kAtOnce];
      if (item + kAtOnce < end) fetch(item + kAtOnce);
      set(item, place_in_slots(slot, static_cast<uint64_t>(wanted[item])));
    }
  });
  return unknown.value();
}

TextIds::TextIds(const Texts& ids, uint64_t seed)
    : offsets_(ids.offsets, ids.offsets + ids.size + 1),
      bytes_(ids.bytes, ids.bytes + ids.offsets[ids.size]),
      seed_(seed),
      slots_(ids.size, seed) {
  for (int64_t place = 0; place < ids.size; ++place) {
    const uint8_t* bytes = bytes_.data() + offsets_[place];
    const int64_t length = offsets_[place + 1] - offsets_[place];
    const uint64_t key = hash_of(bytes, length, seed_);
    uint64_t slot = slots_.first(key);
    for (; slots_[slot].place != 0; slot = slots_.next(slot)) {
      if (slots_[slot].key == key && equal(slots_[slot].place - 1, bytes, length)) {
        repeated_ = {slots_[slot].place - 1, place};
        return;
      }
    }
    slots_[slot] = {key, place + 1};
  }
}

int64_t TextIds::num_bytes() const {
  return slots_.num_bytes() + static_cast<int64_t>(offsets_.size() * sizeof(int64_t)) +
         static_cast<int64_t>(bytes_.size());
}

bool TextIds::equal(int64_t place, const uint8_t* bytes, int64_t length) const {
  return offsets_[place + 1] - offsets_[place] == length &&
         std::equal(bytes, bytes + length, bytes_.data() + offsets_[place]);
}

int64_t TextIds::place_from(uint64_t slot, uint64_t key, const uint8_t* bytes,
                            int64_t length) const {
  for (; slots_[slot].place != 0; slot = slots_.next(slot)) {
    const int64_t place = slots_[slot].place - 1;
    if (slots_[slot].key == key && equal(place, bytes, length)) return place;
  }
  return -1;
}

template <typename Vertex>
int64_t TextIds::find(const Texts& wanted, Vertex* out, int num_threads) const {
  FirstUnknown unknown;
  parallel_for(wanted.size, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    std::array<uint64_t, kAtOnce> keys{}, slots{};
    for (int64_t first = begin; first < end; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, end - first);
      const int64_t* offsets = wanted.offsets + first;
      for (int64_t i = 0; i < count; ++i) {
        keys[i] = hash_of(wanted.bytes + offsets[i], offsets[i + 1] - offsets[i], seed_);
        slots[i] = slots_.first(keys[i]);
        slots_.prefetch(slots[i]);
      }
      for (int64_t i = 0; i < count; ++i) {  // most are found in their first slot
        const int64_t place = std::max<int64_t>(slots_[slots[i]].place - 1, 0);
        __builtin_prefetch(&offsets_[place]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = std::max<int64_t>(slots_[slots[i]].place - 1, 0);
        __builtin_prefetch(bytes_.data() + offsets_[place]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place =
            place_from(slots[i], keys[i], wanted.bytes + offsets[i], offsets[i + 1] - offsets[i]);
        out[first + i] = static_cast<Vertex>(place);
        if (place < 0) unknown.add(first + i);
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
