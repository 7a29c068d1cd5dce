// Tests of compressed sparse columns, transposed blocks, generated topologies, and memory.
#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "check.hpp"
#include "gnnscale/checks.hpp"
#include "gnnscale/csc.hpp"
#include "gnnscale/generate.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

// Edges 3 -> 0, 1 -> 0, 0 -> 2, 3 -> 0, 2 -> 2, 1 -> 3.
template <typename Vertex>
void test_build_by_hand() {
  const std::vector<Vertex> src{3, 1, 0, 3, 2, 1}, dst{0, 0, 2, 0, 2, 3};
  std::vector<int64_t> counts(4);
  count_in_degrees(dst.data(), 6, 0, counts.data(), 4);
  CHECK((counts == std::vector<int64_t>{3, 0, 2, 1}));
  std::vector<int64_t> last(2);
  count_in_degrees(dst.data() + 2, 1, 2, last.data(), 2);
  CHECK((last == std::vector<int64_t>{1, 0}));
  CHECK_THROWS(count_in_degrees(dst.data(), 1, 2, last.data(), 2), std::invalid_argument);
  const std::vector<int64_t> indptr{0, 3, 3, 5, 6};

  // Destinations 0 and 1, then 2 and 3, as if memory held only half of the lists.
  std::vector<Vertex> lists(6, -1);
  std::vector<int64_t> cursor(indptr.begin(), indptr.end() - 1);
  csc_fill(src.data(), dst.data(), 6, 0, 2, cursor.data(), lists.data(), 6);
  CHECK((lists == std::vector<Vertex>{3, 1, 3, -1, -1, -1}));
  csc_fill(src.data(), dst.data(), 6, 2, 4, cursor.data() + 2, lists.data(), 6);
  CHECK((lists == std::vector<Vertex>{3, 1, 3, 0, 2, 1}));
  CHECK((cursor == std::vector<int64_t>{3, 3, 5, 6}));

  std::vector<int64_t> new_indptr(5);
  std::vector<Vertex> sorted = lists;
  csc_sort(indptr.data(), 4, sorted.data(), false, new_indptr.data(), 2);
  CHECK((sorted == std::vector<Vertex>{1, 3, 3, 0, 2, 1}));
  CHECK(new_indptr == indptr);
  csc_sort(indptr.data(), 4, lists.data(), true, new_indptr.data(), 2);
  CHECK((new_indptr == std::vector<int64_t>{0, 2, 2, 4, 5}));
  CHECK((std::vector<Vertex>(lists.begin(), lists.begin() + 5) ==
         std::vector<Vertex>{1, 3, 0, 2, 1}));
}

// Ids and cursors outside of the arrays.
template <typename Vertex>
void test_ids_out_of_range() {
  std::vector<int64_t> counts(4);
  for (const Vertex id : {Vertex{4}, Vertex{-1}, std::numeric_limits<Vertex>::max(),
                          std::numeric_limits<Vertex>::min()}) {
    const std::vector<Vertex> dst{0, id};
    CHECK_THROWS(count_in_degrees(dst.data(), 2, 0, counts.data(), 4), std::invalid_argument);
  }
  const std::vector<Vertex> src{1, 2}, dst{0, 0};
  std::vector<Vertex> lists(2);
  for (const int64_t slot : {int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{1} << 62}) {
    int64_t cursor = slot;
    CHECK_THROWS(csc_fill(src.data(), dst.data(), 2, 0, 1, &cursor, lists.data(), 2),
                 std::invalid_argument);
  }
}

void test_checks() {
  std::vector<int32_t> ids(200000, 7);
  std::vector<int64_t> wide(ids.begin(), ids.end());
  std::vector<int64_t> offsets(200001);
  for (int64_t i = 0; i <= 200000; ++i) offsets[i] = 2 * i;
  for (const int threads : {1, 4}) {
    check_below(ids.data(), 200000, 8, "ids", threads);
    check_below(wide.data(), 200000, 8, "ids", threads);
    check_below(ids.data(), 0, 0, "ids", threads);
    CHECK_THROWS(check_below(ids.data(), 1, 0, "ids", threads), std::invalid_argument);
    check_offsets(offsets.data(), 200000, 400000, "indptr", threads);
    CHECK_THROWS(check_offsets(offsets.data(), 200000, 399999, "indptr", threads),
                 std::invalid_argument);
    CHECK_THROWS(check_offsets(offsets.data() + 1, 199999, 400000, "indptr", threads),
                 std::invalid_argument);
    for (const int64_t index : {0, 1, 31, 100000, 199999}) {
      for (const int32_t id : {8, -1, INT32_MAX, INT32_MIN}) {
        ids[index] = id;
        wide[index] = int64_t{id} << 20;
        CHECK_THROWS(check_below(ids.data(), 200000, 8, "ids", threads), std::invalid_argument);
        CHECK_THROWS(check_below(wide.data(), 200000, 8, "ids", threads), std::invalid_argument);
        ids[index] = 7;
        wide[index] = 7;
      }
      const int64_t old_offset = std::exchange(offsets[index], int64_t{1} << 40);
      CHECK_THROWS(check_offsets(offsets.data(), 200000, 400000, "indptr", threads),
                   std::invalid_argument);
      offsets[index] = old_offset;
    }
  }
}

void test_sort_against_sets() {
  constexpr int64_t kVertices = 20000;
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> lists;
  std::vector<std::set<int32_t>> expected(kVertices);
  for (int64_t v = 0; v < kVertices; ++v) {
    for (uint64_t i = 0; i < below(draw(1, v), 12); ++i) {
      lists.push_back(static_cast<int32_t>(below(draw(combine(1, v), i), 15)));
      expected[v].insert(lists.back());
    }
    indptr.push_back(static_cast<int64_t>(lists.size()));
  }
  for (const int threads : {1, 2, 4}) {
    std::vector<int32_t> out = lists;
    std::vector<int64_t> offsets(kVertices + 1);
    csc_sort(indptr.data(), kVertices, out.data(), true, offsets.data(), threads);
    for (int64_t v = 0; v < kVertices; ++v) {
      CHECK(std::equal(out.begin() + offsets[v], out.begin() + offsets[v + 1], expected[v].begin(),
                       expected[v].end()));
    }
  }
}

void test_transpose_by_hand() {
  // Destination 0 has sources 1 and 2, destination 1 none, destination 2 has 2 and 0.
  const std::vector<int64_t> indptr{0, 2, 2, 4};
  const std::vector<int32_t> indices{1, 2, 2, 0};
  const std::vector<float> weights{1, -1, 2, -1, 3, -1, 4, -1}, scale{10, 20, 30};
  std::vector<int64_t> out_indptr(6);
  std::vector<int32_t> out_indices(4);
  std::vector<float> out_weights(4);
  const auto transpose = [&](const float* w, int64_t stride, const float* s) {
    transpose_block({indptr.data(), indices.data(), 3, 5, w, stride, s}, out_indptr.data(),
                    out_indices.data(), out_weights.data());
    CHECK((out_indptr == std::vector<int64_t>{0, 1, 2, 4, 4, 4}));
    CHECK((out_indices == std::vector<int32_t>{2, 0, 0, 2}));
  };
  transpose(nullptr, 1, nullptr);
  CHECK((out_weights == std::vector<float>{1, 1, 1, 1}));
  transpose(weights.data(), 2, nullptr);
  CHECK((out_weights == std::vector<float>{4, 1, 2, 3}));
  transpose(weights.data(), 2, scale.data());
  CHECK((out_weights == std::vector<float>{120, 10, 20, 90}));
  transpose(nullptr, 1, scale.data());
  CHECK((out_weights == std::vector<float>{30, 10, 10, 30}));
}

void test_expand_by_hand() {
  const std::vector<int64_t> indptr{0, 2, 2, 3};
  const std::vector<int32_t> indices{4, 0, 1};
  std::vector<int64_t> src(3), dst(3);
  expand_edges(indptr.data(), indices.data(), 3, 10, src.data(), dst.data());
  CHECK((src == std::vector<int64_t>{4, 0, 1}));
  CHECK((dst == std::vector<int64_t>{10, 10, 12}));
}

void check_rmat(int64_t num_vertices, int64_t num_edges) {
  std::vector<std::pair<int32_t, int32_t>> first;
  for (const int threads : {1, 2, 4}) {
    const EdgeList edges = rmat_edges(num_vertices, num_edges, 0.57, 0.19, 0.19, 5, threads);
    CHECK(edges.src.size == num_edges && edges.dst.size == num_edges);
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int64_t e = 0; e < num_edges; ++e) {
      pairs.emplace_back(edges.src.data[e], edges.dst.data[e]);
      CHECK(pairs.back().first >= 0 && pairs.back().first < pairs.back().second);
      CHECK(pairs.back().second < num_vertices);
    }
    CHECK(std::set(pairs.begin(), pairs.end()).size() == pairs.size());
    if (first.empty()) first = pairs;
    CHECK(pairs == first);
  }
}

void test_rmat() {
  check_rmat(2, 0);
  check_rmat(4, 3);
  check_rmat(10, 22);
  check_rmat(1000, 10000);
  check_rmat(5000, 50000);
  CHECK_THROWS(rmat_edges(1, 0, 0.57, 0.19, 0.19, 0, 1), std::invalid_argument);
  CHECK_THROWS(rmat_edges(10, 23, 0.57, 0.19, 0.19, 0, 1), std::invalid_argument);
  CHECK_THROWS(rmat_edges(10, -1, 0.57, 0.19, 0.19, 0, 1), std::invalid_argument);
  // All edges would be self-loops of one vertex.
  CHECK_THROWS(rmat_edges(10, 3, 1.0, 0.0, 0.0, 0, 1), std::invalid_argument);

  // Hubs: a thousandth of the vertices has far more than a thousandth of the edge ends.
  const EdgeList edges = rmat_edges(20000, 200000, 0.57, 0.19, 0.19, 1, 2);
  std::vector<int64_t> degree(20000);
  count_in_degrees(edges.src.data.get(), 200000, 0, degree.data(),
                   static_cast<int64_t>(degree.size()));
  count_in_degrees(edges.dst.data.get(), 200000, 0, degree.data(),
                   static_cast<int64_t>(degree.size()));
  std::sort(degree.rbegin(), degree.rend());
  int64_t ends_of_hubs = 0;
  for (int i = 0; i < 20; ++i) ends_of_hubs += degree[i];
  CHECK(ends_of_hubs > 400000 / 100);
}

void test_planted_partition() {
  constexpr int64_t kVertices = 3000, kEdges = 60000;
  std::vector<int32_t> community(kVertices);
  std::vector<float> weight(kVertices);
  for (int64_t v = 0; v < kVertices; ++v) {
    community[v] = static_cast<int32_t>(v % 3);
    weight[v] = v < 300 ? 4.0F : 1.0F;  // 1,200 of 3,900
  }
  const auto draw_edges = [&](double within) {
    return planted_partition_edges(community.data(), weight.data(), kVertices, kEdges, within, 9);
  };
  const EdgeList edges = draw_edges(0.7);
  int64_t inside = 0, heavy = 0;
  for (int64_t e = 0; e < kEdges; ++e) {
    const int32_t u = edges.src.data[e], v = edges.dst.data[e];
    CHECK(u >= 0 && u < kVertices && v >= 0 && v < kVertices && u != v);
    inside += community[u] == community[v];
    heavy += (u < 300) + (v < 300);
  }
  // A share of 0.7 + 0.3 / 3 is expected inside; the standard deviation is 98, and 160 for `heavy`.
  CHECK(std::abs(inside - 48000) < 400);
  CHECK(std::abs(heavy - 120000 * 1200 / 3900) < 800);
  const EdgeList again = draw_edges(0.7);
  CHECK(std::memcmp(edges.src.data.get(), again.src.data.get(), kEdges * 4) == 0);
  const EdgeList only_inside = draw_edges(1.0);
  for (int64_t e = 0; e < kEdges; ++e) {
    CHECK(community[only_inside.src.data[e]] == community[only_inside.dst.data[e]]);
  }
}

void test_memory() {
  for (const size_t size : {0, 1, 63, 4096, 5000, 1 << 20, 3 << 20}) {
    void* block = take_block(size);
    CHECK(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, size);
    return_block(block);
    void* again = take_block(size);
    CHECK(again == block);
    return_block(again);
  }
  return_block(nullptr);
  const HugeArray<uint32_t> zeroed(3 << 20);
  CHECK(std::all_of(zeroed.data(), zeroed.data() + (3 << 20), [](uint32_t x) { return x == 0; }));
  Scratch<int> scratch;
  for (int i = 0; i < 1000; ++i) scratch.reserve(i + 1, i)[i] = i;
  for (int i = 0; i < 1000; ++i) CHECK(scratch.data()[i] == i);
}

}  // namespace

int main() {
  test_build_by_hand<int32_t>();
  test_build_by_hand<int64_t>();
  test_ids_out_of_range<int32_t>();
  test_ids_out_of_range<int64_t>();
  test_checks();
  test_sort_against_sets();
  test_transpose_by_hand();
  test_expand_by_hand();
  test_rmat();
  test_planted_partition();
  test_memory();
  return check_result();
}
