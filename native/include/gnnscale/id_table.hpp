// Where ids of any kind stand in the list that they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gnnscale/memory.hpp"

namespace gnnscale {

// Two places of a list that hold the same id; -1 where no id stands twice.
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
  void prefetch(uint64_t slot) const { __builtin_prefetch(&slots_.data()[slot]); }
  int64_t num_bytes() const { return static_cast<int64_t>((mask_ + 1) * sizeof(Slot)); }

 private:
  uint64_t seed_;
  uint64_t mask_;
  HugeArray<Slot> slots_;
};

// Ids that are whole numbers. Where they lie close together, a table of the range takes the place
// of the hash table. Nothing changes once it is made, so several threads may use it.
class IntegerIds {
 public:
  IntegerIds(const int64_t* ids, int64_t num_ids, uint64_t seed);

  int64_t size() const { return size_; }
  Repeated repeated() const { return repeated_; }
  int64_t num_bytes() const;

  // Writes the place of each of `wanted`, -1 where it is unknown. Returns the first that is
  // unknown, -1 where there is none.
  template <typename Vertex>
  int64_t find(const int64_t* wanted, int64_t num_wanted, Vertex* out, int num_threads) const;

 private:
  void fill_range(const int64_t* ids);
  void fill_slots(const int64_t* ids);
  int64_t place_of(int64_t id) const;
  int64_t place_in_slots(uint64_t slot, uint64_t key) const;

  int64_t size_;
  int64_t low_ = 0;
  uint64_t range_ = 0;  // 0 where the ids are in slots
  Repeated repeated_;
  std::unique_ptr<HugeArray<int32_t>> places_;  // [range] place plus 1, 0 for none
  std::unique_ptr<IdSlots> slots_;
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
