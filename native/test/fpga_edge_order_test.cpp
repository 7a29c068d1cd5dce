// Tests of a block's edge order for a streaming kernel: by hand, and by invariants of any order.
#include "gnnscale/fpga_edge_order.hpp"

#include <bit>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

constexpr uint64_t kNull = kNullEdge;

template <typename T>
std::vector<T> all(const Array<T>& array) {
  return {array.data.get(), array.data.get() + array.size};
}

uint64_t edge(float weight, uint64_t destination, bool first) {
  return uint64_t{std::bit_cast<uint32_t>(weight)} << 32 | destination |
         (first ? kFirstEntry : uint64_t{0});
}

// Destination 0 has sources 2, 3 and 2, destination 1 has none, destination 2 has source 3.
const std::vector<int64_t> kIndptr{0, 3, 3, 4};
const std::vector<int32_t> kIndices{2, 3, 2, 3};
const std::vector<float> kWeights{1, 2, 3, 4};

Arrange tiny(const std::vector<int32_t>& destinations, OwnRow own_row, int64_t tile_rows) {
  Arrange task{kIndptr.data(),
               kIndices.data(),
               3,
               5,
               destinations.data(),
               static_cast<int64_t>(destinations.size()),
               own_row,
               tile_rows};
  task.weights = kWeights.data();
  return task;
}

void test_by_hand() {
  const std::vector<int32_t> order{0, 1};
  const std::vector<float> dst_scale{10, 1, 1}, self_scale{0.5, 0.25, 1};
  Arrange task = tiny(order, OwnRow::add, 8);
  task.dst_scale = dst_scale.data();
  task.self_scale = self_scale.data();
  task.backward_tile_rows = 3;
  const Arranged arranged = arrange_block(task);
  CHECK((all(arranged.sources) == std::vector<int32_t>{0, 1, 2, 3}));
  CHECK((all(arranged.forward.tiles) == std::vector<int64_t>{0, 1, 2}));
  CHECK((all(arranged.forward.edges) ==
         std::vector<uint64_t>{edge(0.5, 0, true), edge(0.25, 1, true), edge(10, 0, true),
                               edge(30, 0, false), edge(20, 0, true), kNull, kNull, kNull}));
  CHECK((all(arranged.backward.tiles) == std::vector<int64_t>{0, 1, 3, 1, 1, 1}));
  CHECK((all(arranged.backward.edges) ==
         std::vector<uint64_t>{edge(0.5, 0, true), edge(10, 2, false), edge(30, 2, false),
                               edge(0.25, 1, true), kNull, kNull, kNull, kNull, edge(20, 0, true),
                               kNull | kFirstEntry, kNull, kNull, kNull, kNull, kNull, kNull}));
}

void test_slots_and_tiles_by_hand() {
  const std::vector<int32_t> order{2, 0};
  const Arranged arranged = arrange_block(tiny(order, OwnRow::concat, 1));
  // Source 3 is the first neighbor of destination 2, source 2 of destination 0.
  CHECK((all(arranged.sources) == std::vector<int32_t>{2, 0, 3}));
  CHECK((all(arranged.forward.tiles) == std::vector<int64_t>{0, 1, 1, 1, 1, 1}));
  const uint64_t none = kNull | kFirstEntry;
  CHECK((all(arranged.forward.edges) ==
         std::vector<uint64_t>{edge(1, 0, true), none, edge(4, 16, true), kNull, kNull, kNull,
                               kNull, kNull, edge(1, 16, true), edge(3, 16, false),
                               edge(1, 0, true), edge(2, 16, true), kNull, kNull, kNull, kNull}));
  CHECK(arranged.backward.edges.size == 0 && arranged.backward.tiles.size == 0);
}

void test_no_destinations_and_repeated_destinations() {
  Arrange task = tiny({}, OwnRow::add, 1);
  task.backward_tile_rows = 1;
  const Arranged arranged = arrange_block(task);
  CHECK(arranged.sources.size == 0 && arranged.forward.edges.size == 0 &&
        arranged.backward.tiles.size == 0);
  const std::vector<int32_t> twice{1, 0, 1};
  CHECK_THROWS(arrange_block(tiny(twice, OwnRow::add, 1)), std::invalid_argument);
  const std::vector<int32_t> many{0, 1, 2};
  Arrange large = tiny(many, OwnRow::none, kMaxTileRows);
  large.backward_tile_rows = kMaxTileRows;
  CHECK(arrange_block(large).forward.tiles.size == 3);
}

using Entry = std::tuple<int64_t, int64_t, float>;  // slot * V + v, position of the source, weight

// Reads the lists of all tiles as a kernel does. Rows of a slot have the stride `stride(rows)`.
template <typename Stride, typename Use>
void read(const EdgeTiles& tiles, int64_t num_sources, const Stride& stride, const Use& use) {
  int64_t first = 0, words = 0;
  for (int64_t k = 0; k < tiles.tiles.size; k += 3) {
    const int64_t* tile = tiles.tiles.data.get() + k;
    CHECK(tile[0] == words);
    words += tile[1];
    int64_t source = -1;
    for (int64_t i = tile[0] * kWordEdges; i < words * kWordEdges; ++i) {
      const uint64_t entry = tiles.edges.data[i];
      source += (entry & kFirstEntry) != 0;
      const auto index = static_cast<int64_t>(entry & kNullEdge);
      if (index == static_cast<int64_t>(kNullEdge)) {
        CHECK(entry >> 32 == 0);
        continue;
      }
      const int64_t slot = index / stride(tile[2]);
      use(slot, first + index % stride(tile[2]), source,
          std::bit_cast<float>(static_cast<uint32_t>(entry >> 32)));
    }
    CHECK(source == num_sources - 1);
    first += tile[2];
  }
  CHECK(tiles.edges.size == words * kWordEdges);
}

void test_random_blocks(uint64_t key, OwnRow own_row, int64_t tile_rows,
                        int64_t backward_tile_rows) {
  const int64_t num_dst = 300, num_src = 900;
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices, destinations;
  std::vector<float> weights;
  for (int64_t dst = 0; dst < num_dst; ++dst) {
    const auto degree = dst == 7 ? 5000 : static_cast<int64_t>(below(draw(key, dst), 6));
    for (int64_t i = 0; i < degree; ++i) {
      const uint64_t random = draw(key + 1, dst * 10'000 + i);
      indices.push_back(static_cast<int32_t>(below(random, num_src)));
      weights.push_back(static_cast<float>(weights.size()));  // distinct: they identify the edges
    }
    indptr.push_back(static_cast<int64_t>(indices.size()));
    if (dst % 3 != 0) destinations.push_back(static_cast<int32_t>(dst));
  }
  const auto num_destinations = static_cast<int64_t>(destinations.size());
  Arrange task{indptr.data(),       indices.data(),   num_dst, num_src,
               destinations.data(), num_destinations, own_row, tile_rows};
  task.backward_tile_rows = backward_tile_rows;
  task.weights = weights.data();
  const Arranged arranged = arrange_block(task);

  std::map<int32_t, int64_t> positions;
  for (int64_t p = 0; p < arranged.sources.size; ++p) {
    CHECK(positions.emplace(arranged.sources.data[p], p).second);
  }
  std::multiset<Entry> expected;
  const int64_t neighbors = own_row == OwnRow::concat ? num_destinations : 0;
  for (int64_t v = 0; v < num_destinations; ++v) {
    CHECK(arranged.sources.data[v] == destinations[v]);
    if (own_row != OwnRow::none) expected.emplace(v, v, 1.0F);
    for (int64_t e = indptr[destinations[v]]; e < indptr[destinations[v] + 1]; ++e) {
      expected.emplace(neighbors + v, positions.at(indices[e]), weights[e]);
    }
  }
  std::multiset<Entry> forward, backward;
  const auto aligned = [](int64_t rows) { return (rows + 15) / 16 * 16; };
  read(arranged.forward, arranged.sources.size, aligned,
       [&](int64_t slot, int64_t v, int64_t source, float weight) {
         forward.emplace(slot * num_destinations + v, source, weight);
       });
  const auto whole = [](int64_t) { return int64_t{1} << 40; };
  read(arranged.backward, num_destinations + neighbors, whole,
       [&](int64_t, int64_t p, int64_t row, float weight) { backward.emplace(row, p, weight); });
  CHECK(forward == expected);
  CHECK(backward == expected);
}

}  // namespace

int main() {
  test_by_hand();
  test_slots_and_tiles_by_hand();
  test_no_destinations_and_repeated_destinations();
  for (const OwnRow own_row : {OwnRow::none, OwnRow::add, OwnRow::concat}) {
    for (const int64_t rows : {1, 17, 1000}) test_random_blocks(rows, own_row, rows, 2000 / rows);
  }
  return check_result();
}
