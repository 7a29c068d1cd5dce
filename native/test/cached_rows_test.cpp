// Tests of rows in caches and the host against plain loops, for every number of caches and threads.
// rows_test.cpp tests the kernels that read rows from addresses.
#include "gnnscale/cached_rows.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

constexpr int64_t kNumVertices = 5000, kLength = 7;

// A host whose row v holds v, v + 1, ..., and caches with distinct values, so that a row's value
// tells its location.
struct Store {
  std::vector<float> host;
  std::vector<std::vector<float>> cached;
  std::vector<Rows> caches;
  std::vector<int32_t> slots;
  std::vector<int64_t> starts{0};

  explicit Store(const std::vector<int64_t>& sizes) : slots(kNumVertices, -1) {
    for (int64_t i = 0; i < kNumVertices * kLength; ++i) host.push_back(static_cast<float>(i));
    int32_t slot = 0;
    for (const int64_t size : sizes) {
      starts.push_back(starts.back() + size);
      cached.emplace_back(size * kLength);
      for (int64_t i = 0; i < size; ++i, ++slot) {
        slots[(slot * int64_t{7} + 3) % kNumVertices] = slot;
        for (int64_t j = 0; j < kLength; ++j) {
          cached.back()[i * kLength + j] = value(slot, j);
        }
      }
    }
    for (const auto& rows : cached) {
      caches.push_back({rows.data(), DType::float32, kLength, kLength});
    }
  }
  static float value(int32_t slot, int64_t column) {
    return -static_cast<float>(slot * kLength + column) - 1.0F;
  }
  Slots table() const {
    return {slots.data(), kNumVertices, starts.data(), static_cast<int64_t>(caches.size())};
  }
  int64_t member(int32_t slot) const {
    int64_t k = 0;
    while (slot >= 0 && slot >= starts[k + 1]) ++k;
    return slot < 0 ? static_cast<int64_t>(caches.size()) : k;
  }
};

// Returns the store's slots as ranked slots.
std::unique_ptr<RankedSlots> ranked(const Store& store) {
  std::vector<int32_t> vertices(store.starts.back());
  for (int32_t vertex = 0; vertex < kNumVertices; ++vertex) {
    if (store.slots[vertex] >= 0) vertices[store.slots[vertex]] = vertex;
  }
  std::vector<RankedSlots::Member> members;
  for (size_t k = 0; k + 1 < store.starts.size(); ++k) {
    members.push_back(
        {{vertices.data() + store.starts[k], false}, store.starts[k + 1] - store.starts[k]});
  }
  return std::make_unique<RankedSlots>(kNumVertices, members);
}

std::vector<int64_t> some_vertices(int64_t size) {
  std::vector<int64_t> vertices;
  for (int64_t i = 0; i < size; ++i) {
    vertices.push_back(static_cast<int64_t>(below(draw(5, i), kNumVertices)));
  }
  return vertices;
}

void test_gather_and_counts() {
  const std::vector<std::vector<int64_t>> all_sizes{{},       {0},       {2000},
                                                    {1, 900}, {0, 5, 0}, {300, 0, 7, 800, 1, 64}};
  for (const auto& sizes : all_sizes) {
    const Store store(sizes);
    const auto ranks = ranked(store);
    Slots by_rank = store.table();
    by_rank.data = nullptr;
    by_rank.ranked = ranks.get();
    for (const int64_t size : {0, 1, 63, 64, 65, 128, 129, 3000, 40000}) {
      const std::vector<int64_t> wide = some_vertices(size);
      const std::vector<int32_t> narrow(wide.begin(), wide.end());
      std::vector<int64_t> expected(sizes.size() + 1), expected_reads(sizes.size() + 1);
      std::vector<int64_t> offsets{0};
      for (int64_t i = 0; i < size; ++i) {
        const int64_t member = store.member(store.slots[wide[i]]);
        ++expected[member];
        expected_reads[member] += i % 5;
        offsets.push_back(offsets.back() + i % 5);
      }
      for (const int threads : {1, 2, 5}) {
        for (const RowIds vertices : {RowIds{wide.data(), true}, RowIds{narrow.data(), false}}) {
          for (const Slots& slots : {store.table(), by_rank}) {
            std::vector<float> out(size * kLength);
            const Gather from_host{{store.host.data(), DType::float32, kLength, kLength},
                                   vertices,
                                   size,
                                   {out.data(), DType::float32, kLength, kLength}};
            std::vector<int64_t> counts(sizes.size() + 1), slot_counts = counts, reads = counts;
            gather_cached({from_host, store.caches.data(), slots}, counts.data(), threads);
            count_slots(slots, vertices, size, nullptr, slot_counts.data(), threads);
            count_slots(slots, vertices, size, offsets.data(), reads.data(), threads);
            CHECK(counts == expected && slot_counts == expected && reads == expected_reads);
            int64_t num_wrong = 0;
            for (int64_t i = 0; i < size * kLength; ++i) {
              const int32_t slot = store.slots[wide[i / kLength]];
              num_wrong +=
                  out[i] != (slot < 0 ? store.host[wide[i / kLength] * kLength + i % kLength]
                                      : Store::value(slot, i % kLength));
            }
            CHECK(num_wrong == 0);
          }
        }
      }
    }
  }
}

void test_invalid_ids_and_slots() {
  Store store({10, 20});
  std::vector<int64_t> vertices = some_vertices(1000), counts(3);
  const RowIds ids{vertices.data(), true};
  for (const int threads : {1, 3}) {
    for (const int64_t wrong : {int64_t{-1}, kNumVertices, int64_t{1} << 62, INT64_MIN}) {
      const int64_t right = std::exchange(vertices[700], wrong);
      CHECK_THROWS(count_slots(store.table(), ids, 1000, nullptr, counts.data(), threads),
                   std::invalid_argument);
      vertices[700] = right;
    }
    for (const int32_t wrong : {-2, 30, INT32_MAX, INT32_MIN}) {
      const int32_t right = std::exchange(store.slots[vertices[700]], wrong);
      CHECK_THROWS(count_slots(store.table(), ids, 1000, nullptr, counts.data(), threads),
                   std::invalid_argument);
      store.slots[vertices[700]] = right;
    }
  }
}

void test_ranks() {
  for (const int64_t num_vertices : {1, 63, 64, 65, 1000}) {
    std::vector<int64_t> up, down;
    for (int64_t v = 0; v < num_vertices; v += 3) up.push_back(v);
    down.assign(up.rbegin(), up.rend());
    for (const auto* const vertices : {&up, &down}) {
      const auto size = static_cast<int64_t>(vertices->size());
      const RankedSlots slots(num_vertices, {{{vertices->data(), true}, size}});
      CHECK(slots.starts() == (std::vector<int64_t>{0, size}));
      CHECK(slots.num_bytes() ==
            16 * (num_vertices / 64 + 1) + (vertices == &down && size > 1 ? 4 * size : 0));
      for (int64_t v = 0; v < num_vertices; ++v) {
        int32_t slot;
        slots.rank(&v, 1, &slot);
        slots.find(&slot, 1);
        CHECK(slot == (v % 3 != 0 ? -1 : vertices == &up ? v / 3 : size - 1 - v / 3));
      }
    }
    for (const int64_t wrong : {int64_t{-1}, num_vertices, INT64_MAX, INT64_MIN}) {
      CHECK_THROWS(RankedSlots(num_vertices, {{{&wrong, true}, 1}}), std::invalid_argument);
    }
  }
}

void test_uses_counted_by_several_threads() {
  const std::vector<int64_t> vertices = some_vertices(20000);
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> expected(kNumVertices), counts(kNumVertices);
  for (int64_t i = 0; i < 20000; ++i) {
    offsets.push_back(offsets.back() + i % 3);
    expected[vertices[i]] += static_cast<int32_t>(1 + i % 3);
  }
  const RowIds ids{vertices.data(), true};
  std::thread other([&] { count_uses(ids, 20000, nullptr, counts.data(), kNumVertices, 2); });
  count_uses(ids, 20000, offsets.data(), counts.data(), kNumVertices, 2);
  other.join();
  CHECK(counts == expected);
}

void test_counts_saturate() {
  const std::vector<int32_t> vertices{0, 1, 2, 2, 2};
  const std::vector<int64_t> offsets{
      0, INT64_MAX - 4, INT64_MAX - 3, INT64_MAX - 2, INT64_MAX - 1, INT64_MAX};
  std::vector<int32_t> counts{1, INT32_MAX - 1, INT32_MAX - 1};
  count_uses({vertices.data(), false}, 5, offsets.data(), counts.data(), 3, 1);
  CHECK((counts == std::vector<int32_t>{INT32_MAX, INT32_MAX, INT32_MAX}));
  CHECK_THROWS(count_uses({vertices.data(), false}, 5, nullptr, counts.data(), 2, 1),
               std::invalid_argument);
}

void test_copies() {
  const Store store({});
  std::vector<int64_t> from(700), to(700);
  for (int64_t i = 0; i < 700; ++i) {
    from[i] = i * i % kNumVertices;
    to[i] = i * 3 % 1000;  // distinct, since 3 and 1000 are coprime
  }
  for (const int threads : {1, 3}) {
    std::vector<float> target(1000 * (kLength + 2), 0.5F);
    std::vector<float> expected = target;
    CopyRows task{{store.host.data(), DType::float32, kLength, kLength},
                  kNumVertices,
                  {from.data(), true},
                  700,
                  {target.data(), DType::float32, kLength, kLength + 2},
                  1000,
                  {to.data(), true}};
    copy_rows(task, threads);
    for (int64_t i = 0; i < 700; ++i) {
      std::copy_n(&store.host[from[i] * kLength], kLength, &expected[to[i] * (kLength + 2)]);
    }
    CHECK(target == expected);
    for (auto* const ids : {&from, &to}) {
      for (const int64_t wrong : {int64_t{-1}, kNumVertices, INT64_MAX}) {
        const int64_t right = std::exchange((*ids)[500], wrong);
        CHECK_THROWS(copy_rows(task, threads), std::invalid_argument);
        (*ids)[500] = right;
      }
    }
    const int64_t right = std::exchange(to[699], to[0]);
    CHECK_THROWS(copy_rows(task, threads), std::invalid_argument);
    to[699] = right;
  }
}

}  // namespace

int main() {
  test_gather_and_counts();
  test_invalid_ids_and_slots();
  test_ranks();
  test_uses_counted_by_several_threads();
  test_counts_saturate();
  test_copies();
  return check_result();
}
