// Tests of max aggregation and pair scores on every instruction set against plain loops. Buffers
// end where the last row does, so that the address sanitizer detects reads past the end.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "check.hpp"
#include "gnnscale/maxima.hpp"
#include "gnnscale/pair_scores.hpp"
#include "gnnscale/random.hpp"
#include "kernels.hpp"

using namespace gnnscale;

namespace {

constexpr int64_t kLengths[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 100, 511, 512, 530};
constexpr int64_t kDst = 4, kSrc = 6;
// Destination 0 has three edges, two of them equal, 1 has none, 2 has one, 3 has three.
const std::vector<int64_t> kIndptr{0, 3, 3, 4, 7};
const std::vector<int32_t> kIndices{5, 1, 1, 0, 2, 3, 5};
// The edges by source, and their positions.
const std::vector<int64_t> kBySource{0, 1, 3, 4, 5, 5, 7};
const std::vector<int32_t> kDestinations{2, 0, 0, 3, 3, 0, 3};
const std::vector<int64_t> kPlaces{3, 1, 2, 4, 5, 0, 6};

// Returns integers from -3 to 3, which every type represents and many of which are equal.
std::vector<float> numbers(int64_t size, uint64_t key) {
  std::vector<float> result(size);
  for (int64_t i = 0; i < size; ++i) result[i] = static_cast<float>(below(draw(key, i), 7)) - 3.0F;
  return result;
}

// Converts values to another type and back.
std::vector<unsigned char> stored(const std::vector<float>& values, DType dtype) {
  std::vector<unsigned char> bytes(values.size() * element_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
    dtype == DType::float32 ? std::memcpy(&bytes[4 * i], &values[i], 4)
                            : std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

std::vector<float> read(const std::vector<unsigned char>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / element_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    dtype == DType::float32 ? std::memcpy(&values[i], &bytes[4 * i], 4)
                            : std::memcpy(&half, &bytes[2 * i], 2);
    if (dtype != DType::float32) values[i] = std::bit_cast<float>(uint32_t{half} << 16);
  }
  return values;
}

void test_maxima_of(const MaximaKernels& kernels, DType dtype, int64_t length) {
  const std::vector<float> x = numbers(kSrc * length, 1), shares = numbers(kDst * length, 2);
  std::vector<float> largest(kDst * length, 0.0F), times(kDst * length, 0.0F);
  std::vector<float> grad(kSrc * length, 0.0F), counts(kDst * length, -1.0F);
  for (int64_t dst = 0; dst < kDst; ++dst) {
    for (int64_t j = 0; j < length; ++j) {
      float& maximum = largest[dst * length + j];
      for (int64_t edge = kIndptr[dst]; edge < kIndptr[dst + 1]; ++edge) {
        const float value = x[kIndices[edge] * length + j];
        maximum = edge == kIndptr[dst] ? value : std::max(maximum, value);
      }
      for (int64_t edge = kIndptr[dst]; edge < kIndptr[dst + 1]; ++edge) {
        const int64_t at = kIndices[edge] * length + j;
        times[dst * length + j] += x[at] == maximum;
        if (x[at] == maximum) grad[at] += shares[dst * length + j];
      }
    }
  }
  const std::vector<unsigned char> rows = stored(x, dtype);
  std::vector<unsigned char> out(kDst * length * element_bytes(dtype));
  const AggregateMax task{{rows.data(), dtype, length, length},
                          kIndptr.data(),
                          kIndices.data(),
                          kDst,
                          {out.data(), dtype, length, length},
                          {counts.data(), DType::float32, length, length}};
  kernels.aggregate_max(task, 0, 1);
  kernels.aggregate_max(task, 1, kDst);
  CHECK(read(out, dtype) == largest);
  CHECK(counts == times);
  std::vector<float> result(kSrc * length, -1.0F);
  const AggregateMaxBackward back{{rows.data(), dtype, length, length},
                                  {out.data(), dtype, length, length},
                                  {shares.data(), DType::float32, length, length},
                                  kBySource.data(),
                                  kDestinations.data(),
                                  kSrc,
                                  {result.data(), DType::float32, length, length}};
  kernels.aggregate_max_backward(back, 0, 2);
  kernels.aggregate_max_backward(back, 2, kSrc);
  CHECK(result == grad);
}

void test_maxima() {
  for (const Kernels& kernels : available_kernels()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const int64_t length : kLengths) test_maxima_of(*kernels.maxima, dtype, length);
    }
  }
}

struct Scored {
  std::vector<float> scores, own, z, attention;
  bool operator==(const Scored&) const = default;
};

// Integers and a slope of one half: plain loops are exact in any order.
void test_pairs_of(const PairKernels& kernels, int64_t heads, int64_t width) {
  const int64_t length = heads * width, num_edges = kIndptr.back();
  const std::vector<float> own_rows = numbers(kDst * length, 1), z = numbers(kSrc * length, 2),
                           attention = numbers(length, 3), grad = numbers(num_edges * heads, 4);
  const auto zeros = [](int64_t size) { return std::vector<float>(size, 0.0F); };
  Scored right{zeros(num_edges * heads), zeros(kDst * length), zeros(kSrc * length), zeros(length)};
  for (int64_t dst = 0; dst < kDst; ++dst) {
    for (int64_t edge = kIndptr[dst]; edge < kIndptr[dst + 1]; ++edge) {
      for (int64_t j = 0; j < length; ++j) {
        const int64_t at = edge * heads + j / width, src = kIndices[edge];
        const float pair = own_rows[dst * length + j] + z[src * length + j];
        const float slope = pair > 0 ? 1.0F : 0.5F;
        right.scores[at] += attention[j] * slope * pair;
        right.own[dst * length + j] += grad[at] * slope * attention[j];
        right.z[src * length + j] += grad[at] * slope * attention[j];
        right.attention[j] += grad[at] * slope * pair;
      }
    }
  }
  const PairScores task{own_rows.data(),
                        z.data(),
                        attention.data(),
                        kIndptr.data(),
                        kIndices.data(),
                        kDst,
                        kSrc,
                        heads,
                        width,
                        0.5F};
  Scored result{zeros(num_edges * heads), zeros(kDst * length), zeros(kSrc * length),
                zeros(length)};
  const MutableRows scores{result.scores.data(), DType::float32, heads, heads};
  kernels.scores(task, 0, 1, scores);
  kernels.scores(task, 1, kDst, scores);
  kernels.backward_of_dst(task, grad.data(), 0, kDst, result.own.data(), result.attention.data());
  const EdgesOfSources by_source{kBySource.data(), kDestinations.data(), kPlaces.data()};
  kernels.backward_of_src(task, grad.data(), by_source, 0, kSrc, result.z.data());
  CHECK(result == right);
  Scored whole{zeros(num_edges * heads), zeros(kDst * length), zeros(kSrc * length), zeros(length)};
  pair_scores(task, {whole.scores.data(), DType::float32, heads, heads}, 2);
  pair_scores_backward(task, grad.data(),
                       {whole.own.data(), whole.z.data(), whole.attention.data()}, 2);
  CHECK(whole == right);
}

void test_pairs() {
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t heads : {1, 3, 4}) {
      for (const int64_t width : kLengths) test_pairs_of(*kernels.pairs, heads, width);
    }
  }
}

}  // namespace

int main() {
  test_maxima();
  test_pairs();
  return check_result();
}
