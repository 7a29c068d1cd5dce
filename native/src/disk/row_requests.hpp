// Merges rows of a file into aligned read requests.
#pragma once

#include <cstdint>

#include "gnnscale/row_reader.hpp"

namespace gnnscale {

// A row of the file, and its destination slot.
struct RowKey {
  static constexpr int kSlotBits = 31;
  static_assert(kMaxFileRows <= int64_t{1} << (64 - kSlotBits));

  uint64_t bits;

  static RowKey of(int64_t row, int32_t slot) {
    return {static_cast<uint64_t>(row) << kSlotBits | static_cast<uint32_t>(slot)};
  }
  int64_t row() const { return static_cast<int64_t>(bits >> kSlotBits); }
  int64_t slot() const { return static_cast<int64_t>(bits & ((uint64_t{1} << kSlotBits) - 1)); }
};

// Sorts keys by row. Overwrites both arrays; returns the one with the result.
RowKey* sort_by_row(RowKey* keys, RowKey* spare, int64_t size, int64_t num_rows);

// A range of the file that one read covers.
struct Request {
  int64_t begin = 0, length = 0;  // multiples of the alignment
  int64_t needed = 0;             // bytes from `begin` to the end of the last row
  int64_t first = 0, last = 0;    // range of its rows' keys
  int64_t distinct = 0;           // number of distinct rows
};

// Merges sorted rows into requests.
class Requests {
 public:
  Requests(const RowFile& file, const ReaderOptions& options, int64_t alignment);

  // Returns the maximum bytes of a request.
  int64_t max_bytes() const { return max_bytes_; }
  // Returns the request that begins with keys[first].
  Request next(const RowKey* keys, int64_t first, int64_t size) const;
  // Copies the rows of a request from its bytes to their slots.
  void copy(const Request& request, const RowKey* keys, const uint8_t* bytes,
            const RowPool& pool) const;

 private:
  int64_t start_of(int64_t row) const { return offset_ + row * row_bytes_; }
  int64_t down(int64_t at) const { return at & ~(alignment_ - 1); }
  int64_t up(int64_t at) const { return down(at + alignment_ - 1); }

  int64_t offset_, row_bytes_, alignment_, max_gap_, max_bytes_;
};

}  // namespace gnnscale
