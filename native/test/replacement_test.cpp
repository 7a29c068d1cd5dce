#include "gnnscale/replacement.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

// Number of large allocations until one fails; negative: none fails.
int until_out_of_memory = -1;
constexpr size_t kLarge = 512;

}  // namespace

// Not inlined: the compiler would otherwise diagnose a mismatch of malloc with delete, and of new
// with free.
[[gnu::noinline]] void* operator new(size_t size) {
  if (size >= kLarge && until_out_of_memory >= 0 && until_out_of_memory-- == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(std::max<size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}
// The standard library allocates temporary buffers by this overload.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<size_t>(size, 1));
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace {

using Vertices = std::vector<int32_t>;

void expect(Replacement& replacement, const Vertices& vertices, int num_threads = 1) {
  replacement.expect({vertices.data(), false}, static_cast<int64_t>(vertices.size()), num_threads);
}

Vertices values(const Array<int32_t>& array) {
  return {array.data.get(), array.data.get() + array.size};
}

Vertices slots(const Replacement& replacement) {
  return {replacement.slots(), replacement.slots() + replacement.num_vertices()};
}

bool served(const Replaced& result, int64_t num_hits, int64_t num_previous, int64_t num_misses) {
  return result.num_hits == num_hits && result.num_previous == num_previous &&
         result.num_misses == num_misses;
}

// 0 has the nearest next use, then 2; 1 has none.
void test_nearest_use_by_hand() {
  const Vertices priority{0, 9, 0, 0};
  Replacement replacement(priority.data(), 4, 2, false);
  for (const Vertices& batch : {Vertices{0, 1, 2}, {0, 3}, {2, 0}}) expect(replacement, batch);
  CHECK((values(replacement.look_up(1)) == Vertices{-1, -1, -1}));
  Replaced result = replacement.advance(1);
  CHECK(served(result, 0, 0, 3));
  CHECK((values(result.positions) == Vertices{0, 2}));
  CHECK((values(result.slots) == Vertices{0, 1}));
  CHECK((slots(replacement) == Vertices{0, -1, 1, -1}));
  result = replacement.advance(2);
  CHECK(served(result, 1, 0, 1));
  CHECK(result.positions.size == 0);  // 3 bypasses the cache
  CHECK((values(replacement.look_up(2)) == Vertices{1, 0}));
  CHECK(served(replacement.advance(1), 2, 0, 0));
  CHECK_THROWS(replacement.advance(1), std::invalid_argument);
  CHECK_THROWS(replacement.look_up(1), std::invalid_argument);
}

// No known uses: the highest priority wins, then the lowest vertex.
void test_priority_by_hand() {
  const Vertices priority{-5, 7, INT32_MIN, 7, INT32_MAX};
  Replacement replacement(priority.data(), 5, 2, false);
  expect(replacement, {2, 3, 0, 1});
  CHECK((values(replacement.advance(1).positions) == Vertices{1, 3}));
  expect(replacement, {4});
  const Replaced result = replacement.advance(1);
  CHECK((values(result.slots) == Vertices{0}));  // the slot of 3
  CHECK((slots(replacement) == Vertices{-1, 1, -1, -1, 0}));
}

// The next batch also reads 0, which leaves its slot to 1.
void test_match_by_hand() {
  const Vertices priority{9, 0, 0, 0};
  Replacement replacement(priority.data(), 4, 1, true);
  for (const Vertices& batch : {Vertices{0, 1}, {2, 0}, {1, 2}}) expect(replacement, batch);
  CHECK((values(replacement.advance(1).positions) == Vertices{1}));
  CHECK((slots(replacement) == Vertices{1, 0, -1, -1}));
  CHECK(served(replacement.advance(1), 0, 1, 1));
  CHECK((slots(replacement) == Vertices{2, 0, 1, -1}));
  CHECK(served(replacement.advance(1), 1, 1, 0));
}

void test_rejected_batches_change_nothing() {
  const Vertices priority{0, 0, 0};
  Replacement replacement(priority.data(), 3, 1, false);
  expect(replacement, {0, 1});
  replacement.advance(1);  // keeps 0
  expect(replacement, {1});
  for (const Vertices& bad : {Vertices{0, 2, 0, 1}, {1, 1}, {0, 3}, {-1}}) {
    CHECK_THROWS(expect(replacement, bad), std::invalid_argument);
  }
  const std::vector<int64_t> wide{0, int64_t{1} << 32};
  CHECK_THROWS(replacement.expect({wide.data(), true}, 2, 1), std::invalid_argument);
  CHECK(served(replacement.advance(1), 0, 0, 1));
  CHECK((slots(replacement) == Vertices{0, -1, -1}));  // 1 is not expected again
}

Vertices random_batch(int64_t num_vertices, int64_t size, uint64_t seed) {
  std::set<int32_t> batch;
  for (int64_t i = 0; i < size; ++i) {
    batch.insert(static_cast<int32_t>(below(draw(seed, i), num_vertices)));
  }
  return {batch.begin(), batch.end()};
}

// The cache's contents follow from the copied rows, for any number of threads.
void test_threads_agree(bool match) {
  constexpr int64_t kVertices = 60000, kSteps = 24, kAhead = 5;
  Vertices priority(kVertices);
  for (int64_t v = 0; v < kVertices; ++v) priority[v] = below(draw(1, v), 100);
  Replacement one(priority.data(), kVertices, 9000, match);
  Replacement four(priority.data(), kVertices, 9000, match);
  Vertices cache(9000, -1);
  std::vector<Vertices> batches;
  for (int64_t step = 0; step < kSteps; ++step) {
    // Sizes that grow the ring while it is in use.
    batches.push_back(random_batch(kVertices, 20000 + 1500 * step, 2 + step));
    expect(one, batches[step], 1);
    expect(four, batches[step], 4);
    if (step < kAhead) continue;
    const Vertices& batch = batches[step - kAhead];
    const Vertices found_slots = values(four.look_up(4));
    int64_t num_hits = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      const bool hit = found_slots[i] >= 0 && found_slots[i] < 9000;
      num_hits += hit;
      if (hit) CHECK(cache[found_slots[i]] == batch[i]);
    }
    const Replaced result = one.advance(1), again = four.advance(4);
    CHECK(result.num_hits == num_hits);
    CHECK(served(again, result.num_hits, result.num_previous, result.num_misses));
    CHECK(values(result.positions) == values(again.positions));
    CHECK(values(result.slots) == values(again.slots));
    CHECK(slots(one) == slots(four));
    for (int64_t k = 0; k < result.slots.size; ++k) {
      cache[result.slots.data[k]] = batch[result.positions.data[k]];
    }
  }
}

// A batch in which vertices with small numbers are more frequent.
Vertices skewed_batch(int64_t num_vertices, int64_t size, uint64_t seed) {
  std::set<int32_t> batch;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t bound = below(draw(seed, 2 * i), num_vertices) + 1;
    batch.insert(static_cast<int32_t>(below(draw(seed, 2 * i + 1), bound)));
  }
  return {batch.begin(), batch.end()};
}

// Returns the cache's contents after the first batch, by a plain implementation of the rule.
Vertices expected_content(const std::vector<Vertices>& batches, size_t first, size_t last,
                          const Vertices& content, const Vertices& priority, size_t capacity) {
  std::vector<size_t> next(priority.size(), last);
  for (size_t step = last; step-- > first + 1;) {
    for (const int32_t vertex : batches[step]) next[vertex] = step;
  }
  Vertices all;
  std::set_union(content.begin(), content.end(), batches[first].begin(), batches[first].end(),
                 std::back_inserter(all));
  std::sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
    return std::tuple(next[a], -priority[a], a) < std::tuple(next[b], -priority[b], b);
  });
  all.resize(std::min(all.size(), capacity));
  std::sort(all.begin(), all.end());
  return all;
}

// With a short window most cached rows are idle; with a long one, some expected rows are evicted.
// The batches run out, and start again.
void test_large_caches_follow_the_rule(int64_t capacity, size_t window) {
  constexpr int64_t kVertices = 100000;
  constexpr size_t kSteps = 60, kPause = 30;
  Vertices priority(kVertices);
  for (int64_t v = 0; v < kVertices; ++v) priority[v] = below(draw(1, v), 500);
  Replacement replacement(priority.data(), kVertices, capacity, false);
  std::vector<Vertices> batches;
  for (size_t step = 0; step < kSteps; ++step) {
    batches.push_back(skewed_batch(kVertices, 3000, 2 + step));
  }
  Vertices content;
  size_t num_expected = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    const size_t last = std::min(step + 1 + window, step < kPause ? kPause : kSteps);
    for (; num_expected < last; ++num_expected) expect(replacement, batches[num_expected]);
    replacement.advance(1);
    content = expected_content(batches, step, last, content, priority, capacity);
    Vertices content_now;
    for (int32_t v = 0; v < kVertices; ++v) {
      if (replacement.slots()[v] >= 0) content_now.push_back(v);
    }
    CHECK(content_now == content);
  }
}

// A call that ran out of memory can be repeated.
void test_out_of_memory(int64_t capacity) {
  constexpr int64_t kVertices = 20000, kSteps = 20, kAhead = 3;
  const Vertices priority(kVertices);
  Replacement one(priority.data(), kVertices, capacity, true);
  Replacement other(priority.data(), kVertices, capacity, true);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Vertices batch = skewed_batch(kVertices, 2000, step);
    expect(one, batch);
    expect(other, batch);
    if (step < kAhead) continue;
    const Replaced result = one.advance(1);
    Replaced again;
    for (int calls = 0;; ++calls) {
      until_out_of_memory = calls;
      try {
        again = other.advance(1);
        break;
      } catch (const std::bad_alloc&) {
      }
    }
    until_out_of_memory = -1;
    CHECK(values(result.positions) == values(again.positions));
    CHECK(values(result.slots) == values(again.slots));
    CHECK(slots(one) == slots(other));
  }
}

void test_repeated_vertex_with_threads() {
  constexpr int32_t kVertices = 100000;
  const Vertices priority(kVertices);
  Replacement replacement(priority.data(), kVertices, 10, false);
  Vertices batch(kVertices);
  for (int32_t v = 0; v < kVertices; ++v) batch[v] = v;
  expect(replacement, batch, 4);
  batch.back() = 0;
  CHECK_THROWS(expect(replacement, batch, 4), std::invalid_argument);
  batch.back() = kVertices - 1;
  expect(replacement, batch, 4);
  replacement.advance(4);
  CHECK(served(replacement.advance(4), 10, 0, kVertices - 10));
}

}  // namespace

int main() {
  test_nearest_use_by_hand();
  test_priority_by_hand();
  test_match_by_hand();
  test_rejected_batches_change_nothing();
  test_threads_agree(false);
  test_threads_agree(true);
  test_repeated_vertex_with_threads();
  test_large_caches_follow_the_rule(40000, 2);
  test_large_caches_follow_the_rule(20000, 8);
  test_large_caches_follow_the_rule(4000, 20);
  test_out_of_memory(8000);
  test_out_of_memory(1000);
  return check_result();
}
