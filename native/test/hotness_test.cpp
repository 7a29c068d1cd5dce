// Tests of hottest vertices, their assignment to members, and values propagated to in-neighbors.
#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "gnnscale/hotness.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

Keys keys(const std::vector<int32_t>& values) { return {values.data(), Keys::Type::int32}; }
Keys keys(const std::vector<int64_t>& values) { return {values.data(), Keys::Type::int64}; }
Keys keys(const std::vector<float>& values) { return {values.data(), Keys::Type::float32}; }

template <typename Vertex>
std::vector<Vertex> hottest_vertices(const HotVertices& task, int num_threads) {
  const Array<Vertex> order = hottest<Vertex>(task, num_threads);
  return {order.data.get(), order.data.get() + order.size};
}

template <typename Value, typename Vertex>
void test_hottest_by_hand() {
  const std::vector<Value> hotness{3, 0, 7, 3, 0, 3};
  const std::vector<int32_t> degrees{1, 5, 0, 9, 5, 1};
  for (const int threads : {1, 4}) {
    const auto hottest_of = [&](int64_t capacity, Keys tie_break) {
      return hottest_vertices<Vertex>({keys(hotness), tie_break, 6, {10}, capacity}, threads);
    };
    CHECK((hottest_of(60, {}) == std::vector<Vertex>{2, 0, 3, 5, 1, 4}));
    CHECK((hottest_of(60, keys(degrees)) == std::vector<Vertex>{2, 3, 0, 5, 1, 4}));
    CHECK((hottest_of(int64_t{1} << 62, {}).size() == 6));
    // The third vertex begins at 20, below 21; the fourth does not.
    CHECK((hottest_of(21, keys(degrees)) == std::vector<Vertex>{2, 3, 0}));
    CHECK((hottest_of(20, keys(degrees)) == std::vector<Vertex>{2, 3}));
    CHECK(hottest_of(0, {}).empty());
  }
  CHECK(hottest_vertices<Vertex>({keys(hotness), {}, 0, {10}, 100}, 1).empty());
}

void test_bytes_of_lists() {
  const std::vector<int32_t> hotness{1, 4, 2};
  const std::vector<int64_t> offsets{0, 3, 3, 10};
  const CacheBytes bytes{8, 4, offsets.data(), 10};
  CHECK(bytes.of(0) == 20 && bytes.of(1) == 8 && bytes.of(2) == 36);
  for (const int threads : {1, 4}) {
    // Vertex 1 takes 8 bytes, then vertex 2 takes 36.
    CHECK((hottest_vertices<int32_t>({keys(hotness), {}, 3, bytes, 8}, threads) ==
           std::vector<int32_t>{1}));
    CHECK((hottest_vertices<int32_t>({keys(hotness), {}, 3, bytes, 44}, threads) ==
           std::vector<int32_t>{1, 2}));
    CHECK((hottest_vertices<int32_t>({keys(hotness), {}, 3, bytes, 45}, threads).size() == 3));
  }
  for (const int64_t bad : {-1, 11, 2}) {
    const std::vector<int64_t> wrong{0, 3, bad, 10};
    const HotVertices task{keys(hotness), {}, 3, {8, 4, wrong.data(), 10}, 9};
    CHECK_THROWS(hottest<int32_t>(task, 1), TopologyError);
  }
}

void test_cold_and_large_vertices_are_excluded() {
  const std::vector<int32_t> hotness{1, 0, 9, 4};
  const std::vector<float> as_floats{1, 0, 9, 1e-45F};
  const std::vector<int64_t> offsets{0, 3, 3, 10, 12};
  const CacheBytes bytes{8, 4, offsets.data(), 12};  // 20, 8, 36 and 16 bytes
  for (const int threads : {1, 4}) {
    const auto hottest_of = [&](Keys values, int64_t max_bytes, bool only_hot) {
      return hottest_vertices<int32_t>({values, {}, 4, bytes, 99, max_bytes, only_hot}, threads);
    };
    CHECK((hottest_of(keys(hotness), 36, false) == std::vector<int32_t>{2, 3, 0, 1}));
    CHECK((hottest_of(keys(hotness), 35, true) == std::vector<int32_t>{3, 0}));
    CHECK((hottest_of(keys(as_floats), INT64_MAX, true) == std::vector<int32_t>{2, 0, 3}));
    CHECK(hottest_of(keys(hotness), 7, false).empty());
  }
}

// More vertices than one range and one short segment, many with equal keys.
template <typename Value>
void test_hottest_of_many(int64_t num_vertices, int64_t num_values, int64_t num_degrees) {
  std::vector<Value> hotness(num_vertices);
  std::vector<int64_t> degrees(num_vertices), offsets(num_vertices + 1);
  for (int64_t v = 0; v < num_vertices; ++v) {
    // A heavy tail, so that both exact and wide buckets are used.
    const double x = unit(draw(1, v));
    hotness[v] = static_cast<Value>(static_cast<double>(num_values) * x * x * x * x);
    degrees[v] = static_cast<int64_t>(below(draw(2, v), num_degrees));
    offsets[v + 1] = offsets[v] + degrees[v] % 5;
  }
  std::vector<int32_t> sorted(num_vertices);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return hotness[a] != hotness[b] ? hotness[a] > hotness[b] : degrees[a] > degrees[b];
  });
  const CacheBytes bytes{3, 7, offsets.data(), offsets.back()};
  for (const int64_t percent : {1, 50, 99, 100}) {
    const int64_t capacity = (3 * num_vertices + 7 * offsets.back()) / 100 * percent;
    std::vector<int32_t> expected;
    int64_t begin = 0;
    for (const int32_t v : sorted) {
      if (begin >= capacity) break;
      expected.push_back(v);
      begin += static_cast<int64_t>(bytes.of(v));
    }
    for (const int threads : {1, 3}) {
      const HotVertices task{keys(hotness), keys(degrees), num_vertices, bytes, capacity};
      CHECK(hottest_vertices<int32_t>(task, threads) == expected);
    }
  }
}

void test_invalid_hotness() {
  for (const float bad :
       {-1.0F, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> hotness{0, bad, 1};
    CHECK_THROWS(hottest<int32_t>({keys(hotness), {}, 3, {1}, 1}, 2), std::invalid_argument);
  }
  const std::vector<float> zeros{-0.0F, 0.0F, std::numeric_limits<float>::infinity()};
  CHECK((hottest_vertices<int32_t>({keys(zeros), {}, 3, {1}, 9}, 1) ==
         std::vector<int32_t>{2, 0, 1}));
  const std::vector<int32_t> negative{0, INT32_MIN, 1}, fine{1, 2, 3};
  CHECK_THROWS(hottest<int32_t>({keys(negative), {}, 3, {1}, 1}, 2), std::invalid_argument);
  CHECK_THROWS(hottest<int32_t>({keys(fine), keys(negative), 3, {1}, 1}, 2), std::invalid_argument);
}

void test_share_out_by_hand() {
  const std::vector<int32_t> order{3, 0, 2, 1};
  const std::vector<int64_t> offsets{0, 1, 1, 3, 3};
  const std::vector<int32_t> first{5, 1, 2, 0}, second{4, 1, 2, 0};
  std::vector<int64_t> bytes_taken(2), reads(4);
  const auto shares_of = [&](std::vector<int64_t> capacities, CacheBytes bytes, int threads) {
    std::vector<int16_t> member(4);
    const ShareOut task{
        {order.data(), false}, 4, {keys(first), keys(second)}, 4, bytes, capacities};
    share_out(task, {member.data(), bytes_taken.data(), reads.data()}, threads);
    return member;
  };
  for (const int threads : {1, 3}) {
    // Vertex 3 is equally hot to both, and member 1 has more free bytes; 0 is hotter to member 0; 2
    // goes to the member with free bytes.
    CHECK((shares_of({10, 11}, {1}, threads) == std::vector<int16_t>{1, 0, 1, 0}));
    // Member 0 has capacity for one vertex, member 1 for none.
    CHECK((shares_of({1, 0}, {1}, threads) == std::vector<int16_t>{0, -1, -1, -1}));
    // Vertices of 4, 8, 12 and 4 bytes: 2 does not fit, but 1, which is smaller, does.
    CHECK((shares_of({12, 4}, {4, 4, offsets.data(), 3}, threads) ==
           std::vector<int16_t>{0, 0, -1, 1}));
    // Member 0 takes vertices 3 and 0, member 1 takes 1.
    CHECK(
        (bytes_taken == std::vector<int64_t>{12, 4} && reads == std::vector<int64_t>{5, 1, 4, 1}));
  }
}

void test_invalid_orders() {
  const std::vector<int32_t> local{1, -1};
  std::vector<int16_t> member(2);
  int64_t bytes_taken;
  for (const auto& order : {std::vector<int64_t>{0, 2}, {-1, 0}, {0, 1}, {int64_t{1} << 40, 0}}) {
    const ShareOut task{{order.data(), true}, 2, {keys(local)}, 2, {1}, {9}};
    CHECK_THROWS(share_out(task, {member.data(), &bytes_taken, nullptr}, 1), std::invalid_argument);
  }
}

template <typename Vertex, typename Value>
void test_scatter(int64_t num_vertices) {
  std::vector<int64_t> indptr{0};
  std::vector<Vertex> indices;
  std::vector<Value> values;
  for (int64_t v = 0; v < num_vertices; ++v) {
    const int64_t degree = v == 7 ? 200'000 : static_cast<int64_t>(below(draw(3, v), 9));
    for (int64_t i = 0; i < degree; ++i) {
      const auto u = below(below(draw(combine(4, v), i), num_vertices) + 1, num_vertices);
      indices.push_back(static_cast<Vertex>(u));
    }
    indptr.push_back(static_cast<int64_t>(indices.size()));
    values.push_back(v % 3 == 0 ? Value{0} : static_cast<Value>(unit(draw(5, v))));
  }
  const auto num_edges = static_cast<int64_t>(indices.size());
  const Topology<Vertex> graph{num_vertices, num_edges, indptr.data(), indices.data()};
  std::vector<Value> expected(num_vertices, Value{1});
  for (int64_t v = 0; v < num_vertices; ++v) {
    for (int64_t i = indptr[v]; i < indptr[v + 1]; ++i) expected[indices[i]] += values[v];
  }
  for (const int threads : {1, 3}) {
    std::vector<Value> out(num_vertices, Value{1});
    scatter_to_neighbors(graph, values.data(), out.data(), threads);
    CHECK(out == expected);
  }
  std::vector<Value> out(num_vertices);
  auto wrong = indices;
  wrong[indptr[8] - 1] = static_cast<Vertex>(num_vertices);
  const Topology<Vertex> no_vertex{num_vertices, num_edges, indptr.data(), wrong.data()};
  CHECK_THROWS(scatter_to_neighbors(no_vertex, values.data(), out.data(), 2), TopologyError);
  auto falls = indptr;
  falls[num_vertices - 1] = 0;
  const Topology<Vertex> no_list{num_vertices, num_edges, falls.data(), indices.data()};
  CHECK_THROWS(scatter_to_neighbors(no_list, values.data(), out.data(), 2), TopologyError);
}

void test_no_vertices() {
  const int64_t none[] = {0};
  scatter_to_neighbors<int32_t, float>({0, 0, none, nullptr}, nullptr, nullptr, 2);
}

}  // namespace

int main() {
  test_hottest_by_hand<int32_t, int32_t>();
  test_hottest_by_hand<int64_t, int64_t>();
  test_hottest_by_hand<float, int32_t>();
  test_bytes_of_lists();
  test_cold_and_large_vertices_are_excluded();
  // Two ranges are as good as three for sanitizers, which take minutes for them.
  test_hottest_of_many<int32_t>(kSanitized ? 1'200'000 : 3'000'000, 3, 4);
  test_hottest_of_many<int32_t>(300'000, 1'000'000'000, 10);
  test_hottest_of_many<int64_t>(300'000, int64_t{1} << 60, 1 << 20);
  test_hottest_of_many<float>(600'000, 1'000, 1 << 20);
  test_invalid_hotness();
  test_share_out_by_hand();
  test_invalid_orders();
  test_scatter<int32_t, float>(100'000);
  test_scatter<int64_t, double>(3'000);
  test_no_vertices();
  return check_result();
}
