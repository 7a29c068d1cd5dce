#include "row_requests.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace gnnscale {
namespace {

constexpr int kMaxDigitBits = 11;
// Fewer keys are sorted faster by comparison.
constexpr int64_t kFewKeys = 2048;

bool row_less(RowKey a, RowKey b) { return a.bits < b.bits; }

void sort_by_digit(const RowKey* from, RowKey* to, int64_t size, int shift, int bits) {
  std::array<int64_t, 1 << kMaxDigitBits> offsets{};
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t i = 0; i < size; ++i) ++offsets[from[i].bits >> shift & mask];
  int64_t sum = 0;
  for (int64_t& offset : offsets) sum += std::exchange(offset, sum);
  for (int64_t i = 0; i < size; ++i) to[offsets[from[i].bits >> shift & mask]++] = from[i];
}

}  // namespace

RowKey* sort_by_row(RowKey* keys, RowKey* spare, int64_t size, int64_t num_rows) {
  if (std::is_sorted(keys, keys + size, row_less)) return keys;
  if (size <= kFewKeys) {
    std::sort(keys, keys + size, row_less);
    return keys;
  }
  const int row_bits = std::bit_width(static_cast<uint64_t>(num_rows - 1));
  const int num_digits = (row_bits + kMaxDigitBits - 1) / kMaxDigitBits;
  for (int digit = 0, at = 0; digit < num_digits; ++digit) {
    const int bits = (row_bits - at) / (num_digits - digit);
    sort_by_digit(keys, spare, size, RowKey::kSlotBits + at, bits);
    std::swap(keys, spare);
    at += bits;
  }
  return keys;
}

Requests::Requests(const RowFile& file, const ReaderOptions& options, int64_t alignment)
    : offset_(file.offset),
      row_bytes_(file.row_bytes),
      alignment_(alignment),
      max_gap_(options.max_gap_bytes),
      // A row may begin at the end of a block.
      max_bytes_(std::max(up(options.max_request_bytes), up(row_bytes_ + alignment - 1))) {}

Request Requests::next(const RowKey* keys, int64_t first, int64_t size) const {
  int64_t row = keys[first].row();
  int64_t row_end = start_of(row) + row_bytes_;
  const int64_t begin = down(start_of(row));
  int64_t end = up(row_end), distinct = 1, last = first + 1;
  for (; last < size; ++last) {
    const int64_t another = keys[last].row();
    if (another == row) continue;
    const int64_t start = start_of(another);
    if (down(start) - end > max_gap_ || up(start + row_bytes_) - begin > max_bytes_) break;
    row = another;
    row_end = start + row_bytes_;
    end = up(row_end);
    ++distinct;
  }
  return {begin, end - begin, row_end - begin, first, last, distinct};
}

void Requests::copy(const Request& request, const RowKey* keys, const uint8_t* bytes,
                    const RowPool& pool) const {
  for (int64_t k = request.first; k < request.last; ++k) {
    std::memcpy(pool.data + keys[k].slot() * pool.stride,
                bytes + (start_of(keys[k].row()) - request.begin), static_cast<size_t>(row_bytes_));
  }
}

}  // namespace gnnscale
