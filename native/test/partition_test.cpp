// Tests of edges between parts, hop distances, and PaGraph's stream.
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "gnnscale/partition.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

template <typename Vertex>
struct Lists {
  std::vector<int64_t> indptr{0};
  std::vector<Vertex> indices;

  Lists(std::initializer_list<std::vector<Vertex>> lists) {
    for (const auto& list : lists) add(list);
  }
  void add(const std::vector<Vertex>& list) {
    indices.insert(indices.end(), list.begin(), list.end());
    indptr.push_back(static_cast<int64_t>(indices.size()));
  }
  Topology<Vertex> topology() const {
    return {static_cast<int64_t>(indptr.size()) - 1, static_cast<int64_t>(indices.size()),
            indptr.data(), indices.data()};
  }
};

// A self-loop at 1, two edges 2 -> 0, and no edge from 3.
template <typename Vertex>
Lists<Vertex> tiny() {
  return {{1, 2, 2}, {1, 3}, {3, 4}, {}, {0}};
}

// Hubs, self-loops and repeated edges.
Lists<int32_t> large(int64_t num_vertices) {
  Lists<int32_t> lists{};
  for (int64_t v = 0; v < num_vertices; ++v) {
    std::vector<int32_t> list(v % 97 == 0 ? 300 : below(draw(3, v), 8));
    for (size_t i = 0; i < list.size(); ++i) {
      list[i] = static_cast<int32_t>(below(draw(combine(4, v), i), num_vertices));
    }
    lists.add(list);
  }
  return lists;
}

template <typename Vertex>
void test_cut_by_hand() {
  const auto lists = tiny<Vertex>();
  const std::vector<int16_t> owner{0, 1, 1, 0, -1};
  for (const int threads : {1, 4}) {
    std::vector<int64_t> counts(4);
    count_cut(lists.topology(), owner.data(), 2, counts.data(), threads);
    // Into 0: 1, 2, 2 from part 1. Into 1 and 2, both in part 1: 1 from part 1, 3 and 3 from part
    // 0.
    CHECK((counts == std::vector<int64_t>{0, 2, 3, 1}));
  }
  for (const int16_t bad : {-2, 2, 32767}) {
    std::vector<int64_t> counts(4);
    const std::vector<int16_t> wrong{0, 1, 1, bad, 0};
    CHECK_THROWS(count_cut(lists.topology(), wrong.data(), 2, counts.data(), 1),
                 std::invalid_argument);
  }
}

template <typename Vertex>
void test_hops_by_hand() {
  const auto lists = tiny<Vertex>();
  for (const int threads : {1, 4}) {
    std::vector<uint8_t> hops(5, kUnreached);
    const auto reach = [&](std::vector<Vertex> from, int64_t num_hops) {
      return hops_from(lists.topology(), from.data(), static_cast<int64_t>(from.size()), num_hops,
                       hops.data(), threads);
    };
    CHECK(reach({}, 2) == 0);
    CHECK(reach({1, 1}, 2) == 2);
    CHECK((hops == std::vector<uint8_t>{255, 0, 255, 1, 255}));
    CHECK(reach({4}, 2) == 3);
    CHECK((hops == std::vector<uint8_t>{1, 0, 2, 1, 0}));
    CHECK(reach({2, 4}, 2) == 0);
    CHECK((hops == std::vector<uint8_t>{1, 0, 0, 1, 0}));
    hops.assign(5, kUnreached);
    CHECK(reach({0, 3}, 0) == 2);
    CHECK((hops == std::vector<uint8_t>{0, 255, 255, 0, 255}));
  }
}

// In one call, vertex by vertex, and with several threads.
void test_hops_in_one_call_and_by_vertex() {
  constexpr int64_t kVertices = 20000;
  const auto lists = large(kVertices);
  std::vector<int32_t> starts;
  for (int32_t v = 0; v < kVertices; v += 7) starts.push_back(v);
  for (const int64_t num_hops : {1, 2, 4}) {
    std::vector<uint8_t> single(kVertices, kUnreached), many = single, one_by_one = single;
    const auto size = static_cast<int64_t>(starts.size());
    const int64_t num_reached =
        hops_from(lists.topology(), starts.data(), size, num_hops, single.data(), 1);
    CHECK(num_reached ==
          hops_from(lists.topology(), starts.data(), size, num_hops, many.data(), 4));
    int64_t total = 0;
    for (const int32_t v : starts) {
      total += hops_from(lists.topology(), &v, 1, num_hops, one_by_one.data(), 1);
    }
    CHECK(total == num_reached);
    CHECK(single == many);
    CHECK(single == one_by_one);
  }
}

// Two triangles, and vertex 6, with edges to 2 and 3.
template <typename Vertex>
void test_stream_by_hand() {
  const Lists<Vertex> lists{{1, 2}, {0, 2}, {0, 1, 6}, {4, 5, 6}, {3, 5}, {3, 4}, {}};
  const std::vector<Vertex> order{0, 3, 1, 5};
  for (const int64_t max_walked : {0, 100}) {
    std::vector<int16_t> parts(4);
    std::vector<uint8_t> hops(14);
    const TrainingStream<Vertex> stream{lists.topology(), order.data(), 4, 2, 1, max_walked, 8, 0};
    CHECK(assign_stream(stream, parts.data(), hops.data(), 2) == 0);
    CHECK((parts == std::vector<int16_t>{0, 1, 0, 1}));
    CHECK((hops == std::vector<uint8_t>{0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 0, 1, 0, 1}));
  }
  const std::vector<Vertex> twice{0, 3, 0};
  std::vector<int16_t> parts(3);
  std::vector<uint8_t> hops(14);
  const TrainingStream<Vertex> stream{lists.topology(), twice.data(), 3, 2, 1, 0, 8, 0};
  CHECK_THROWS(assign_stream(stream, parts.data(), hops.data(), 1), std::invalid_argument);
}

// Overlaps by walks, by exact bitmaps and by sampled bitmaps; with one thread and with several.
void test_streams_agree() {
  constexpr int64_t kVertices = 6000;
  const auto lists = large(kVertices);
  std::vector<int32_t> order;
  for (int32_t v = 0; v < kVertices; v += 5) order.push_back(v * 7 % kVertices);
  const auto size = static_cast<int64_t>(order.size());
  for (const int64_t num_hops : {1, 2, 3}) {
    std::vector<int16_t> walked, sampled;
    for (const int64_t max_walked : {int64_t{1} << 30, int64_t{40}, int64_t{0}}) {
      for (const int64_t max_sampled : {int64_t{4096}, int64_t{100}}) {
        for (const int threads : {1, 4}) {
          std::vector<int16_t> parts(size);
          std::vector<uint8_t> hops(5 * kVertices);
          const TrainingStream<int32_t> stream{lists.topology(), order.data(), size,        5,
                                               num_hops,         max_walked,   max_sampled, 3};
          const int64_t estimated = assign_stream(stream, parts.data(), hops.data(), threads);
          CHECK((estimated > 0) == (max_walked <= 40 && max_sampled == 100));
          auto& expected = estimated > 0 ? sampled : walked;
          if (estimated > 0 && threads == 1) expected.clear();
          if (expected.empty()) expected = parts;
          CHECK(parts == expected);
          std::vector<int64_t> sizes(5);
          for (const int16_t part : parts) ++sizes[part];
          CHECK((sizes == std::vector<int64_t>(5, size / 5)));
        }
      }
    }
  }
}

// Interrupts the stream in each stage: estimating costs, collecting bits, walking, reaching.
void test_interrupted_streams() {
  const auto lists = large(6000);
  std::vector<int32_t> order(3000);
  std::iota(order.begin(), order.end(), 0);
  for (const int64_t max_walked : {int64_t{1} << 30, int64_t{40}}) {
    for (const int threads : {1, 4}) {
      std::vector<int16_t> parts(order.size());
      std::vector<uint8_t> hops(2 * 6000);
      const TrainingStream<int32_t> stream{lists.topology(), order.data(), 3000, 2, 3,
                                           max_walked,       4096,         3};
      const auto polls_until = [&](int64_t last) {
        int64_t num_polls = 0;
        const Poll poll = [&] {
          if (++num_polls == last) throw std::bad_alloc();
        };
        assign_stream(stream, parts.data(), hops.data(), threads, poll);
        return num_polls;
      };
      CHECK(polls_until(0) > 3000);
      for (const int64_t last : {1, 2, 3, 20, 500, 3000}) {
        CHECK_THROWS(polls_until(last), std::bad_alloc);
      }
    }
  }
}

void test_damaged_topologies() {
  const std::vector<int16_t> owner(5);
  for (const int threads : {1, 4}) {
    std::vector<int64_t> counts(1);
    std::vector<uint8_t> hops(5);
    const auto fails = [&](const Lists<int32_t>& lists) {
      const int32_t from = 0;
      hops.assign(5, kUnreached);
      CHECK_THROWS(count_cut(lists.topology(), owner.data(), 1, counts.data(), threads),
                   TopologyError);
      CHECK_THROWS(hops_from(lists.topology(), &from, 1, 2, hops.data(), threads), TopologyError);
      for (const int64_t max_walked : {0, 100}) {
        int16_t part;
        const TrainingStream<int32_t> stream{lists.topology(), &from, 1, 1, 2, max_walked, 8, 0};
        CHECK_THROWS(assign_stream(stream, &part, hops.data(), threads), TopologyError);
      }
    };
    for (const int32_t bad : {5, -1, INT32_MAX, INT32_MIN}) {
      auto lists = tiny<int32_t>();
      lists.indices[1] = bad;
      fails(lists);
    }
    for (const int64_t bad : {int64_t{-1}, int64_t{9}, int64_t{1} << 62}) {
      auto lists = tiny<int32_t>();
      lists.indptr[1] = bad;
      fails(lists);
    }
  }
}

}  // namespace

int main() {
  test_cut_by_hand<int32_t>();
  test_cut_by_hand<int64_t>();
  test_hops_by_hand<int32_t>();
  test_hops_by_hand<int64_t>();
  test_hops_in_one_call_and_by_vertex();
  test_stream_by_hand<int32_t>();
  test_stream_by_hand<int64_t>();
  test_streams_agree();
  test_interrupted_streams();
  test_damaged_topologies();
  return check_result();
}
