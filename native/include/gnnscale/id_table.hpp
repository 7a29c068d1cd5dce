// Where ids of any kind stand in the list that they come from.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/prefetch.hpp"

namespace gnnscale {

// Two places of a list that hold the same id; -1 if no id stands twice.
struct Repeated {
  int64_t first = -1;
  int64_t second = -1;
};

// Texts one after the other: text i has the bytes from offsets[i] to offsets[i + 1].
struct Texts {
  const int64_t* offsets;
  const uint8_t* bytes;
  int64_t size;
};

// An open-addressing hash table: a key of 64 bits, and a place of the list plus 1, so that memory
// of zeros is an empty table. A seed that nobody can foresee keeps the ids of a file from being
// made to collide; no answer depends on it.
class IdSlots {
 public:
  struct Slot {
    uint64_t key;
    int64_t place;
  };

  IdSlots(int64_t num_ids, uint64_t seed);

  uint64_t first(uint64_t key) const;
  uint64_t next(uint64_t slot) const { return (slot + 1) & mask_; }
  Slot& operator[](uint64_t slot) const { return slots_.data()[slot]; }
  void prefetch(uint64_t slot) const { prefetch_far(&slots_.data()[slot]); }
  int64_t num_bytes() const { return static_cast<int64_t>((mask_ + 1) * sizeof(Slot)); }

 private:
  uint64_t seed_;
  uint64_t mask_;
  HugeArray<Slot> slots_;
};

// Tables of whole numbers, each with its place. All have:
//   insert(key, place)  the place that has the key already, -1 if the key is new
//   find(key)           its place, -1 if it has none
//   prefetch(key)       brings what `find` reads into the cache

// A place for every number below `range`.
class RangeTable {
 public:
  explicit RangeTable(uint64_t range) : range_(range), places_(static_cast<int64_t>(range)) {}
  int64_t insert(uint64_t key, int64_t place);
  int64_t find(uint64_t key) const { return key < range_ ? places_.data()[key] - 1 : -1; }
  void prefetch(uint64_t key) const { prefetch_far(&places_.data()[key < range_ ? key : 0]); }
  int64_t num_bytes() const { return static_cast<int64_t>(range_ * sizeof(int32_t)); }

 private:
  uint64_t range_;
  HugeArray<int32_t> places_;  // plus 1, 0 for none
};

// A hash table whose slots are words: a key above, its place plus 1 below.
class PackedTable {
 public:
  // Whether words have enough bits.
  static bool fits(int64_t num_ids, uint64_t last_key);

  PackedTable(int64_t num_ids, uint64_t seed);
  int64_t insert(uint64_t key, int64_t place);
  int64_t find(uint64_t key) const;
  void prefetch(uint64_t key) const { prefetch_far(&words_.data()[first(key)]); }
  int64_t num_bytes() const { return static_cast<int64_t>((mask_ + 1) * sizeof(uint64_t)); }

 private:
  uint64_t first(uint64_t key) const;

  uint64_t seed_;
  uint64_t mask_;
  int place_bits_;
  HugeArray<uint64_t> words_;
};

// A hash table of any keys.
class WideTable {
 public:
  WideTable(int64_t num_ids, uint64_t seed) : slots_(num_ids, seed) {}
  int64_t insert(uint64_t key, int64_t place);
  int64_t find(uint64_t key) const;
  void prefetch(uint64_t key) const { slots_.prefetch(slots_.first(key)); }
  int64_t num_bytes() const { return slots_.num_bytes(); }

 private:
  IdSlots slots_;
};

// Ids that are whole numbers, in the smallest table that holds them. Nothing changes once it is
// made, so several threads may use it.
class IntegerIds {
 public:
  IntegerIds(const int64_t* ids, int64_t num_ids, uint64_t seed);

  int64_t size() const { return size_; }
  Repeated repeated() const { return repeated_; }
  int64_t num_bytes() const;

  // Writes the place of each of `wanted`, -1 if it is unknown. Returns the first that is
  // unknown, -1 if there is none.
  template <typename Vertex>
  int64_t find(const int64_t* wanted, int64_t num_wanted, Vertex* out, int num_threads) const;

 private:
  uint64_t key_of(int64_t id) const { return static_cast<uint64_t>(id) - low_; }

  int64_t size_;
  uint64_t low_ = 0;  // the lowest id; keys are distances from it
  Repeated repeated_;
  std::variant<std::monostate, RangeTable, PackedTable, WideTable> table_;
};

// The same of ids that are texts, compared byte by byte.
class TextIds {
 public:
  // The texts are copied.
  TextIds(const Texts& ids, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  Repeated repeated() const { return repeated_; }
  int64_t num_bytes() const;

  template <typename Vertex>
  int64_t find(const Texts& wanted, Vertex* out, int num_threads) const;

 private:
  bool equal(int64_t place, const uint8_t* bytes, int64_t length) const;
  int64_t place_from(uint64_t slot, uint64_t key, const uint8_t* bytes, int64_t length) const;

  std::vector<int64_t> offsets_;
  std::vector<uint8_t> bytes_;
  uint64_t seed_;
  Repeated repeated_;
  IdSlots slots_;
};

}  // namespace gnnscale
