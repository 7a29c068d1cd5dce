// Tests of undirected graphs, their text, clusters, coarse graphs, and refined parts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "check.hpp"
#include "gnnscale/coarsen.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/refine.hpp"
#include "gnnscale/undirected.hpp"

using namespace gnnscale;

namespace {

template <typename T>
std::vector<T> to_vector(const Array<T>& array) {
  return {array.data.get(), array.data.get() + array.size};
}

// Two triangles, 0 to 2 and 3 to 5, and a bridge between 2 and 3.
template <typename Vertex>
struct Bridge {
  std::vector<int64_t> indptr{0, 2, 4, 7, 10, 12, 14};
  std::vector<Vertex> indices{1, 2, 0, 2, 0, 1, 3, 2, 4, 5, 3, 5, 3, 4};
  std::vector<int64_t> ones = std::vector<int64_t>(6, 1);

  Lists<Vertex> lists() const { return {indptr.data(), indices.data(), 6}; }
  WeightedGraph<Vertex> weighted() const { return {lists(), nullptr, ones.data(), 1}; }
};

template <typename Vertex>
void test_undirected_by_hand() {
  const Bridge<Vertex> bridge;
  CHECK(make_undirected(bridge.lists(), 2).unchanged);
  // 1 -> 0 twice, 0 -> 0, 0 -> 1, 2 -> 1; vertex 3 is isolated.
  const std::vector<int64_t> indptr{0, 3, 5, 5, 5};
  const std::vector<Vertex> indices{1, 1, 0, 2, 0};
  for (const int threads : {1, 2}) {
    const Undirected<Vertex> result =
        make_undirected<Vertex>({indptr.data(), indices.data(), 4}, threads);
    CHECK(!result.unchanged);
    CHECK((to_vector(result.indptr) == std::vector<int64_t>{0, 1, 3, 4, 4}));
    CHECK((to_vector(result.indices) == std::vector<Vertex>{1, 0, 2, 1}));
    CHECK(result.num_loops == 1 && result.num_duplicates == 1 && result.num_one_way == 1);
  }
}

// More vertices than one group of cursors.
void test_undirected_against_sets() {
  constexpr int64_t kVertices = 200000;
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::set<std::pair<int64_t, int64_t>> expected;
  for (int64_t v = 0; v < kVertices; ++v) {
    for (uint64_t i = 0; i < below(draw(1, v), 4); ++i) {
      indices.push_back(static_cast<int32_t>(below(draw(combine(1, v), i), kVertices)));
      if (indices.back() == v) continue;
      expected.insert({v, indices.back()});
      expected.insert({indices.back(), v});
    }
    indptr.push_back(std::ssize(indices));
  }
  for (const int threads : {1, 4}) {
    const auto result =
        make_undirected<int32_t>({indptr.data(), indices.data(), kVertices}, threads);
    CHECK(result.indices.size == std::ssize(expected));
    auto next = expected.begin();
    for (int64_t v = 0; v < kVertices; ++v) {
      for (int64_t e = result.indptr.data[v]; e < result.indptr.data[v + 1]; ++e, ++next) {
        CHECK(next->first == v && next->second == result.indices.data[e]);
      }
    }
  }
}

template <typename Vertex>
void test_text_by_hand() {
  const Bridge<Vertex> bridge;
  const std::vector<int64_t> on_vertices{7, 8, 9, 10, 11, 12};
  std::FILE* file = std::tmpfile();
  const int64_t size =
      write_metis<Vertex>(fileno(file), {bridge.lists(), on_vertices.data(), nullptr}, 2);
  std::string text(size, ' ');
  CHECK(pread(fileno(file), text.data(), text.size(), 0) == size);
  CHECK(text == "6 7 10\n7 2 3\n8 1 3\n9 1 2 4\n10 3 5 6\n11 4 6\n12 4 5\n");
  std::fclose(file);
  CHECK_THROWS(write_metis<Vertex>(-1, {bridge.lists(), nullptr, nullptr}, 1), std::system_error);
}

template <typename Vertex>
void test_refinement_by_hand() {
  const Bridge<Vertex> bridge;
  const std::vector<int64_t> limits{4, 4};
  for (const int threads : {1, 2}) {
    std::vector<int32_t> owner{0, 1, 0, 1, 0, 1};
    const Refined result =
        refine(bridge.weighted(), {limits.data(), 2}, {nullptr, 0}, 10, owner.data(), threads);
    CHECK(result.cut_before == 5 && result.cut == 1 && result.within);
    CHECK(owner[0] == owner[1] && owner[1] == owner[2] && owner[2] != owner[3]);
    CHECK(owner[3] == owner[4] && owner[4] == owner[5]);
  }
  // All vertices start in one part: a triangle leaves it.
  const std::vector<int64_t> half{3, 3};
  std::vector<int32_t> owner(6);
  const Refined result =
      refine(bridge.weighted(), {half.data(), 2}, {nullptr, 0}, 10, owner.data(), 1);
  CHECK(result.cut_before == 0 && result.within);
  CHECK(std::count(owner.begin(), owner.end(), 0) == 3);
}

void test_clusters_move_as_units() {
  const Bridge<int32_t> bridge;
  const std::vector<int32_t> labels{0, 0, 0, 2, 2, 2};  // cluster 1 is empty
  const std::vector<int64_t> half{3, 3};
  std::vector<int32_t> owner(6);
  const Refined result =
      refine(bridge.weighted(), {half.data(), 2}, {labels.data(), 3}, 3, owner.data(), 2);
  CHECK(result.within && result.cut == 1);
  CHECK(owner[0] == owner[2] && owner[3] == owner[5] && owner[0] != owner[5]);
  owner = {0, 1, 0, 0, 0, 0};
  CHECK_THROWS(refine(bridge.weighted(), {half.data(), 2}, {labels.data(), 3}, 3, owner.data(), 1),
               std::invalid_argument);
}

void test_triangles_are_clusters_and_contract() {
  const Bridge<int64_t> bridge;
  const std::vector<int64_t> limits{3};
  std::vector<int32_t> labels(6);
  CHECK(find_clusters(bridge.weighted(), limits.data(), 5, nullptr, labels.data()) == 2);
  CHECK((labels == std::vector<int32_t>{0, 0, 0, 1, 1, 1}));
  for (const int threads : {1, 3}) {
    const Coarse coarse = contract(bridge.weighted(), labels.data(), 2, 1, threads);
    CHECK((to_vector(coarse.indptr) == std::vector<int64_t>{0, 1, 2}));
    CHECK((to_vector(coarse.indices) == std::vector<int32_t>{1, 0}));
    CHECK((to_vector(coarse.edge_weights) == std::vector<int32_t>{1, 1}));
    CHECK((to_vector(coarse.vertex_weights) == std::vector<int64_t>{3, 3}));
  }
}

// A ring of rings; every vertex has two weights.
struct Rings {
  static constexpr int64_t kVertices = 20000;
  std::vector<int64_t> indptr{0}, weights;
  std::vector<int32_t> indices;

  Rings() {
    for (int64_t v = 0; v < kVertices; ++v) {
      for (const int64_t step : {-50, -1, 1, 50}) {
        indices.push_back(static_cast<int32_t>((v + step + kVertices) % kVertices));
      }
      indptr.push_back(std::ssize(indices));
      weights.push_back(1);
      weights.push_back(static_cast<int64_t>(below(draw(2, v), 5)));
    }
  }
  WeightedGraph<int32_t> graph() const {
    return {{indptr.data(), indices.data(), kVertices}, nullptr, weights.data(), 2};
  }
  static std::vector<int32_t> parts_in_turn(int32_t num_parts) {
    std::vector<int32_t> owner(kVertices);
    for (int64_t v = 0; v < kVertices; ++v) owner[v] = static_cast<int32_t>(v % num_parts);
    return owner;
  }
};

void test_threads_agree() {
  const Rings rings;
  const std::vector<int64_t> limits(8, Rings::kVertices * 2 / 3);
  std::vector<int32_t> first;
  for (const int threads : {1, 2, 4}) {
    std::vector<int32_t> owner = Rings::parts_in_turn(4);
    const Refined result =
        refine(rings.graph(), {limits.data(), 4}, {nullptr, 0}, 5, owner.data(), threads);
    CHECK(result.cut <= result.cut_balanced && result.cut < result.cut_before);
    if (first.empty()) first = owner;
    CHECK(owner == first);
  }
}

// Throws from the poll in every pass.
void test_interrupted() {
  const Rings rings;
  const std::vector<int64_t> limits(8, Rings::kVertices * 2 / 3);
  const auto polls_until = [&](int64_t last, int threads) {
    int64_t num_polls = 0;
    const Poll poll = [&] {
      if (++num_polls == last) throw std::bad_alloc();
    };
    std::vector<int32_t> labels(Rings::kVertices), owner = Rings::parts_in_turn(4);
    find_clusters(rings.graph(), limits.data(), 2, nullptr, labels.data(), poll);
    refine(rings.graph(), {limits.data(), 4}, {nullptr, 0}, 5, owner.data(), threads, poll);
    return num_polls;
  };
  for (const int threads : {1, 4}) {
    const int64_t num_polls = polls_until(0, threads);
    CHECK(num_polls > 2000);
    for (const int64_t last : {int64_t{1}, int64_t{100}, int64_t{300}, num_polls / 2}) {
      CHECK_THROWS(polls_until(last, threads), std::bad_alloc);
    }
  }
}

}  // namespace

int main() {
  test_undirected_by_hand<int32_t>();
  test_undirected_by_hand<int64_t>();
  test_undirected_against_sets();
  test_text_by_hand<int32_t>();
  test_text_by_hand<int64_t>();
  test_refinement_by_hand<int32_t>();
  test_refinement_by_hand<int64_t>();
  test_clusters_move_as_units();
  test_triangles_are_clusters_and_contract();
  test_threads_agree();
  test_interrupted();
  return check_result();
}
