// Tests of sampling a hop by all edge types in one run of threads, against a plain sampler.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

using namespace gnnscale;

namespace {

constexpr uint64_t kSeed = 3, kStep = 8;
constexpr int64_t kNumVertices = 8000;

// Vertices of 5000, 3000 and no ids; the first type has two lists a vertex, the second three.
const GraphTypes kTypes{{{0, 5000}, {5000, 3000}, {kNumVertices, 0}},
                        {{1, 0, 0, 2},
                         {0, 0, 1, 2},
                         {0, 1, -5000, 3},
                         {1, 1, -4999, 3},
                         {2, 1, -4998, 3},
                         {0, 2, 11000, 1}}};

// Lists of up to 40 neighbors, some of 2500, and none from the type without vertices.
template <typename Vertex>
struct Lists {
  std::vector<int64_t> indptr = std::vector<int64_t>(2 * 5000 + 3 * 3000 + 1);
  std::vector<Vertex> indices;

  Lists() {
    std::vector<VertexType> sources(indptr.size() - 1);
    for (const EdgeType& edges : kTypes.edges) {
      const auto [first, size] = kTypes.vertices[edges.destination];
      for (int64_t v = first; v < first + size; ++v) {
        sources[edges.row(v)] = kTypes.vertices[edges.source];
      }
    }
    for (size_t row = 0; row < sources.size(); ++row) {
      const auto degree = row % 500 == 0 ? 2500 : below(draw(1, row), 41);
      for (uint64_t i = 0; i < degree && sources[row].size > 0; ++i) {
        const uint64_t id = below(draw(combine(2, row), i), sources[row].size);
        indices.push_back(static_cast<Vertex>(sources[row].first + static_cast<int64_t>(id)));
      }
      indptr[row + 1] = std::ssize(indices);
    }
  }

  Topology<Vertex> topology() const {
    return {kNumVertices, std::ssize(indices), indptr.data(), indices.data()};
  }

  // Floyd's sampling of a list, whose random numbers are those of `key`.
  std::vector<Vertex> picks(int64_t row, int64_t fanout, uint64_t key) const {
    const int64_t size = indptr[row + 1] - indptr[row];
    const bool takes_all = fanout < 0 || size <= fanout;
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < (takes_all ? size : fanout); ++i) {
      const int64_t last = takes_all ? i : size - fanout + i;
      const auto candidate = takes_all ? i : static_cast<int64_t>(below(draw(key, i), last + 1));
      const bool is_taken = std::ranges::find(positions, candidate) != positions.end();
      positions.push_back(is_taken ? last : candidate);
    }
    std::vector<Vertex> neighbors;
    for (const int64_t i : positions) neighbors.push_back(indices[indptr[row] + i]);
    return neighbors;
  }
};

// Local ids of the vertices of one type.
struct Front {
  std::vector<int64_t> vertices;
  std::unordered_map<int64_t, int32_t> ids;

  int32_t id_of(int64_t vertex) {
    const auto [entry, is_new] = ids.try_emplace(vertex, static_cast<int32_t>(vertices.size()));
    if (is_new) vertices.push_back(vertex);
    return entry->second;
  }
};

struct PlainBlock {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
};

template <typename Vertex>
std::vector<PlainBlock> sample_plainly(const Lists<Vertex>& lists, const Fanouts& fanouts,
                                       std::vector<Front>& fronts) {
  const size_t num_types = kTypes.edges.size();
  std::vector<PlainBlock> blocks;
  for (size_t hop = 0; hop * num_types < fanouts.size(); ++hop) {
    const uint64_t key = stream_key(Stream::neighbors, kSeed, kStep, hop);
    const std::vector<Front> destinations = fronts;
    for (size_t r = 0; r < num_types; ++r) {
      const EdgeType& edges = kTypes.edges[r];
      PlainBlock& block = blocks.emplace_back();
      for (const int64_t v : destinations[edges.destination].vertices) {
        const uint64_t list_key = combine(combine(key, r), static_cast<uint64_t>(v));
        for (const Vertex u : lists.picks(edges.row(v), fanouts[hop * num_types + r], list_key)) {
          block.indices.push_back(fronts[edges.source].id_of(u));
        }
        block.indptr.push_back(std::ssize(block.indices));
      }
    }
  }
  return blocks;
}

template <typename T, typename Expected>
bool equal(const Array<T>& array, const Expected& expected) {
  return std::equal(array.data.get(), array.data.get() + array.size, expected.begin(),
                    expected.end());
}

// Seeds of two types, in more parts and chunks than threads; fan-outs leave out an edge type.
template <typename Vertex>
void test_hops_by_all_edge_types() {
  const Lists<Vertex> lists;
  const Fanouts fanouts{5, 40, 3, -1, 7, 2, 10, 0, 20, 2, -1, 1};
  std::vector<int64_t> seeds;
  std::vector<Front> fronts(kTypes.vertices.size());
  for (int64_t v = kNumVertices - 1; v > 0; v -= 3) {
    seeds.push_back(v);
    fronts[v < 5000 ? 0 : 1].id_of(v);
  }
  const std::vector<PlainBlock> expected = sample_plainly(lists, fanouts, fronts);
  for (const int64_t dense_bytes : {int64_t{0}, int64_t{1} << 30}) {
    Sampler<Vertex> sampler(lists.topology(), {dense_bytes, 1000}, nullptr, &kTypes);
    for (const int threads : {1, 2, 3, 8}) {
      const auto batch = sampler.sample_neighbors({seeds.data(), true, std::ssize(seeds)}, fanouts,
                                                  false, kSeed, kStep, threads);
      CHECK(batch.blocks.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(equal(batch.blocks[i].indptr, expected[i].indptr));
        CHECK(equal(batch.blocks[i].indices, expected[i].indices));
      }
      std::vector<int64_t> vertices, sizes;
      for (const Front& front : fronts) {
        vertices.insert(vertices.end(), front.vertices.begin(), front.vertices.end());
        sizes.push_back(std::ssize(front.vertices));
      }
      CHECK(equal(batch.input_vertices, vertices) && batch.type_sizes.back() == sizes);
    }
  }
}

// A neighbor of another type, or offsets out of range, in the lists of the last edge types; the
// sampler is usable afterwards.
void test_damaged_lists() {
  Lists<int32_t> lists;
  std::vector<int64_t> seeds;
  for (int64_t v = 0; v < kNumVertices; ++v) seeds.push_back(v);
  Sampler<int32_t> sampler(lists.topology(), {0, 1000}, nullptr, &kTypes);
  const auto sample = [&](int threads) {
    return sampler.sample_neighbors({seeds.data(), true, std::ssize(seeds)},
                                    {-1, -1, -1, -1, -1, -1}, false, kSeed, kStep, threads);
  };
  const int64_t row = 7999 * 3 - 4999;
  CHECK(lists.indptr[row] < lists.indptr[row + 1]);
  int32_t& neighbor = lists.indices[lists.indptr[row + 1] - 1];
  int64_t& offset = lists.indptr[row + 2];
  for (const int threads : {1, 2, 8}) {
    const int32_t good = std::exchange(neighbor, 4999);
    CHECK_THROWS(sample(threads), TopologyError);
    neighbor = good;
    const int64_t good_offset = std::exchange(offset, -1);
    CHECK_THROWS(sample(threads), TopologyError);
    offset = good_offset;
    CHECK(sample(threads).input_vertices.size == kNumVertices);
  }
}

}  // namespace

int main() {
  test_hops_by_all_edge_types<int32_t>();
  test_hops_by_all_edge_types<int64_t>();
  test_damaged_lists();
  return check_result();
}
