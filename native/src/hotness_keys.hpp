// Order-preserving keys of numbers, and buckets of keys for counting sorts.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

namespace gnnscale {

// Returns a key that grows with a non-negative value. The key of any other value is arbitrary.
template <typename Value>
uint64_t key_of(Value value) {
  if constexpr (std::is_floating_point_v<Value>) {
    return std::bit_cast<uint32_t>(value + 0.0F);  // -0 becomes 0
  } else {
    return static_cast<std::make_unsigned_t<Value>>(value);
  }
}

// Buckets that grow with the key: one for each key below 2^(kBits + 1), then 2^kBits for each power
// of two. Buckets are fine-grained where most counts are, and few in total.
template <int kBits>
struct Buckets {
  static constexpr int64_t kNumExact = int64_t{2} << kBits;

  static constexpr int64_t of(uint64_t key) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(key)) - (kBits + 1));
    return (static_cast<int64_t>(shift) << kBits) + static_cast<int64_t>(key >> shift);
  }
};

// The arrays may be in memory that another process writes to.
[[noreturn]] inline void refuse_changed() {
  throw std::invalid_argument("hotness: changed while it was read, nobody else may write to it");
}

}  // namespace gnnscale
