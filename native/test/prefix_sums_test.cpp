// Tests of prefix sums over an order of vertices, and the split of the order by member.
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "gnnscale/prefix_sums.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

std::vector<int64_t> sums_of(const PrefixSums& task, int64_t interval, int num_threads) {
  std::vector<int64_t> sums(task.num_ordered / interval + (task.num_ordered % interval != 0) + 1);
  running_sums(task, interval, sums.data(), num_threads);
  return sums;
}

void test_sums_by_hand() {
  const std::vector<int64_t> order{2, 0, 3, 1, 2}, offsets{0, 3, 3, 10, 12};
  const std::vector<int32_t> values{5, 0, 7, 1};
  const CacheBytes bytes{8, 4, offsets.data(), 12};
  for (const int threads : {1, 3}) {
    const PrefixSums numbers{{order.data(), true}, 5, 4, values.data(), {}, false};
    CHECK((sums_of(numbers, 2, threads) == std::vector<int64_t>{0, 12, 13, 20}));
    CHECK((sums_of(numbers, 9, threads) == std::vector<int64_t>{0, 20}));
    const std::vector<float> halves{2.5, 0, 3.5, 0.5};
    std::vector<double> real(4);
    running_sums({{order.data(), true}, 5, 4, nullptr, {}, false, halves.data()}, 2, real.data(),
                 threads);
    CHECK((real == std::vector<double>{0, 6, 6.5, 10}));
    const PrefixSums sizes{{order.data(), true}, 5, 4, nullptr, bytes, false};
    CHECK((sums_of(sizes, 2, threads) == std::vector<int64_t>{0, 56, 80, 116}));
  }
  const PrefixSums none{{order.data(), true}, 0, 4, values.data(), {}, true};
  CHECK((sums_of(none, 2, 1) == std::vector<int64_t>{0}));
  for (const int64_t bad : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    const std::vector<int64_t> wrong{0, bad};
    const PrefixSums task{{wrong.data(), true}, 2, 4, values.data(), {}, false};
    CHECK_THROWS(sums_of(task, 1, 1), std::invalid_argument);
  }
}

// More vertices than one work item.
void test_many_vertices(int64_t num_vertices) {
  std::vector<int32_t> order, values;
  std::vector<int16_t> member;
  std::vector<std::vector<int32_t>> expected(3);
  std::vector<int64_t> sums{0};
  for (int64_t i = 0; i < num_vertices; ++i) {
    order.push_back(static_cast<int32_t>(num_vertices - 1 - i));
    values.push_back(static_cast<int32_t>(i / 1000));  // descends along the order
    member.push_back(static_cast<int16_t>(static_cast<int64_t>(below(draw(1, i), 4)) - 1));
    if (member[i] >= 0) expected[member[i]].push_back(order[i]);
  }
  int64_t sum = 0;
  for (int64_t i = 0; i < num_vertices; ++i) {
    sum += values[order[i]];
    if ((i + 1) % 512 == 0 || i + 1 == num_vertices) sums.push_back(sum);
  }
  for (const int threads : {1, 3}) {
    for (const bool falling : {false, true}) {
      const PrefixSums task{{order.data(), false}, num_vertices, num_vertices,
                            values.data(),         {},           falling};
      CHECK(sums_of(task, 512, threads) == sums);
    }
    const auto split = split_by_member(order.data(), member.data(), num_vertices, 3, threads);
    for (int k = 0; k < 3; ++k) {
      const int32_t* const begin = split[k].data.get();
      CHECK(std::vector<int32_t>(begin, begin + split[k].size) == expected[k]);
    }
  }
  member[num_vertices - 1] = 3;
  CHECK_THROWS(split_by_member(order.data(), member.data(), num_vertices, 3, 2),
               std::invalid_argument);
}

}  // namespace

int main() {
  test_sums_by_hand();
  test_many_vertices(300'000);
  return check_result();
}
