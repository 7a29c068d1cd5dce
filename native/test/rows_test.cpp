// Tests of conversions, gather, aggregation, products and activations on every instruction set
// against plain loops. Buffers end where the last row does, so that the address sanitizer detects
// reads past the end.
#include "gnnscale/rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>

#include "check.hpp"
#include "gnnscale/attention.hpp"
#include "gnnscale/elementwise.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/simd.hpp"
#include "kernels.hpp"

using namespace gnnscale;

namespace {

constexpr DType kStored[] = {DType::float32, DType::float16, DType::bfloat16,
                             DType::uint8,   DType::int8,    DType::int4};
constexpr DType kComputed[] = {DType::float32, DType::bfloat16};

int64_t width_of(DType dtype) { return element_bytes(dtype); }

std::vector<int64_t> lengths() {
  std::vector<int64_t> all;
  for (int64_t length = 1; length <= 70; ++length) all.push_back(length);
  for (const int64_t length : {100, 128, 129, 255, 256}) all.push_back(length);
  return all;
}

// Returns an IEEE binary16 value by its definition.
float half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double sign = half >> 15 ? -1 : 1;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign * magnitude);
}

float bfloat16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Returns the nearest bfloat16; ties to even.
uint16_t nearest_bfloat16(float value) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const uint32_t low_bits = std::bit_cast<uint32_t>(value) & 0xffff;
  return low_bits > 0x8000 || (low_bits == 0x8000 && below % 2 == 1) ? below + 1 : below;
}

// Rows with random contents, stored as bytes of their type. The padding between rows with a scale
// has as many bytes as the padding between all other rows has elements.
struct Matrix {
  DType dtype;
  int64_t num_rows, length, stride;
  std::vector<unsigned char> bytes;

  Matrix(DType type, int64_t rows, int64_t columns, int64_t gap, uint64_t key)
      : dtype(type),
        num_rows(rows),
        length(columns),
        stride(has_scale(type) ? row_bytes(type, columns) - columns + gap : gap),
        bytes((rows - 1) * stride * width_of(type) + row_bytes(type, columns)) {
    if (has_scale(type)) {
      set_scaled(key);
      return;
    }
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()) / width_of(type); ++i) {
      set(i, static_cast<float>(static_cast<int64_t>(below(draw(key, i), 256)) -
                                (type == DType::uint8 ? 0 : 128)));
    }
  }
  void set_scaled(uint64_t key) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(below(draw(key, i), 256));
    }
    for (int64_t row = 0; row < num_rows; ++row) {
      const float scale = 0.37F * static_cast<float>(row);
      std::memcpy(&bytes[row * stride], &scale, sizeof scale);
    }
  }
  // Sets an element to a small integer or, in the wider types, a half-integer: exact in every type.
  void set(int64_t at, float value) {
    if (dtype == DType::float32) {
      value *= 0.5F;
      std::memcpy(&bytes[at * 4], &value, 4);
    } else if (dtype == DType::uint8) {
      bytes[at] = static_cast<unsigned char>(value);
    } else {
      const uint16_t half = dtype == DType::bfloat16 ? nearest_bfloat16(value) : half_of(value);
      std::memcpy(&bytes[at * 2], &half, 2);
    }
  }
  // For integers up to 2,048.
  static uint16_t half_of(float value) {
    if (value == 0) return 0;
    int exponent;
    const double mantissa = std::frexp(std::abs(value), &exponent);
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                                 (static_cast<int>(mantissa * 2048) & 1023));
  }
  float at(int64_t row, int64_t column) const {
    if (has_scale(dtype)) return scaled_at(&bytes[row * stride], column);
    const int64_t offset = row * stride + column;
    if (dtype == DType::uint8) return bytes[offset];
    if (dtype == DType::float32) {
      float value;
      std::memcpy(&value, &bytes[offset * 4], 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, &bytes[offset * 2], 2);
    return dtype == DType::bfloat16 ? bfloat16_value(half) : half_value(half);
  }
  float scaled_at(const unsigned char* row, int64_t column) const {
    float scale;
    std::memcpy(&scale, row, sizeof scale);
    if (dtype == DType::int8)
      return scale * static_cast<float>(static_cast<int8_t>(row[4 + column]));
    const int both = row[4 + column / 2], half = column % 2 == 0 ? both % 16 : both / 16;
    return scale * static_cast<float>(half < 8 ? half : half - 16);
  }
  Rows rows() const { return {bytes.data(), dtype, length, stride}; }
};

// Output rows between sentinels that must stay unchanged.
struct Output {
  static constexpr unsigned char kUntouched = 0xa5;
  DType dtype;
  int64_t num_rows, length, stride;
  std::vector<unsigned char> bytes;

  Output(DType type, int64_t rows, int64_t columns, int64_t row_stride)
      : dtype(type),
        num_rows(rows),
        length(columns),
        stride(row_stride),
        bytes(((rows - 1) * row_stride + columns) * width_of(type), kUntouched) {}
  MutableRows rows() { return {bytes.data(), dtype, length, stride}; }

  // Returns whether row i, column j is expected(i, j) rounded to the type, bit for bit.
  template <typename Expected>
  bool is(const Expected& expected) const {
    std::vector<unsigned char> expected_bytes(bytes.size(), kUntouched);
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        const float value = expected(i, j);
        const uint16_t half = nearest_bfloat16(value);
        const void* from = dtype == DType::float32 ? static_cast<const void*>(&value) : &half;
        std::memcpy(&expected_bytes[(i * stride + j) * width_of(dtype)], from, width_of(dtype));
      }
    }
    return expected_bytes == bytes;
  }
};

// All 65,536 patterns of the half types, in rows that are vectorized and in rows too short for
// vectors.
void test_every_half_float() {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<float> out(1 << 16);
  for (const Kernels& kernels : available_kernels()) {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      for (const int64_t length : {1, 256}) {
        const Gather task{{patterns.data(), dtype, length, length},
                          {},
                          (1 << 16) / length,
                          {out.data(), DType::float32, length, length}};
        std::fill(out.begin(), out.end(), 0.25F);
        kernels.rows->gather(task, 0, task.num_rows);
        int64_t num_wrong = 0;
        for (size_t i = 0; i < patterns.size(); ++i) {
          const float expected =
              dtype == DType::float16 ? half_value(patterns[i]) : bfloat16_value(patterns[i]);
          const bool same = std::isnan(expected) ? std::isnan(out[i])
                                                 : std::bit_cast<uint32_t>(expected) ==
                                                       std::bit_cast<uint32_t>(out[i]);
          num_wrong += !same;
        }
        CHECK(num_wrong == 0);
      }
    }
  }
}

// float32 → bfloat16 around every bfloat16: it, its neighbors, the tie and the tie's neighbors.
void test_rounding() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const auto size = static_cast<int64_t>(values.size());
  std::vector<uint16_t> out(size);
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t length : {int64_t{1}, size}) {
      const Gather task{{values.data(), DType::float32, length, length},
                        {},
                        size / length,
                        {out.data(), DType::bfloat16, length, length}};
      kernels.rows->gather(task, 0, task.num_rows);
      int64_t num_wrong = 0;
      for (int64_t i = 0; i < size; ++i) {
        num_wrong += std::isnan(values[i]) ? !std::isnan(bfloat16_value(out[i]))
                                           : out[i] != nearest_bfloat16(values[i]);
      }
      CHECK(num_wrong == 0);
    }
  }
}

// Outputs too large for the caches, in parts that begin anywhere on a cache line.
void test_large_gather() {
  constexpr int64_t kBytes = int64_t{5} << 20, kRows = 50;
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t length : {4, 20, 61, 64, 100}) {
      const Matrix x(DType::float32, kRows, length, length + 3, length);
      const int64_t num_rows = kBytes / (4 * length);
      std::vector<int32_t> ids(num_rows);
      for (int64_t i = 0; i < num_rows; ++i) ids[i] = static_cast<int32_t>(7 * i % kRows);
      for (const int64_t first : {0, 1, 4}) {
        std::vector<float> out(first + num_rows * length + 1, -1.0F);
        const Gather task{x.rows(),
                          {ids.data(), false},
                          num_rows,
                          {out.data() + first, DType::float32, length, length}};
        kernels.rows->gather(task, 3, num_rows);
        kernels.rows->gather(task, 0, 3);
        int64_t num_wrong = 0;
        for (int64_t i = 0; i < num_rows * length; ++i) {
          num_wrong += out[first + i] != x.at(ids[i / length], i % length);
        }
        CHECK(num_wrong == 0 && out.back() == -1 && (first == 0 || out[first - 1] == -1));
      }
    }
  }
}

void test_gather() {
  const std::vector<int64_t> wide{6, 0, 6, 3, 1, 5, 2};
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  for (const Kernels& kernels : available_kernels()) {
    for (const DType in : kStored) {
      for (const DType to : kComputed) {
        for (const int64_t length : lengths()) {
          const Matrix x(in, 7, length, length + 3, length);
          for (const RowIds ids :
               {RowIds{wide.data(), true}, RowIds{narrow.data(), false}, RowIds{}}) {
            Output out(to, 7, length, length + 5);
            kernels.rows->gather({x.rows(), ids, 7, out.rows()}, 0, 7);
            CHECK(out.is([&](int64_t i, int64_t j) { return x.at(ids[i], j); }));
          }
          // Two pieces of the output, from arbitrary addresses.
          const auto row = [&](int64_t i) { return &x.bytes[i * x.stride * width_of(in)]; };
          const void* const rows[] = {row(6), row(3), row(0), row(1), row(3)};
          Output out(to, 5, length, length + 5);
          const Gather task{{nullptr, in, length, 0}, {}, 5, out.rows()};
          kernels.rows->gather_at(task, rows, 0, 2);
          kernels.rows->gather_at(task, rows + 2, 2, 5);
          const int64_t from[] = {6, 3, 0, 1, 3};
          CHECK(out.is([&](int64_t i, int64_t j) { return x.at(from[i], j); }));
        }
      }
    }
  }
}

// Returns floats of many magnitudes, whose sums depend on the order.
std::vector<float> rounded_floats(int64_t size, uint64_t key) {
  std::vector<float> all(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t random = draw(key, i);
    const double unit = static_cast<double>(random >> 11) * 0x1p-53 - 0.5;
    all[i] = static_cast<float>(std::ldexp(unit, static_cast<int>(random % 12)));
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Five destinations: with several neighbors, with a repeated neighbor, without any, and with more
// neighbors than the prefetch distance.
struct Block {
  std::vector<int64_t> indptr{0, 3, 5, 5, 6, 30};
  std::vector<int32_t> indices{0, 5, 2, 4, 4, 1};
  std::vector<int64_t> edge_rows;
  std::vector<int32_t> self_ids{1, 8, 2, 10, 0};
  std::vector<float> weights, dst_scale, self_scale;

  Block() {
    for (int i = 6; i < 30; ++i) indices.push_back(i * 7 % 6);
    for (int i = 0; i < 30; ++i) edge_rows.push_back(i * 5 % 12);
    for (int i = 0; i < 60; ++i) weights.push_back(0.1F * static_cast<float>(i) - 1.0F);
    for (int i = 0; i < 5; ++i) {
      dst_scale.push_back(1.0F / static_cast<float>(i + 3));
      self_scale.push_back(0.3F * static_cast<float>(i) - 0.4F);
    }
  }
};

// Returns one element of `aggregate`, by its documented operations in their order.
float reference(const Aggregate& task, const Matrix& x, const Matrix* self, const Matrix* gate,
                int64_t dst, int64_t column) {
  float sum = 0.0F;
  for (int64_t e = task.indptr[dst]; e < task.indptr[dst + 1]; ++e) {
    float value = x.at(task.ids_per_edge ? task.ids[e] : task.indices[e], column);
    if (task.weights != nullptr) value *= task.weights[e * task.weight_stride];
    sum += value;
  }
  if (task.dst_scale != nullptr) sum *= task.dst_scale[dst];
  if (dst < task.num_self) {
    const float own_value = self->at(task.self_ids[dst], column);
    const float scaled = task.self_scale != nullptr ? own_value * task.self_scale[dst] : own_value;
    sum += scaled;
  }
  return gate != nullptr && !(gate->at(dst, column) > 0) ? 0.0F : sum;
}

void test_aggregate_of(const Kernels& kernels, const Block& block, DType in, DType to,
                       int64_t length, unsigned options) {
  const Matrix x(in, 12, length, length + 1, length);
  const DType self_type = kStored[options % std::size(kStored)];
  const Matrix self(self_type, 12, length, length + 2, length + 1000);
  const Matrix gate(to, 5, length, length, length + 2000);
  Output out(to, 5, length, length + 3);
  Aggregate task{x.rows(), {}, block.indptr.data(), block.indices.data(), 5};
  if (options & 1) {
    task.ids = {block.edge_rows.data(), true};
    task.ids_per_edge = true;
  }
  if (options & 2) {
    task.weights = block.weights.data();
    task.weight_stride = 1 + (options & 1);
  }
  if (options & 4) task.dst_scale = block.dst_scale.data();
  if (options & 8) {
    task.self = self.rows();
    task.num_self = options & 1 ? 5 : 3;
    if (options & 2) task.self_ids = {block.self_ids.data(), false};
    if (options & 4) task.self_scale = block.self_scale.data();
  }
  if (options & 16) task.gate = gate.rows();
  task.out = out.rows();
  kernels.rows->aggregate(task, 0, 2);
  kernels.rows->aggregate(task, 2, 5);
  CHECK(out.is([&](int64_t i, int64_t j) {
    return reference(task, x, &self, options & 16 ? &gate : nullptr, i, j);
  }));
}

void test_aggregate() {
  const Block block;
  for (const Kernels& kernels : available_kernels()) {
    for (const DType in : kStored) {
      for (const DType to : kComputed) {
        for (const int64_t length : lengths()) {
          // Every combination of options for some lengths, one option at a time for all other
          // lengths.
          const bool all = length == 3 || length == 16 || length == 37;
          for (unsigned options = 0; options < 32; ++options) {
            if (all || options % 8 == length % 8) {
              test_aggregate_of(kernels, block, in, to, length, options);
            }
          }
        }
      }
    }
  }
}

// A NaN gate closes, in rows of any length.
void test_nan_gate() {
  const std::vector<int64_t> indptr{0, 1};
  const std::vector<int32_t> indices{0};
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t length : {1, 32}) {
      const std::vector<float> x(length, 2.0F);
      const std::vector<float> gate(length, std::numeric_limits<float>::quiet_NaN());
      std::vector<float> out(length, 9.0F);
      Aggregate task{
          {x.data(), DType::float32, length, length}, {}, indptr.data(), indices.data(), 1};
      task.gate = {gate.data(), DType::float32, length, length};
      task.out = {out.data(), DType::float32, length, length};
      kernels.rows->aggregate(task, 0, 1);
      CHECK(out == std::vector<float>(length, 0.0F));
    }
  }
}

// The public functions, which split the work: more rows than one work item.
void test_threads() {
  constexpr int64_t kRows = 3000, kLength = 40;
  const Matrix x(DType::float16, 100, kLength, kLength, 1);
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  for (int64_t dst = 0; dst < kRows; ++dst) {
    for (uint64_t i = 0; i < below(draw(5, dst), 20); ++i) {
      indices.push_back(static_cast<int32_t>(below(draw(combine(5, dst), i), 100)));
    }
    indptr.push_back(static_cast<int64_t>(indices.size()));
  }
  for (const int threads : {1, 2, 4}) {
    Output sums(DType::float32, kRows, kLength, kLength);
    Aggregate task{x.rows(), {}, indptr.data(), indices.data(), kRows};
    task.out = sums.rows();
    aggregate(task, threads);
    CHECK(
        sums.is([&](int64_t i, int64_t j) { return reference(task, x, nullptr, nullptr, i, j); }));

    Output copies(DType::bfloat16, static_cast<int64_t>(indices.size()), kLength, kLength);
    gather({x.rows(), {indices.data(), false}, copies.num_rows, copies.rows()}, threads);
    CHECK(copies.is([&](int64_t i, int64_t j) { return x.at(indices[i], j); }));
  }
}

// A destination with most of the edges, whose columns threads share, placed first, last and in
// between.
void test_hubs() {
  constexpr int64_t kRows = 40, kEdges = 9000;
  for (const int64_t hub : {int64_t{0}, int64_t{17}, kRows - 1}) {
    for (const int64_t length : {1, 64, 151, 256}) {
      const DType in = length == 151 ? DType::int4 : length == 64 ? DType::int8 : DType::float32;
      const Matrix x(in, 100, length, length + 1, 1), self(DType::bfloat16, 50, length, length, 2);
      const Matrix gate(DType::float32, kRows, length, length, 3);
      std::vector<int64_t> indptr{0};
      for (int64_t dst = 0; dst < kRows; ++dst) {
        indptr.push_back(indptr.back() + (dst == hub ? kEdges : dst % 3));
      }
      std::vector<int32_t> indices(indptr.back()), self_ids(kRows);
      for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i * 7 % 100);
      for (int64_t i = 0; i < kRows; ++i) self_ids[i] = static_cast<int32_t>(i * 3 % 50);
      for (const int threads : {1, 2, 4}) {
        Output out(DType::float32, kRows, length, length + 2);
        Aggregate task{x.rows(), {}, indptr.data(), indices.data(), kRows};
        task.self = self.rows();
        task.self_ids = {self_ids.data(), false};
        task.num_self = kRows - 2;
        task.gate = gate.rows();
        task.out = out.rows();
        aggregate(task, threads);
        CHECK(out.is([&](int64_t i, int64_t j) { return reference(task, x, &self, &gate, i, j); }));
      }
    }
  }
}

// Sums continued over several calls equal the sums of one call.
void test_continued_sums() {
  const Block block;
  constexpr int64_t kLength = 144;
  const std::vector<float> x = rounded_floats(12 * kLength, 5);
  std::vector<std::vector<float>> results;
  for (const Kernels& kernels : available_kernels()) {
    std::vector<float> whole(5 * kLength), parts(5 * kLength);
    Aggregate task{{x.data(), DType::float32, kLength, kLength},
                   {block.edge_rows.data(), true},
                   block.indptr.data(),
                   nullptr,
                   5};
    task.ids_per_edge = true;
    task.weights = block.weights.data();
    task.out = {whole.data(), DType::float32, kLength, kLength};
    kernels.rows->aggregate(task, 0, 5);
    // The last destination's 24 edges in two calls; the second one must not change other rows.
    std::vector<int64_t> first = block.indptr;
    first.back() = 13;
    const std::vector<int32_t> all{0, 1, 2, 3, 4}, last{4};
    const std::vector<int64_t> second{13, 30};
    task.out.data = parts.data();
    task.indptr = first.data();
    task.out_ids = all.data();
    kernels.rows->aggregate(task, 0, 5);
    task.indptr = second.data();
    task.out_ids = last.data();
    task.num_dst = 1;
    kernels.rows->aggregate(task, 0, 1);
    CHECK(same_bits(whole, parts));
    results.push_back(parts);
    CHECK(same_bits(results.front(), parts));
  }
}

void test_dot() {
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t length : lengths()) {
      const Matrix a(DType::float32, 1, length, length, 3), b(DType::float32, 1, length, length, 4);
      double expected = 0;
      for (int64_t j = 0; j < length; ++j) {
        expected += static_cast<double>(a.at(0, j)) * static_cast<double>(b.at(0, j));
      }
      // Sums of quarters below 2^22 are exact in float32.
      const auto* a_row = reinterpret_cast<const float*>(a.bytes.data());
      const auto* x_row = reinterpret_cast<const float*>(b.bytes.data());
      CHECK(static_cast<double>(kernels.rows->dot(a_row, x_row, length)) == expected);
    }
  }
  // Two destinations, three edges, a head of two columns.
  const std::vector<float> a{1, 2, 3, 4}, x{1, 0, 0, 1, 5, 5};
  const std::vector<int64_t> indptr{0, 1, 3};
  const std::vector<int32_t> indices{2, 0, 1};
  std::vector<float> out(6, -1.0F);
  edge_dot({a.data(), DType::float32, 2, 2}, {x.data(), DType::float32, 2, 2}, indptr.data(),
           indices.data(), 2, out.data(), 2, 2);
  CHECK((out == std::vector<float>{15, -1, 3, -1, 4, -1}));
}

// Returns a dot product by its definition: partial sums of every sixteenth column, then a tree.
float dot_by_definition(const float* a, const float* b, int64_t length) {
  float partial[16] = {};
  for (int64_t j = 0; j < length; ++j) {
    const float product = a[j] * b[j];
    partial[j % 16] += product;
  }
  for (const int half : {8, 4, 2, 1}) {
    for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

void test_instruction_sets_give_the_same_bits() {
  const Block block;
  for (const int64_t length : lengths()) {
    const std::vector<float> x = rounded_floats(12 * length, 1), y = rounded_floats(length, 2);
    const Rows rows{x.data(), DType::float32, length, length};
    std::vector<std::vector<float>> dots, sums, dropped;
    for (const Kernels& kernels : available_kernels()) {
      std::vector<float>& products = dots.emplace_back();
      for (int64_t i = 0; i < 12; ++i) {
        products.push_back(kernels.rows->dot(x.data() + i * length, y.data(), length));
        CHECK(products.back() == dot_by_definition(x.data() + i * length, y.data(), length));
      }
      sums.emplace_back(5 * length);
      Aggregate task{rows, {}, block.indptr.data(), block.indices.data(), 5};
      task.weights = block.weights.data();
      task.dst_scale = block.dst_scale.data();
      task.self = rows;
      task.self_ids = {block.self_ids.data(), false};
      task.self_scale = block.self_scale.data();
      task.num_self = 4;
      task.out = {sums.back().data(), DType::float32, length, length};
      kernels.rows->aggregate(task, 0, 5);
      const std::vector<int32_t> vertices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
      std::vector<float>& output = dropped.emplace_back(x);
      kernels.activation->relu_dropout({{output.data(), DType::float32, length, length},
                                        {vertices.data(), false},
                                        12,
                                        42,
                                        1 << 14,
                                        1.0F / 0.75F},
                                       0, 12);
      CHECK(same_bits(dots.back(), dots.front()));
      CHECK(same_bits(sums.back(), sums.front()));
      CHECK(same_bits(dropped.back(), dropped.front()));
    }
  }
}

// Returns one element of relu_dropout.
float dropped(const ReluDropout& task, float x, int64_t row, int64_t column) {
  const auto vertex = static_cast<uint64_t>(task.vertices[row]);
  const uint64_t random = draw(combine(task.key, vertex), static_cast<uint64_t>(column / 4));
  const auto bits = static_cast<uint16_t>(random >> 16 * (column % 4));
  return bits < task.drop || x <= 0 ? 0.0F : x * task.scale;
}

void test_relu_dropout(const Kernels& kernels, DType dtype, int64_t rows, int64_t length,
                       uint32_t drop) {
  const Matrix x(dtype, rows, length, length, 1);
  std::vector<int32_t> narrow(rows);
  std::vector<int64_t> wide(rows);
  for (int64_t i = 0; i < rows; ++i) wide[i] = narrow[i] = static_cast<int32_t>(i * 7919 % 1000);
  for (const RowIds& ids : {RowIds{narrow.data(), false}, RowIds{wide.data(), true}}) {
    std::vector<unsigned char> bytes = x.bytes;
    const float scale = drop == 0 ? 1.0F : 1.5F;
    const ReluDropout task{{bytes.data(), dtype, length, length}, ids, rows, 42, drop, scale};
    // Two calls: a row's draws must not depend on where a thread starts.
    kernels.activation->relu_dropout(task, rows / 3, rows);
    kernels.activation->relu_dropout(task, 0, rows / 3);
    bool same = true;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        const auto* at = bytes.data() + (i * length + j) * (dtype == DType::float32 ? 4 : 2);
        const float expected = dropped(task, x.at(i, j), i, j);
        uint16_t half;
        float found;
        std::memcpy(&half, at, 2);
        if (dtype == DType::float32) std::memcpy(&found, at, 4);
        same &= dtype == DType::float32 ? found == expected : half == nearest_bfloat16(expected);
      }
    }
    CHECK(same);
  }
}

void test_relu_dropout() {
  for (const Kernels& kernels : available_kernels()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const uint32_t drop : {0u, 1u << 14, 65535u}) {
        const std::vector<int64_t> more{20, 100, 256, 2047, 2048, 2049, 4101};
        for (const int64_t length : more) test_relu_dropout(kernels, dtype, 5, length, drop);
        for (int64_t length = 0; length < 18; ++length) {
          test_relu_dropout(kernels, dtype, 700, length, drop);
        }
      }
    }
  }
}

// The public functions, which split the work.
void test_threads_of_relu_dropout() {
  constexpr int64_t kRows = 30000, kLength = 10, kSize = kRows * kLength;
  std::vector<float> x(kSize), expected;
  for (int64_t i = 0; i < kSize; ++i) x[i] = i % 3 == 0 ? -1.0F : 2.0F;
  std::vector<int32_t> vertices(kRows);
  for (int32_t i = 0; i < kRows; ++i) vertices[i] = i;
  for (const int threads : {1, 2, 4}) {
    std::vector<float> y = x;
    relu_dropout({{y.data(), DType::float32, kLength, kLength},
                  {vertices.data(), false},
                  kRows,
                  42,
                  1 << 14,
                  1.5F},
                 threads);
    if (expected.empty()) expected = y;
    CHECK(y == expected);
    std::vector<float> grad(kSize, 2.0F), out(kSize, -1.0F);
    relu_dropout_backward(y.data(), grad.data(), out.data(), DType::float32, kSize, 1.5F, threads);
    CHECK(std::equal(out.begin(), out.end(), y.begin(),
                     [](float a, float b) { return a == (b > 0 ? 3.0F : 0.0F); }));
  }
  // 200,000 positive elements, a quarter dropped: the standard deviation is 194.
  const auto num_kept = std::count(expected.begin(), expected.end(), 3.0F);
  CHECK(std::abs(num_kept - 150000) < 800);
  CHECK(std::count(expected.begin(), expected.end(), 0.0F) == kSize - num_kept);
}

bool is_near(float a, double b) { return std::abs(static_cast<double>(a) - b) < 1e-6; }

void test_edge_softmax() {
  // Destination 0 has two edges, 1 none, 2 one; two heads.
  const std::vector<int64_t> indptr{0, 2, 2, 3};
  const std::vector<float> scores{0, 1000, std::log(3.0F), 1000, 7, -1000};
  std::vector<float> alpha(6), grad_scores(6);
  edge_softmax(indptr.data(), 3, 2, scores.data(), nullptr, alpha.data(), 2);
  const std::vector<double> expected{0.25, 0.5, 0.75, 0.5, 1, 1};
  for (size_t i = 0; i < 6; ++i) CHECK(is_near(alpha[i], expected[i]));
  const std::vector<float> grad{1, 2, 0, 4, 5, 5};
  edge_softmax_backward(indptr.data(), 3, 2, alpha.data(), grad.data(), grad_scores.data(), 2);
  const std::vector<double> expected_grad{0.1875, -0.5, -0.1875, 0.5, 0, 0};
  for (size_t i = 0; i < 6; ++i) CHECK(is_near(grad_scores[i], expected_grad[i]));
  const std::vector<float> bias{3, 1, 2};
  edge_softmax(indptr.data(), 3, 2, scores.data(), bias.data(), alpha.data(), 1);
  CHECK(is_near(alpha[0], 0.5) && is_near(alpha[1], 0.75) && is_near(alpha[4], 1));
}

// The exponential rounds correctly over the range of score differences: of two edges, the first
// with the largest score, the weights before division are 1 and e^x.
void test_exponentials() {
  constexpr int64_t kPairs = 200000;
  std::vector<int64_t> indptr{0};
  std::vector<float> scores, alpha(2 * kPairs);
  for (int64_t i = 0; i < kPairs; ++i) {
    indptr.push_back(2 * (i + 1));
    scores.push_back(0.0F);
    scores.push_back(static_cast<float>(-110.0 * static_cast<double>(draw(9, i) >> 11) * 0x1p-53));
  }
  edge_softmax(indptr.data(), kPairs, 1, scores.data(), nullptr, alpha.data(), 2);
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < kPairs; ++i) {
    const auto value = static_cast<float>(std::exp(static_cast<double>(scores[2 * i + 1])));
    num_wrong += alpha[2 * i + 1] != value / (1.0F + value);
  }
  CHECK(num_wrong == 0);
  // Differences beyond the range of floats, infinities and NaN.
  const std::vector<int64_t> three{0, 2, 4, 6};
  const float inf = std::numeric_limits<float>::infinity();
  scores = {0, -inf, 3e38F, -3e38F, std::numeric_limits<float>::quiet_NaN(), 0};
  edge_softmax(three.data(), 3, 1, scores.data(), nullptr, alpha.data(), 1);
  CHECK(alpha[0] == 1 && alpha[1] == 0 && alpha[2] == 1 && alpha[3] == 0 && std::isnan(alpha[4]));
}

void test_gather_columns() {
  const int32_t ids[] = {4, 0, 4, 2, 1};
  for (const Kernels& kernels : available_kernels()) {
    for (const DType in : kStored) {
      for (const int64_t length : lengths()) {
        const Matrix x(in, 5, length, length + 3, length);
        const int64_t more = length % 2;  // padding words beyond the row
        const int64_t num_words = (length + kWordColumns - 1) / kWordColumns + more;
        std::vector<float> out(num_words * 5 * kWordColumns, -1.0F);
        const GatherColumns task{x.rows(), {ids, false}, 5, num_words, out.data()};
        kernels.rows->gather_columns(task, 0, 2);
        kernels.rows->gather_columns(task, 2, 5);
        bool x_row = true;
        for (int64_t c = 0; c < num_words; ++c) {
          for (int64_t i = 0; i < 5; ++i) {
            for (int64_t lane = 0; lane < kWordColumns; ++lane) {
              const int64_t j = c * kWordColumns + lane;
              x_row &=
                  out[(c * 5 + i) * kWordColumns + lane] == (j < length ? x.at(ids[i], j) : 0.0F);
            }
          }
        }
        CHECK(x_row);
      }
    }
  }
}

}  // namespace

int main() {
  const char* level = name_of(isa());
  std::printf("kernels in use: %s\n", level);
  CHECK(std::string_view(level) == available_kernels().back().rows->name);
  test_every_half_float();
  test_rounding();
  test_gather();
  test_large_gather();
  test_gather_columns();
  test_aggregate();
  test_nan_gate();
  test_threads();
  test_hubs();
  test_continued_sums();
  test_dot();
  test_instruction_sets_give_the_same_bits();
  test_relu_dropout();
  test_threads_of_relu_dropout();
  test_edge_softmax();
  test_exponentials();
  return check_result();
}
