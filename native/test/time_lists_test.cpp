// Tests of searches of sorted lists for time bounds, against searches of the standard library.
#include "gnnscale/time_lists.hpp"

#include <algorithm>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Lists of 0 to 5000 edges, in which every ninth list has no times.
struct Lists {
  std::vector<int64_t> indptr = {0}, times;

  // `time_of(draw)` is a time from 64 random bits.
  template <typename TimeOf>
  explicit Lists(TimeOf&& time_of) {
    for (uint64_t v = 0; v < 300; ++v) {
      const uint64_t degree = v % 50 == 0 ? 5000 : below(draw(1, v), 90);
      const auto first = std::ssize(times);
      for (uint64_t i = 0; i < degree; ++i) {
        times.push_back(v % 9 == 4 ? kNoTime : time_of(draw(combine(2, v), i)));
      }
      std::sort(times.begin() + first, times.end());
      indptr.push_back(std::ssize(times));
    }
  }

  int64_t num_lists() const { return std::ssize(indptr) - 1; }
  TimeIndex index(bool has_codes, int num_threads) const {
    return {times.data(), indptr.data(), std::ssize(times), GraphTypes::homogeneous(num_lists()),
            has_codes,    num_threads};
  }
};

// Searches all lists for bounds near times of their own, and far from them.
void check_searches(const Lists& lists, const TimeIndex& index, bool strict) {
  const int64_t* times = lists.times.data();
  for (int64_t first = 0; first < lists.num_lists(); first += TimeSearches::kTogether) {
    const int64_t last = std::min(first + TimeSearches::kTogether, lists.num_lists());
    for (uint64_t round = 0; round < 40; ++round) {
      TimeSearches searches(times, index.codes());
      std::vector<int64_t> bounds;
      for (int64_t v = first; v < last; ++v) {
        const uint64_t word = draw(combine(3, v), round);
        const int64_t time = lists.times[below(word, lists.times.size())];
        const int64_t bound = std::max(time, kNoTime + 2) - 1 + static_cast<int64_t>(word % 2);
        bounds.push_back(round == 0 ? kMax : round == 1 ? kNoTime + 1 : bound);
        searches.add(lists.indptr[v], lists.indptr[v + 1], bounds.back(),
                     index.shares(0).at(bounds.back()));
      }
      searches.run(strict);
      for (int64_t v = first; v < last; ++v) {
        const int64_t bound = bounds[v - first];
        const int64_t *begin = times + lists.indptr[v], *end = times + lists.indptr[v + 1];
        const int64_t* found =
            strict ? std::lower_bound(begin, end, bound) : std::upper_bound(begin, end, bound);
        CHECK(searches.begin(v - first) == found - times);
      }
    }
  }
}

template <typename TimeOf>
void test_searches(TimeOf&& time_of) {
  const Lists lists(time_of);
  for (const bool has_codes : {false, true}) {
    const TimeIndex index = lists.index(has_codes, 2);
    CHECK((index.codes() != nullptr) == has_codes);
    check_searches(lists, index, false);
    check_searches(lists, index, true);
  }
}

// Shares and codes ascend with the times, from 0 to 1.
void test_shares() {
  std::vector<int64_t> sample;
  for (uint64_t i = 0; i < 2000; ++i) {
    const auto time = static_cast<int64_t>(below(draw(4, i), 1 << 20));
    sample.push_back(i % 3 == 0 ? time : time / 1024);
  }
  const TimeShares shares(sample);
  CHECK(shares.at(-1) == 0 && shares.at(kNoTime) == 0);
  CHECK(TimeIndex::code(shares.at(kMax)) == 32767);
  for (int64_t time = 0; time < 1 << 20; ++time) CHECK(shares.at(time) <= shares.at(time + 1));
  CHECK(TimeShares({7, 7, 7}).at(7) == 0 && TimeShares({7, 7, 7}).at(8) == 0);
  CHECK(TimeShares().at(5) == 0);
}

// Codes do not depend on the threads, nor on lists that no edge can have.
void test_codes() {
  Lists lists([](uint64_t word) { return static_cast<int64_t>(word % 100000); });
  const TimeIndex one = lists.index(true, 1), four = lists.index(true, 4);
  CHECK(std::equal(one.codes(), one.codes() + lists.times.size(), four.codes()));
  for (const int64_t offset : {int64_t{-5}, kMax, std::ssize(lists.times) + 1, int64_t{0}}) {
    lists.indptr[100] = offset;
    CHECK(lists.index(true, 4).codes() != nullptr);
  }
}

}  // namespace

int main() {
  test_shares();
  test_codes();
  test_searches([](uint64_t word) { return static_cast<int64_t>(word % 1000000); });
  test_searches([](uint64_t word) { return static_cast<int64_t>(word % 5) * 86400; });
  test_searches([](uint64_t word) { return static_cast<int64_t>(word >> (word % 64)); });
  test_searches([](uint64_t word) { return static_cast<int64_t>(word | 1); });
  test_searches([](uint64_t) { return int64_t{12}; });
  return check_result();
}
