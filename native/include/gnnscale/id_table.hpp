// Index of external ids, numbers or texts: the position of each id in its list.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/prefetch.hpp"

namespace gnnscale {

// Two positions of a list with equal ids; -1 if all ids are distinct.
struct Repeated {
  int64_t first = -1;
  int64_t second = -1;
};

// Concatenated texts: text i has the bytes offsets[i] to offsets[i + 1] - 1.
struct Texts {
  const int64_t* offsets;
  const uint8_t* bytes;
  int64_t size;
};

// Open-addressing hash table: a slot has a key of 64 bits and a list position plus 1, so zeroed
// memory is an empty table. A secret seed prevents files with ids crafted to collide; results do
// not depend on the seed.
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

// Tables from whole numbers to list positions. Each has:
//   insert(key, place)  inserts; returns the position that the key already has, -1 for a new key
//   find(key)           returns the key's position, -1 if it has none
//   prefetch(key)       fetches the cache lines that `find` reads

// A position for every number below `range`.
class RangeTable {
 public:
  explicit RangeTable(uint64_t range) : range_(range), places_(static_cast<int64_t>(range)) {}
  int64_t insert(uint64_t key, int64_t place);
  int64_t find(uint64_t key) const { return key < range_ ? places_.data()[key] - 1 : -1; }
  void prefetch(uint64_t key) const { prefetch_far(&places_.data()[key < range_ ? key : 0]); }
  int64_t num_bytes() const { return static_cast<int64_t>(range_ * sizeof(int32_t)); }

 private:
  uint64_t range_;
  HugeArray<int32_t> places_;  // position plus 1; 0: none
};

// Hash table of one word a slot: the key in the upper bits, its position plus 1 in the lower bits.
class PackedTable {
 public:
  // Returns whether a word has enough bits for key and position.
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

// Hash table for arbitrary 64-bit keys.
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

// Index of whole-number ids, in the smallest table that holds them. Immutable after construction,
// so several threads may use it.
class IntegerIds {
 public:
  IntegerIds(const int64_t* ids, int64_t num_ids, uint64_t seed);

  int64_t size() const { return size_; }
  Repeated repeated() const { return repeated_; }
  int64_t num_bytes() const;

  // Writes the position of each of `wanted`, -1 for an unknown id. Returns the index of the first
  // unknown id, -1 if all are known.
  template <typename Vertex>
  int64_t find(const int64_t* wanted, int64_t num_wanted, Vertex* out, int num_threads) const;

 private:
  uint64_t key_of(int64_t id) const { return static_cast<uint64_t>(id) - low_; }

  int64_t size_;
  uint64_t low_ = 0;  // the lowest id; keys are offsets from it
  Repeated repeated_;
  std::variant<std::monostate, RangeTable, PackedTable, WideTable> table_;
};

// Index of text ids, compared byte by byte.
class TextIds {
 public:
  // Copies the texts.
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
