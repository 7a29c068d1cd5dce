// Sums with a fixed order of additions on every instruction set, independent of its vector width.
// Included once per instruction set, as vector.hpp is.
#pragma once

#include "vector.hpp"

namespace gnnscale {
namespace {

typedef float Four __attribute__((vector_size(16)));

template <typename V>
inline V load_as(const float* from) {
  V out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}

// Returns the sum of term(j) for `length` columns j. term.operator()<V>(j) returns as many terms
// from j on as V holds: Vec, Four or float. Column j is added to partial sum j modulo 16, and the
// partial sums in a tree of halves.
template <typename Term>
inline float sum_in_halves(int64_t length, Term&& term) {
  if (length < 4) {  // equals the general case in fewer instructions
    const auto sum_of = [&](int64_t j) {
      return j < length ? 0.0F + term.template operator()<float>(j) : 0.0F;
    };
    return (sum_of(0) + sum_of(2)) + sum_of(1);
  }
  constexpr int kPartial = 16, kVectors = kPartial / kWidth;
  Vec sum[kVectors] = {};
  int64_t j = 0;
  for (; j + kPartial <= length; j += kPartial) {
    for (int k = 0; k < kVectors; ++k) sum[k] += term.template operator()<Vec>(j + k * kWidth);
  }
  Four partial[4];
  __builtin_memcpy(partial, sum, sizeof partial);
  for (; j + 4 <= length; j += 4) partial[j / 4 % 4] += term.template operator()<Four>(j);
  for (; j < length; ++j) partial[j / 4 % 4][j % 4] += term.template operator()<float>(j);
  const Four total = (partial[0] + partial[2]) + (partial[1] + partial[3]);
  return (total[0] + total[2]) + (total[1] + total[3]);
}

inline float dot(const float* a, const float* b, int64_t length) {
  return sum_in_halves(
      length, [&]<typename V>(int64_t j) { return load_as<V>(a + j) * load_as<V>(b + j); });
}

}  // namespace
}  // namespace gnnscale
