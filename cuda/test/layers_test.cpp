// Tests of aggregation, coefficients, activation and attention over a block against loops, for the
// sanitizers. Arrays end at their capacity, with garbage after the block's own edges.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/activation.cu"
#include "kernels/aggregate.cu"
#include "kernels/attention.cu"
#include "kernels/coefficients.cu"

using namespace gnnscale::cuda_host;

namespace {

constexpr int64_t kDst = 37, kSrc = 90, kSpare = 5;
constexpr int32_t kGarbage = 1 << 30;

template <typename... Arguments>
void run(const std::string& name, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, 3, 256, cells, 2);
  }
  CHECK(false);
}

float number(int64_t i) { return static_cast<float>(i * 7919 % 61 - 30) / 8; }

std::vector<float> numbers(int64_t count) {
  std::vector<float> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = number(i);
  return out;
}

struct Lists {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::vector<int64_t> vertices = {kDst, kSrc};  // destinations, sources
  int64_t edges = 0, capacity = 0;

  Lists() {
    for (int64_t dst = 0; dst < kDst; ++dst) indptr.push_back(indptr.back() + dst * 5 % 11);
    edges = indptr.back();
    capacity = edges + kSpare;
    for (int64_t edge = 0; edge < edges; ++edge) {
      indices.push_back(static_cast<int32_t>(edge * 31 % kSrc));
    }
    indices.resize(capacity, kGarbage);
    indptr.resize(kDst + kSpare + 1, kGarbage);
  }
};

void check_aggregation(const Lists& block, int64_t width, int columns) {
  const auto x = numbers(kSrc * width), weights = numbers(block.capacity), scale = numbers(kDst);
  const int64_t rows = kDst + kSpare;
  std::vector<float> out(rows * width, NAN);
  const int64_t row_bytes = width * 4, zero = 0, one = 1;
  const void* null = nullptr;
  run("aggregate_4_" + std::to_string(columns), x.data(), row_bytes, zero, width,
      block.indptr.data(), block.indices.data(), null, zero, weights.data(), one, scale.data(),
      null, x.data(), row_bytes, null, zero, out.data(), row_bytes, zero, null, rows,
      block.vertices.data(), block.vertices.data());
  for (int64_t dst = 0; dst < rows; ++dst) {
    for (int64_t j = 0; j < width; ++j) {
      float sum = 0;
      if (dst < kDst) {
        for (int64_t edge = block.indptr[dst]; edge < block.indptr[dst + 1]; ++edge) {
          sum += weights[edge] * x[block.indices[edge] * width + j];
        }
        sum = sum * scale[dst] + x[dst * width + j];
      }
      CHECK(out[dst * width + j] == sum);
    }
  }
}

void check_transpose(const Lists& block) {
  std::vector<int32_t> keys(block.capacity), destinations(block.capacity, kGarbage);
  run("block_edges", block.indptr.data(), block.indices.data(), block.vertices.data(), &block.edges,
      block.capacity, static_cast<int32_t>(kSrc), keys.data(), destinations.data());
  std::vector<int64_t> order(block.capacity);
  for (int64_t i = 0; i < block.capacity; ++i) order[i] = block.capacity - 1 - i;
  std::vector<int32_t> turned(block.capacity);
  std::vector<float> weights(block.capacity);
  const auto old_weights = numbers(block.capacity), scale = numbers(kDst);
  run("transposed_edges", order.data(), destinations.data(), old_weights.data(), scale.data(),
      block.capacity, turned.data(), weights.data());
  for (int64_t edge = 0, dst = 0; edge < block.capacity; ++edge) {
    while (dst < kDst && block.indptr[dst + 1] <= edge) ++dst;
    const bool exists = edge < block.edges;
    CHECK(keys[edge] == (exists ? block.indices[edge] : kSrc));
    CHECK(destinations[edge] == (exists ? dst : 0));
    const int64_t index = block.capacity - 1 - edge;
    CHECK(turned[index] == destinations[edge]);
    CHECK(weights[index] == old_weights[edge] * scale[destinations[edge]]);
  }
}

void check_coefficients(const Lists& block) {
  std::vector<float> degrees(kSrc), weights(block.edges), dst_scale(kDst), self_scale(kDst);
  for (int64_t i = 0; i < kSrc; ++i) degrees[i] = static_cast<float>(i % 9 + 1);
  const void* null = nullptr;
  run("coefficients", int64_t{0}, block.indptr.data(), block.indices.data(), null, null, null,
      degrees.data(), block.vertices.data(), &block.edges, weights.data(), dst_scale.data(),
      self_scale.data());
  for (int64_t dst = 0; dst < kDst; ++dst) {
    const float root = 1 / std::sqrt(degrees[dst] + 1);
    const auto num_drawn = static_cast<float>(block.indptr[dst + 1] - block.indptr[dst]);
    CHECK(self_scale[dst] == root * root);
    CHECK(dst_scale[dst] == root * (degrees[dst] / std::fmax(num_drawn, 1.0F)));
  }
  for (int64_t edge = 0; edge < block.edges; ++edge) {
    CHECK(weights[edge] == 1 / std::sqrt(degrees[block.indices[edge]] + 1));
  }
}

void check_activation(int64_t width, int columns) {
  const int64_t rows = kDst + kSpare, count = kDst;
  const uint64_t step = 2;
  auto x = numbers(rows * width);
  const auto input = x;
  std::vector<int64_t> vertices(rows, kGarbage);
  for (int64_t i = 0; i < count; ++i) vertices[i] = 3 * i;
  run("relu_dropout_" + std::to_string(columns), x.data(), int32_t{0}, 4 * width, width,
      vertices.data(), int32_t{1}, &count, rows, uint64_t{1}, &step, uint64_t{3}, uint32_t{1} << 15,
      2.0F);
  int64_t num_kept = 0, positive = 0;
  for (int64_t i = 0; i < rows * width; ++i) {
    const bool counts = i < count * width && input[i] > 0;
    CHECK(x[i] == 0 || (counts && x[i] == 2 * input[i]));
    positive += counts, num_kept += x[i] != 0;
  }
  CHECK(positive / 4 < num_kept && num_kept < positive * 3 / 4);
  std::vector<float> grad(rows * width, NAN);
  run("relu_dropout_backward_" + std::to_string(columns), x.data(), input.data(), grad.data(),
      int32_t{0}, rows * width, 2.0F);
  for (int64_t i = 0; i < rows * width; ++i) CHECK(grad[i] == (x[i] > 0 ? 2 * input[i] : 0));
}

void check_attention(const Lists& block, int64_t heads, int64_t width) {
  const auto src = numbers(kSrc * heads), dst = numbers(kDst * heads);
  const int64_t size = block.capacity * heads;
  std::vector<float> scores(size, NAN), alpha(size, NAN), grad(size, NAN), dots(size, NAN);
  const void* null = nullptr;
  run("edge_scores", block.indptr.data(), block.indices.data(), src.data(), dst.data(), heads,
      block.vertices.data(), &block.edges, block.capacity, scores.data());
  run("edge_softmax", block.indptr.data(), scores.data(), null, heads, block.vertices.data(),
      &block.edges, block.capacity, alpha.data());
  run("edge_softmax_backward", block.indptr.data(), alpha.data(), scores.data(), heads,
      block.vertices.data(), &block.edges, block.capacity, grad.data());
  std::vector<int32_t> keys(block.capacity), destinations(block.capacity);
  run("block_edges", block.indptr.data(), block.indices.data(), block.vertices.data(), &block.edges,
      block.capacity, static_cast<int32_t>(kSrc), keys.data(), destinations.data());
  const auto a = numbers(kDst * heads * width), z = numbers(kSrc * heads * width);
  run("edge_dot", a.data(), z.data(), block.indices.data(), destinations.data(), heads, width,
      &block.edges, block.capacity, dots.data());
  for (int64_t v = 0; v < kDst; ++v) {
    for (int64_t head = 0; head < heads && block.indptr[v] < block.indptr[v + 1]; ++head) {
      float sum = 0, gradients = 0;
      for (int64_t edge = block.indptr[v]; edge < block.indptr[v + 1]; ++edge) {
        const int64_t u = block.indices[edge], at = edge * heads + head;
        CHECK(scores[at] == src[u * heads + head] + dst[v * heads + head]);
        sum += alpha[at], gradients += grad[at];
        float dot = 0;
        for (int64_t j = 0; j < width; ++j) {
          dot += a[(v * heads + head) * width + j] * z[(u * heads + head) * width + j];
        }
        CHECK(std::abs(dots[at] - dot) <= 1e-3F * (1 + std::abs(dot)));
      }
      CHECK(std::abs(sum - 1) < 1e-5F);
      CHECK(std::abs(gradients) < 1e-4F);
    }
  }
  for (int64_t i = block.edges * heads; i < size; ++i) {
    CHECK(scores[i] == 0 && alpha[i] == 0 && grad[i] == 0 && dots[i] == 0);
  }
}

void check_self_loops(const Lists& block) {
  std::vector<int64_t> indptr(kDst + kSpare + 1, kGarbage);
  std::vector<int32_t> indices(block.edges + kDst);
  int64_t edges = 0;
  float* none = nullptr;
  run("self_edges", block.indptr.data(), block.indices.data(), none, block.vertices.data(),
      &block.edges, indptr.data(), indices.data(), none, &edges);
  CHECK(edges == block.edges + kDst);
  for (int64_t dst = 0; dst < kDst; ++dst) {
    CHECK(indptr[dst] == block.indptr[dst] + dst);
    CHECK(indices[indptr[dst]] == dst);
  }
}

void check_floats() {
  const std::vector<float> table = numbers(9);
  const std::vector<int32_t> vertices = {8, 0, 3, kGarbage};
  const int64_t count = 3;
  std::vector<float> out(4, NAN);
  const void* null = nullptr;
  run("vertex_floats", table.data(), null, null, vertices.data(), int32_t{0}, &count, int64_t{4},
      out.data());
  CHECK(out[0] == table[8] && out[1] == table[0] && out[2] == table[3] && out[3] == 0);
}

}  // namespace

int main() {
  const Lists block;
  for (const int64_t width : {4, 20, 132}) {
    check_aggregation(block, width, 4);
    check_activation(width, 4);
  }
  for (const int64_t width : {1, 7, 50}) {
    check_aggregation(block, width, 1);
    check_activation(width, 1);
  }
  check_transpose(block);
  check_coefficients(block);
  check_attention(block, 1, 5);
  check_attention(block, 3, 20);
  check_self_loops(block);
  check_floats();
  return check_result();
}
