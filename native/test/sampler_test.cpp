// Tests of relabeling, neighbor picking on every instruction set, neighbor and layer-wise sampling.
#include "gnnscale/sampler.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "check.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/random.hpp"
#include "kernels.hpp"

using namespace gnnscale;

namespace {

// A topology that owns its arrays.
template <typename Vertex>
struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<Vertex> indices;

  explicit Graph(const std::vector<std::vector<Vertex>>& neighbors) {
    for (const auto& list : neighbors) {
      indices.insert(indices.end(), list.begin(), list.end());
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
  }
  Topology<Vertex> topology() const {
    return {static_cast<int64_t>(indptr.size()) - 1, static_cast<int64_t>(indices.size()),
            indptr.data(), indices.data()};
  }
};

template <typename Vertex>
Seeds seeds_of(const std::vector<Vertex>& seeds) {
  return {seeds.data(), sizeof(Vertex) == 8, static_cast<int64_t>(seeds.size())};
}

template <typename T>
std::vector<T> values(const Array<T>& array) {
  return {array.data.get(), array.data.get() + array.size};
}

template <typename Vertex>
bool same(const SampledBatch<Vertex>& a, const SampledBatch<Vertex>& b) {
  if (values(a.input_vertices) != values(b.input_vertices)) return false;
  if (a.blocks.size() != b.blocks.size()) return false;
  for (size_t hop = 0; hop < a.blocks.size(); ++hop) {
    const BlockArrays &x = a.blocks[hop], &y = b.blocks[hop];
    if (values(x.indptr) != values(y.indptr) || values(x.indices) != values(y.indices) ||
        x.num_src != y.num_src || values(x.importance) != values(y.importance)) {
      return false;
    }
  }
  return true;
}

// Every vertex has 0 to 60 neighbors, with repetitions.
template <typename Vertex>
Graph<Vertex> random_graph(int64_t num_vertices) {
  std::vector<std::vector<Vertex>> neighbors(num_vertices);
  for (int64_t v = 0; v < num_vertices; ++v) {
    const auto degree = static_cast<int64_t>(below(draw(7, v), 61));
    for (int64_t i = 0; i < degree; ++i) {
      neighbors[v].push_back(static_cast<Vertex>(below(draw(combine(7, v), i), num_vertices)));
    }
  }
  return Graph<Vertex>(neighbors);
}

// Dense and hash tables, with parallel and serial relabeling.
const Relabelling kDenseAtOnce{int64_t{1} << 30, 1}, kDenseInTurn{int64_t{1} << 30, 1000};
const Relabelling kHashedAtOnce{0, 1}, kHashedInTurn{0, 1000};

// Standard normal score of a chi-square statistic (Wilson and Hilferty, 1931).
double chi_square_score(double statistic, double freedom) {
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

constexpr int64_t kDense = 1 << 30, kHashed = 0;

void test_relabel() {
  for (const int64_t dense_bytes : {kDense, kHashed}) {
    RelabelMap<int32_t> map(1 << 20, dense_bytes);
    CHECK((map.dense() != nullptr) == (dense_bytes == kDense));
    std::vector<int32_t> vertices(9);
    for (int batch = 0; batch < 3; ++batch) {
      map.start();
      map.reserve(5, vertices.data());
      CHECK(map.insert(5, vertices.data()) == 0);
      CHECK(map.insert(2, vertices.data()) == 1);
      CHECK(map.insert(5, vertices.data()) == 0);
      CHECK(map.insert(0, vertices.data()) == 2);
      CHECK(map.insert(2, vertices.data()) == 1);
      CHECK(map.size() == 3);
      CHECK(vertices[0] == 5 && vertices[1] == 2 && vertices[2] == 0);
    }
  }
}

// Stamps run out between batches and within them: batches before, during and after the reset equal
// the batches of a new map.
void test_relabel_stamps_run_out() {
  constexpr uint32_t kLast = std::numeric_limits<uint32_t>::max();
  for (const int64_t dense_bytes : {kDense, kHashed}) {
    for (const uint32_t first : {kLast - 50, kLast - 51, kLast - 3, kLast}) {
      RelabelMap<int32_t> map(1 << 12, dense_bytes, first);
      std::vector<int32_t> vertices(5);
      for (int batch = 0; batch < 40; ++batch) {
        map.start();
        for (const int32_t part : {0, 2, 0}) {
          map.reserve(2, vertices.data());
          for (int32_t i = part; i < part + 2; ++i) {
            CHECK(map.insert((batch + i) % 4, vertices.data()) == i);
          }
        }
        CHECK(map.size() == 4);
      }
    }
  }
}

// A growing hash table keeps its ids, and is replaced by a dense table that is not larger.
void test_relabel_grows() {
  for (const int64_t num_vertices : {1 << 19, 1 << 23}) {
    RelabelMap<int64_t> map(num_vertices, kHashed);
    std::vector<int64_t> vertices(400001);
    CHECK(map.hash() != nullptr);
    map.start();
    for (int64_t first = 0; first < 400000; first += 100000) {
      map.reserve(100000, vertices.data());
      for (int64_t i = first; i < first + 100000; ++i) {
        CHECK(map.insert(400000 - i, vertices.data()) == i);
      }
      for (int64_t i = 0; i < first; i += 7) CHECK(map.insert(400000 - i, vertices.data()) == i);
    }
    CHECK((map.dense() != nullptr) == (num_vertices == 1 << 19) && map.size() == 400000);
  }
}

// Ids that differ only in their upper half share slot and tag.
void test_relabel_wide_ids() {
  RelabelMap<int64_t> map(int64_t{1} << 40, kHashed);
  std::vector<int64_t> vertices(300);
  map.start();
  map.reserve(299, vertices.data());
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int64_t i = 0; i < 200; ++i) CHECK(map.insert(7 + (i << 32), vertices.data()) == i);
  }
}

// Returns edges of at most `num_vertices` vertices, the first of which repeat often.
template <typename Vertex>
std::vector<Vertex> random_edges(uint64_t key, int64_t num_edges, int64_t num_vertices) {
  std::vector<Vertex> edges;
  for (int64_t i = 0; i < num_edges; ++i) {
    const int64_t bound = i % 3 == 0 ? std::min<int64_t>(num_vertices, 10) : num_vertices;
    const auto vertex = static_cast<Vertex>(below(draw(key, i), bound));
    // 64-bit ids also differ in their upper half only.
    edges.push_back(sizeof(Vertex) == 8 ? vertex / 4 + (vertex % 4 << 20 << 12) : vertex);
  }
  return edges;
}

// Successive hops, relabeled in parallel by any number of threads: ids, their order, and look-ups
// of later hops and batches equal those of single inserts.
template <typename Vertex>
void test_relabel_at_once(int64_t num_edges, int64_t num_vertices, int64_t dense_bytes) {
  constexpr uint32_t kNearTheEnd = std::numeric_limits<uint32_t>::max() - 20000;
  const int64_t grain = std::min<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_edges) / 9 + 1),
                                          RelabelAtOnce<Vertex>::kMaxGrain);
  const int64_t range = sizeof(Vertex) == 8 && dense_bytes == kHashed ? int64_t{1} << 40
                        : sizeof(Vertex) == 8                         ? int64_t{4} << 32
                                                                      : int64_t{1} << 19;
  for (const int threads : {1, 2, 4, 8, 16}) {
    RelabelMap<Vertex> one(range, dense_bytes, kNearTheEnd);
    RelabelMap<Vertex> all(range, dense_bytes, kNearTheEnd);
    RelabelAtOnce<Vertex> at_once;
    for (uint64_t batch = 0; batch < 3; ++batch) {
      std::vector<Vertex> expected(3 * num_edges + 1), vertices(3 * num_edges + 1);
      one.start();
      all.start();
      for (uint64_t hop = 0; hop < 3; ++hop) {
        const auto picked =
            random_edges<Vertex>(combine(batch, hop), num_edges, num_vertices * (hop + 1));
        std::vector<int32_t> local(num_edges), ids(num_edges);
        one.reserve(num_edges, expected.data());
        for (int64_t edge = 0; edge < num_edges; ++edge) {
          local[edge] = one.insert(picked[edge], expected.data());
        }
        all.reserve(num_edges, vertices.data());
        at_once.start(all, vertices.data(), picked.data(), num_edges, grain, ids.data());
        const auto chunks = [&] { return at_once.num_chunks(); };
        // Claims run backward, so that the first appearance claims last.
        const std::array<Phase, 3> phases{{
            {chunks,
             [&](int64_t chunk) {
               const int64_t first = (at_once.num_chunks() - 1 - chunk) * grain;
               at_once.claim(first, std::min(first + grain, num_edges));
             }},
            {chunks, [&](int64_t chunk) { at_once.count(chunk); }},
            {[&] {
               at_once.place();
               return at_once.num_chunks();
             },
             [&](int64_t chunk) { at_once.number(chunk, vertices.data(), hop < 2); }},
        }};
        run_phases(threads, phases);
        CHECK(ids == local);
        CHECK(all.size() == one.size());
        CHECK(std::equal(vertices.begin(), vertices.begin() + one.size(), expected.begin()));
      }
    }
  }
}

void test_relabel_at_once() {
  for (const int64_t dense_bytes : {kDense, kHashed}) {
    for (const int64_t num_edges : {1, 2, 100, 5000}) {
      for (const int64_t num_vertices : {1, 40, 100000}) {
        test_relabel_at_once<int32_t>(num_edges, num_vertices, dense_bytes);
        if (dense_bytes == kHashed) {
          test_relabel_at_once<int64_t>(num_edges, num_vertices, dense_bytes);
        }
      }
    }
    test_relabel_at_once<int32_t>(50000, 30000, dense_bytes);
  }
}

// Floyd's algorithm as published, with the project's random numbers.
std::vector<int64_t> reference_picks(uint64_t key, int64_t begin, int64_t n, int64_t k,
                                     bool replace) {
  std::vector<int64_t> out;
  std::set<int64_t> chosen;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t last = n - k + i;
    if (replace) {
      out.push_back(begin + static_cast<int64_t>(below(draw(key, i), n)));
    } else if (k == n) {
      out.push_back(begin + i);
    } else {
      const auto candidate = static_cast<int64_t>(below(draw(key, i), last + 1));
      const int64_t position = chosen.contains(candidate) ? last : candidate;
      chosen.insert(position);
      out.push_back(begin + position);
    }
  }
  return out;
}

template <typename Vertex>
void test_picks_of(const PickKernels& kernels, const std::vector<std::array<int64_t, 2>>& sizes,
                   bool replace) {
  constexpr uint64_t kKey = 99;
  std::vector<int64_t> begins, degrees, indptr{0}, expected;
  std::vector<Vertex> vertices;
  int64_t begin = 3;
  for (const auto [n, k] : sizes) {
    vertices.push_back(static_cast<Vertex>(vertices.size() * 7));
    begins.push_back(begin);
    degrees.push_back(n);
    indptr.push_back(indptr.back() + k);
    const uint64_t key = combine(kKey, static_cast<uint64_t>(vertices.back()));
    for (const int64_t pick : reference_picks(key, begin, n, k, replace)) expected.push_back(pick);
    begin += n;
  }
  // A neighbor's id is its position, so that a pick tells where it was read.
  std::vector<Vertex> indices(begin);
  for (int64_t i = 0; i < begin; ++i) indices[i] = static_cast<Vertex>(i);
  std::vector<Vertex> picked(indptr.back());
  std::vector<int64_t> positions(indptr.back() + kPickSlack);
  // Prefetching a relabeling table must not change the picks: no table, a dense one, and a hash
  // table.
  const std::vector<uint64_t> table(std::max<int64_t>(begin, 1024));
  const void* const none = nullptr;
  for (const auto& [prefetched, shift] :
       {std::pair{none, 0}, std::pair{static_cast<const void*>(table.data()), 0},
        std::pair{static_cast<const void*>(table.data()), 54}}) {
    Pick<Vertex> hop{
        indices.data(), {0, begin},    {},   vertices.data(), begins.data(), degrees.data(),
        indptr.data(),  picked.data(), kKey, replace,         prefetched,    shift};
    std::fill(picked.begin(), picked.end(), Vertex{-1});
    const auto last = static_cast<int64_t>(sizes.size());
    const auto pick = [&] {
      if constexpr (sizeof(Vertex) == 4) {
        return kernels.pick32(hop, 0, last, positions.data());
      } else {
        return kernels.pick64(hop, 0, last, positions.data());
      }
    };
    CHECK(pick());
    CHECK(std::equal(picked.begin(), picked.end(), expected.begin(), expected.end()));
    // A graph with fewer vertices makes the largest id invalid.
    hop.sources.size = *std::max_element(expected.begin(), expected.end());
    CHECK(!pick());
    // So does a type that begins after the smallest.
    hop.sources = {*std::min_element(expected.begin(), expected.end()) + 1, begin};
    CHECK(!pick());
  }
}

// Full lists, in chunks with arbitrary boundaries.
template <typename Vertex>
void test_full_copies_of(const PickKernels& kernels) {
  std::vector<int64_t> begins, degrees, indptr{0};
  std::vector<Vertex> expected;
  int64_t begin = 3;
  for (const int64_t n : {0, 1, 0, 0, 5, 16, 17, 2000, 0, 3, 300, 255, 256, 257, 1, 0}) {
    begins.push_back(begin);
    degrees.push_back(n);
    indptr.push_back(indptr.back() + n);
    for (int64_t i = 0; i < n; ++i) expected.push_back(static_cast<Vertex>(begin + i));
    begin += n + 2;
  }
  std::vector<Vertex> indices(begin);
  for (int64_t i = 0; i < begin; ++i) indices[i] = static_cast<Vertex>(i);
  const std::vector<uint64_t> table(std::max<int64_t>(begin, 1024));
  const auto num_edges = static_cast<int64_t>(expected.size());
  for (const int64_t grain : {int64_t{1}, int64_t{7}, int64_t{300}, num_edges}) {
    for (const int shift : {-1, 0, 54}) {
      std::vector<Vertex> picked(num_edges);
      Pick<Vertex> hop{indices.data(),
                       {0, begin},
                       {},
                       nullptr,
                       begins.data(),
                       degrees.data(),
                       indptr.data(),
                       picked.data(),
                       0,
                       false,
                       shift < 0 ? nullptr : table.data(),
                       std::max(shift, 0)};
      const auto copy = [&](int64_t first) {
        const auto dst = std::upper_bound(indptr.begin(), indptr.end(), first) - indptr.begin() - 1;
        const int64_t last = std::min(first + grain, num_edges);
        if constexpr (sizeof(Vertex) == 4) {
          return kernels.copy32(hop, dst, first, last);
        } else {
          return kernels.copy64(hop, dst, first, last);
        }
      };
      for (int64_t first = 0; first < num_edges; first += grain) CHECK(copy(first));
      CHECK(picked == expected);
      hop.sources.size = expected.back();  // makes this id invalid
      CHECK(!copy((num_edges - 1) / grain * grain));
      CHECK(grain == num_edges || copy(0));
    }
  }
}

void test_picks() {
  std::vector<std::array<int64_t, 2>> without, with;
  for (const int64_t n : {0, 1, 2, 3, 10, 16, 17, 31, 32, 33, 34, 50, 64, 100, 1000, 50000}) {
    for (const int64_t k : {0, 1, 2, 3, 9, 10, 15, 16, 17, 25, 31, 32, 33, 40, 63, 99, 500}) {
      if (k <= n) without.push_back({n, k});
      if (n > 0) with.push_back({n, k});
    }
  }
  for (const Kernels& kernels : available_kernels()) {
    test_picks_of<int32_t>(*kernels.pick, without, false);
    test_picks_of<int64_t>(*kernels.pick, without, false);
    test_picks_of<int32_t>(*kernels.pick, with, true);
    test_picks_of<int64_t>(*kernels.pick, with, true);
    test_full_copies_of<int32_t>(*kernels.pick);
    test_full_copies_of<int64_t>(*kernels.pick);
  }
}

// One vertex with `degree` neighbors, sampled in many steps: neighbors are kept equally often.
void test_uniform(int64_t degree, int64_t fanout, bool replace) {
  Graph<int32_t> graph({});
  for (int64_t i = 1; i <= degree; ++i) graph.indices.push_back(static_cast<int32_t>(i));
  graph.indptr.assign(degree + 2, degree);
  graph.indptr[0] = 0;
  Sampler<int32_t> sampler(graph.topology());
  // About twenty picks of each neighbor are expected.
  const int64_t num_steps = std::max<int64_t>(4000, 20 * degree / fanout);
  std::vector<int64_t> count(degree + 1);
  const std::vector<int32_t> seed_vertex{0};
  for (int64_t step = 0; step < num_steps; ++step) {
    const auto batch =
        sampler.sample_neighbors(seeds_of(seed_vertex), {fanout}, replace, 1, step, 1);
    CHECK(batch.blocks[0].indices.size == fanout);
    if (!replace) CHECK(batch.input_vertices.size == fanout + 1);
    for (const int32_t local : values(batch.blocks[0].indices)) {
      ++count[batch.input_vertices.data[local]];
    }
  }
  const double steps = static_cast<double>(num_steps), n = static_cast<double>(degree);
  const double expected = steps * static_cast<double>(fanout) / n;
  // Without replacement the counts of one step are not independent: their covariance matrix is
  // p (1 - p) n / (n - 1) (I - J / n), with p = fanout / n.
  const double variance = replace ? expected : expected * (1 - expected / steps) * n / (n - 1);
  double statistic = 0;
  for (int64_t v = 1; v <= degree; ++v) {
    const double off = static_cast<double>(count[v]) - expected;
    statistic += off * off / variance;
  }
  CHECK(std::abs(chi_square_score(statistic, n - 1)) < 4);
}

// All 120 sets of three among ten are equally likely, over steps and over vertices.
void test_uniform_sets() {
  constexpr int64_t kNumSeeds = 300, kNumSteps = 100;
  std::vector<std::vector<int64_t>> neighbors(kNumSeeds + 10);
  std::vector<int64_t> seeds;
  for (int64_t v = 0; v < kNumSeeds; ++v) {
    for (int64_t i = 0; i < 10; ++i) neighbors[v].push_back(kNumSeeds + i);
    seeds.push_back(v);
  }
  const Graph<int64_t> graph(neighbors);
  Sampler<int64_t> sampler(graph.topology());
  std::map<std::set<int64_t>, int64_t> count;
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const auto batch = sampler.sample_neighbors(seeds_of(seeds), {3}, false, 2, step, 1);
    for (int64_t v = 0; v < kNumSeeds; ++v) {
      std::set<int64_t> chosen;
      for (int64_t edge = 3 * v; edge < 3 * v + 3; ++edge) {
        chosen.insert(batch.input_vertices.data[batch.blocks[0].indices.data[edge]]);
      }
      ++count[chosen];
    }
  }
  CHECK(count.size() == 120);
  const double expected = static_cast<double>(kNumSeeds * kNumSteps) / 120;
  double statistic = 0;
  for (const auto& [chosen, times] : count) {
    CHECK(chosen.size() == 3);
    statistic += std::pow(static_cast<double>(times) - expected, 2) / expected;
  }
  CHECK(std::abs(chi_square_score(statistic, 119)) < 4);
}

// 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 has no edges; 4 <- 4.
// Returns LABOR's numbers of a list's neighbors by a plain loop; repeated neighbors get further
// numbers.
template <typename Vertex>
std::vector<uint64_t> reference_numbers(uint64_t key, const std::vector<Vertex>& list) {
  std::vector<uint64_t> numbers;
  uint64_t copy = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    copy = i > 0 && list[i] == list[i - 1] ? copy + 1 : 0;
    numbers.push_back(draw(key, static_cast<uint64_t>(list[i])));
    if (copy > 0) numbers.back() = draw(numbers.back(), copy);
  }
  return numbers;
}

// Lists of every length, with repetitions at both ends and inside, searched in one call or several.
template <typename Vertex>
void test_labor_of(const LaborKernels& kernels) {
  constexpr uint64_t kKey = 7;
  for (int64_t size = 1; size < 140; ++size) {
    for (const uint64_t spread : {uint64_t{1}, uint64_t{40}, uint64_t{1} << 30}) {
      std::vector<Vertex> list(size);
      for (int64_t i = 0; i < size; ++i) {
        list[i] = static_cast<Vertex>(below(draw(combine(spread, size), i), spread));
      }
      std::sort(list.begin(), list.end());
      const std::vector<uint64_t> expected = reference_numbers(kKey, list);
      for (const uint64_t bound : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 56}) {
        const int64_t capacity = size % 2 == 0 ? 2 * kCandidates : 512;
        std::vector<uint64_t> numbers(capacity), all;
        std::vector<int64_t> positions_found(capacity), places_of_all;
        Candidates candidates{numbers.data(), positions_found.data(), 0, capacity, 0, 0};
        while (candidates.next < size) {
          candidates.size = 0;
          if constexpr (sizeof(Vertex) == 4) {
            kernels.search32(kKey, list.data(), size, bound, candidates);
          } else {
            kernels.search64(kKey, list.data(), size, bound, candidates);
          }
          all.insert(all.end(), numbers.begin(), numbers.begin() + candidates.size);
          places_of_all.insert(places_of_all.end(), positions_found.begin(),
                               positions_found.begin() + candidates.size);
        }
        size_t next = 0;
        for (int64_t i = 0; i < size; ++i) {
          if (expected[i] > bound) continue;
          CHECK(next < all.size() && all[next] == expected[i] && places_of_all[next] == i);
          ++next;
        }
        CHECK(next == all.size());
      }
    }
  }
}

void test_labor_keeps_few(const LaborKernels& kernels) {
  for (int64_t size = 1; size <= 64; ++size) {
    std::vector<uint64_t> numbers(128);
    std::vector<int64_t> positions_found(128);
    for (int64_t i = 0; i < size; ++i) {
      numbers[i] = draw(3, static_cast<uint64_t>(i));
      positions_found[i] = 10 * i;
    }
    std::vector<uint64_t> order(numbers.begin(), numbers.begin() + size);
    std::sort(order.begin(), order.end());
    for (int64_t k = 1; k <= size; ++k) {
      std::vector<int64_t> out(k + 1), expected;
      for (int64_t i = 0; i < size; ++i) {
        if (numbers[i] <= order[k - 1]) expected.push_back(5 + 10 * i);
      }
      kernels.keep_few(numbers.data(), positions_found.data(), size, k, 5, out.data());
      out.pop_back();
      CHECK(out == expected);
    }
  }
}

// Batches are equal for any number of threads and every table, and contain the input frontier.
template <typename Vertex>
void test_labor_batches() {
  const auto graph = random_graph<Vertex>(3000);
  std::vector<Vertex> seeds;
  for (Vertex v = 0; v < 3000; v += 7) seeds.push_back(v);
  for (const Labor labor : {Labor::hop, Labor::batch}) {
    EdgeOptions edges;
    edges.labor = labor;
    Sampler<Vertex> first(graph.topology(), kDenseInTurn);
    const auto expected =
        first.sample_neighbors(seeds_of(seeds), {5, 40, 3}, false, 9, 5, 1, false, edges);
    const auto frontier = first.reach_neighbors(seeds_of(seeds), {5, 40, 3}, false, 9, 5, 2, edges);
    CHECK(values(frontier.vertices) == values(expected.input_vertices));
    for (const Relabelling& how : {kDenseAtOnce, kDenseInTurn, kHashedAtOnce, kHashedInTurn}) {
      Sampler<Vertex> sampler(graph.topology(), how);
      for (const int threads : {1, 2, 8}) {
        CHECK(same(sampler.sample_neighbors(seeds_of(seeds), {5, 40, 3}, false, 9, 5, threads,
                                            false, edges),
                   expected));
      }
    }
  }
}

// Two types of vertices, 100 and 2900, and three of edges: the lists of both edge types that end at
// the second type follow each other. Batches are equal for any number of threads and every table.
template <typename Vertex>
void test_typed_batches() {
  const GraphTypes types{{{0, 100}, {100, 2900}}, {{1, 0, 0, 1}, {1, 1, -100, 2}, {0, 1, -99, 2}}};
  std::vector<std::vector<Vertex>> lists(100 + 2 * 2900);
  for (int64_t row = 0; row < std::ssize(lists); ++row) {
    const bool from_first = row >= 100 && (row - 100) % 2 == 1;
    const VertexType& sources = types.vertices[from_first ? 0 : 1];
    for (uint64_t i = 0; i < below(draw(7, row), 61); ++i) {
      lists[row].push_back(
          static_cast<Vertex>(sources.first + below(draw(combine(7, row), i), sources.size)));
    }
  }
  const Graph<Vertex> graph(lists);
  auto topology = graph.topology();
  topology.num_vertices = 3000;
  std::vector<Vertex> seeds;
  for (Vertex v = 0; v < 3000; v += 7) seeds.push_back(2999 - v);
  const Fanouts fanouts{5, 40, 3, 2, 0, -1};
  for (const bool only_new : {false, true}) {
    Sampler<Vertex> first(topology, kDenseInTurn, nullptr, &types);
    const auto expected =
        first.sample_neighbors(seeds_of(seeds), fanouts, false, 9, 5, 1, only_new);
    CHECK(expected.type_sizes.size() == 3 && expected.type_sizes[2].size() == 2 &&
          expected.blocks[4].indices.size == 0);
    CHECK(expected.blocks[0].num_src == expected.blocks[1].num_src);
    CHECK(expected.type_sizes[2][0] == expected.blocks[5].num_src);
    for (const int64_t v : values(expected.edge_vertices[2])) CHECK(v < 100);
    for (const Relabelling& how : {kDenseAtOnce, kDenseInTurn, kHashedAtOnce, kHashedInTurn}) {
      Sampler<Vertex> sampler(topology, how, nullptr, &types);
      for (const int threads : {1, 2, 8}) {
        CHECK(
            same(sampler.sample_neighbors(seeds_of(seeds), fanouts, false, 9, 5, threads, only_new),
                 expected));
      }
    }
  }
}

void test_labor() {
  for (const Kernels& kernels : available_kernels()) {
    test_labor_of<int32_t>(*kernels.labor);
    test_labor_of<int64_t>(*kernels.labor);
    test_labor_keeps_few(*kernels.labor);
  }
  test_labor_batches<int32_t>();
  test_labor_batches<int64_t>();
}

template <typename Vertex>
void test_full_neighbors_by_hand() {
  const Graph<Vertex> graph(std::vector<std::vector<Vertex>>{{1, 2}, {3}, {0, 3}, {}, {4}});
  Sampler<Vertex> sampler(graph.topology());
  const std::vector<Vertex> seeds{4, 0};
  for (const int threads : {1, 4}) {
    const auto batch = sampler.sample_neighbors(seeds_of(seeds), {-1, 5}, false, 0, 0, threads);
    CHECK((values(batch.input_vertices) == std::vector<Vertex>{4, 0, 1, 2, 3}));
    CHECK((values(batch.blocks[0].indptr) == std::vector<int64_t>{0, 1, 3}));
    CHECK((values(batch.blocks[0].indices) == std::vector<int32_t>{0, 2, 3}));
    CHECK(batch.blocks[0].num_src == 4);
    CHECK((values(batch.blocks[1].indptr) == std::vector<int64_t>{0, 1, 3, 4, 6}));
    CHECK((values(batch.blocks[1].indices) == std::vector<int32_t>{0, 2, 3, 4, 1, 4}));
    CHECK(batch.blocks[1].num_src == 5);
    CHECK(batch.blocks[0].importance.size == 0);
  }
  // The second hop expands only 1 and 2, first reached by the first hop.
  const auto new_ones = sampler.sample_neighbors(seeds_of(seeds), {-1, -1}, false, 0, 0, 2, true);
  CHECK((values(new_ones.input_vertices) == std::vector<Vertex>{4, 0, 1, 2, 3}));
  CHECK((values(new_ones.blocks[0].indptr) == std::vector<int64_t>{0, 1, 3}));
  CHECK((values(new_ones.blocks[1].indptr) == std::vector<int64_t>{0, 1, 3}));
  CHECK((values(new_ones.blocks[1].indices) == std::vector<int32_t>{4, 1, 4}));
  const auto nobody =
      sampler.sample_neighbors(seeds_of(std::vector<Vertex>{}), {3, 3}, false, 0, 0, 2);
  CHECK(nobody.input_vertices.size == 0 && nobody.blocks.size() == 2);
  CHECK((values(nobody.blocks[1].indptr) == std::vector<int64_t>{0}));
}

void test_replacement_by_hand() {
  const Graph<int32_t> graph(std::vector<std::vector<int32_t>>{{1}, {}});
  Sampler<int32_t> sampler(graph.topology());
  const std::vector<int32_t> seeds{0, 1};
  const auto batch = sampler.sample_neighbors(seeds_of(seeds), {3}, true, 0, 0, 1);
  CHECK((values(batch.blocks[0].indptr) == std::vector<int64_t>{0, 3, 3}));
  CHECK((values(batch.blocks[0].indices) == std::vector<int32_t>{1, 1, 1}));
  const auto all = sampler.sample_neighbors(seeds_of(seeds), {-1}, true, 0, 0, 1);
  CHECK((values(all.blocks[0].indptr) == std::vector<int64_t>{0, 1, 1}));
}

void test_invalid_seeds() {
  const Graph<int32_t> graph(std::vector<std::vector<int32_t>>{{1}, {0}});
  Sampler<int32_t> sampler(graph.topology());
  const auto sample = [&](std::vector<int32_t> seeds) {
    return sampler.sample_neighbors(seeds_of(seeds), {2}, false, 0, 0, 1);
  };
  CHECK_THROWS(sample({0, 2}), std::invalid_argument);
  CHECK_THROWS(sample({-1}), std::invalid_argument);
  CHECK_THROWS(sample({1, 1}), std::invalid_argument);
  CHECK_THROWS(sample({0, 1, 0}), std::invalid_argument);
  CHECK((values(sample({1, 0}).input_vertices) == std::vector<int32_t>{1, 0}));
}

// One damaged entry of a topology: every sampler detects it, with any number of threads, and
// nothing outside of the scratch memory is written (checked by the sanitizers).
template <typename Vertex>
void test_damaged_topology(const Relabelling& how) {
  const auto refused = [&](const Graph<Vertex>& graph) {
    Sampler<Vertex> sampler(graph.topology(), how);
    std::vector<Vertex> seeds;
    for (Vertex v = 0; v < 2000; ++v) seeds.push_back(v);
    for (const int threads : {1, 2, 4}) {
      CHECK_THROWS(sampler.sample_neighbors(seeds_of(seeds), {-1, 5}, false, 0, 0, threads),
                   TopologyError);
      CHECK_THROWS(sampler.sample_neighbors(seeds_of(seeds), {-1}, true, 0, 0, threads, true),
                   TopologyError);
      CHECK_THROWS(sampler.reach_neighbors(seeds_of(seeds), {-1, 5}, false, 0, 0, threads),
                   TopologyError);
    }
    CHECK_THROWS(sampler.sample_layers(seeds_of(seeds), {100, 100}, 0, 0), TopologyError);
  };
  const auto good = random_graph<Vertex>(2000);
  const auto max = std::numeric_limits<Vertex>::max(), min = std::numeric_limits<Vertex>::min();
  for (const Vertex id : {Vertex{2000}, Vertex{1 << 30}, Vertex{-1}, max, min}) {
    for (const size_t index : {size_t{0}, good.indices.size() / 2, good.indices.size() - 1}) {
      Graph<Vertex> graph = good;
      graph.indices[index] = id;
      refused(graph);
    }
  }
  const auto last = static_cast<int64_t>(good.indices.size());
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const int64_t offset : {int64_t{-1}, last + 1, huge, -huge - 1, int64_t{1} << 31}) {
    for (const size_t index : {0, 1, 1000, 2000}) {
      Graph<Vertex> graph = good;
      graph.indptr[index] = offset;
      refused(graph);
    }
  }
}

void test_sizes_have_limits(const Relabelling& how) {
  const Graph<int32_t> graph(std::vector<std::vector<int32_t>>(40, {0, 1, 2}));
  Sampler<int32_t> sampler(graph.topology(), how);
  std::vector<int32_t> seeds;
  for (int32_t v = 0; v < 40; ++v) seeds.push_back(v);
  const int64_t huge = std::numeric_limits<int32_t>::max();
  CHECK_THROWS(sampler.sample_neighbors(seeds_of(seeds), {huge, 5}, true, 0, 0, 1),
               std::length_error);
  CHECK_THROWS(sampler.reach_neighbors(seeds_of(seeds), {5, huge}, true, 0, 0, 1),
               std::length_error);
  // An interrupted batch leaves no state.
  CHECK(sampler.reach_neighbors(seeds_of(seeds), {huge}, false, 0, 0, 1).vertices.size == 40);
  const auto batch = sampler.sample_neighbors(seeds_of(seeds), {huge}, false, 0, 0, 1);
  CHECK(batch.blocks[0].indices.size == 120 && batch.input_vertices.size == 40);
}

// Results do not depend on hops, fan-outs and earlier batches, including rejected ones.
template <typename Vertex>
void test_input_frontier_equals_sampled_inputs(const Relabelling& how) {
  const auto graph = random_graph<Vertex>(5000);
  Sampler<Vertex> sampler(graph.topology(), how);
  std::vector<Vertex> seeds;
  for (Vertex v = 0; v < 100; ++v) seeds.push_back(7 * v);
  uint64_t step = 0;
  for (const std::vector<int64_t>& fanouts :
       std::vector<std::vector<int64_t>>{{5}, {-1}, {3, 4}, {10, 5, 2}, {-1, -1}, {2, 70}}) {
    for (const bool replace : {false, true}) {
      for (const int threads : {1, 3}) {
        const auto sampled =
            sampler.sample_neighbors(seeds_of(seeds), fanouts, replace, 4, ++step, threads);
        const auto frontier =
            sampler.reach_neighbors(seeds_of(seeds), fanouts, replace, 4, step, threads);
        CHECK(values(frontier.vertices) == values(sampled.input_vertices));
        CHECK(frontier.indptrs.size() == fanouts.size());
        for (size_t hop = 0; hop < fanouts.size(); ++hop) {
          CHECK(values(frontier.indptrs[hop]) == values(sampled.blocks[hop].indptr));
        }
        const std::vector<Vertex> twice{1, 1};
        CHECK_THROWS(sampler.reach_neighbors(seeds_of(twice), fanouts, replace, 4, step, threads),
                     std::invalid_argument);
      }
    }
  }
}

// Results do not depend on threads, id width and the number of concurrent samplers.
void test_results_do_not_depend_on_threads() {
  const auto narrow = random_graph<int32_t>(20000);
  const auto wide = random_graph<int64_t>(20000);
  std::vector<int32_t> seeds32;
  std::vector<int64_t> seeds64;
  for (int32_t v = 0; v < 500; ++v) {
    seeds32.push_back(v * 37);
    seeds64.push_back(v * 37);
  }
  Sampler<int32_t> sampler32(narrow.topology());
  Sampler<int64_t> sampler64(wide.topology());
  SamplerPool<int32_t> pool(narrow.topology());
  for (const bool replace : {false, true}) {
    const std::vector<int64_t> fanouts{20, 40, -1};
    const auto sample = [&](Sampler<int32_t>& sampler, uint64_t step, int threads) {
      return sampler.sample_neighbors(seeds_of(seeds32), fanouts, replace, 3, step, threads);
    };
    for (uint64_t step = 0; step < 3; ++step) {
      const auto expected = sample(sampler32, step, 1);
      for (const int threads : {2, 3, 4}) CHECK(same(expected, sample(sampler32, step, threads)));
      const auto other =
          sampler64.sample_neighbors(seeds_of(seeds64), fanouts, replace, 3, step, 2);
      const auto ids = values(expected.input_vertices);
      CHECK((values(other.input_vertices) == std::vector<int64_t>(ids.begin(), ids.end())));
      CHECK(values(expected.blocks[2].indices) == values(other.blocks[2].indices));

      std::vector<std::thread> callers;
      for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&, caller] {
          for (int repeat = 0; repeat < 3; ++repeat) {
            const auto batch = pool.with_sampler(
                [&](Sampler<int32_t>& sampler) { return sample(sampler, step, 1 + caller % 3); });
            CHECK(same(expected, batch));
          }
        });
      }
      for (std::thread& caller : callers) caller.join();
    }
    CHECK(!same(sample(sampler32, 0, 1), sample(sampler32, 1, 1)));
  }
}

// Results do not depend on tables, threads, parallel or serial relabeling, or earlier batches, on a
// graph of a few hubs and many leaves.
template <typename Vertex>
void test_results_do_not_depend_on_relabeling() {
  constexpr int64_t kSize = 30000;
  std::vector<std::vector<Vertex>> neighbors(kSize);
  for (int64_t v = 0; v < kSize; ++v) {
    const int64_t degree = v % 5000 == 0 ? 6000 : v % 7;
    for (int64_t i = 0; i < degree; ++i) {
      neighbors[v].push_back(static_cast<Vertex>(below(draw(combine(5, v), i), kSize)));
    }
  }
  const Graph<Vertex> graph(neighbors);
  std::vector<Vertex> seeds;
  for (Vertex v = 0; v < 60; ++v) seeds.push_back(v * 500);
  Sampler<Vertex> reference(graph.topology(), kDenseInTurn);
  for (const Relabelling& how : {kDenseAtOnce, kDenseInTurn, kHashedAtOnce, kHashedInTurn}) {
    Sampler<Vertex> sampler(graph.topology(), how);
    uint64_t step = 0;
    for (const std::vector<int64_t>& fanouts :
         std::vector<std::vector<int64_t>>{{-1, -1}, {25, 10}, {3, -1, 4}, {100000}}) {
      for (const bool only_new : {false, true}) {
        for (const bool replace : {false, true}) {
          if (replace && fanouts[0] > 1000) continue;
          const auto sample = [&](Sampler<Vertex>& from, int threads) {
            return from.sample_neighbors(seeds_of(seeds), fanouts, replace, 3, step, threads,
                                         only_new);
          };
          const auto expected = sample(reference, 1);
          for (const int threads : {1, 2, 4, 8, 16}) {
            const auto batch = sample(sampler, threads);
            CHECK(same(expected, batch));
            CHECK(values(expected.edge_vertices[0]) == values(batch.edge_vertices[0]));
          }
          ++step;
        }
      }
    }
  }
}

// Every instruction set gives identical bits, which match a logarithm.
void test_exponentials() {
  constexpr int64_t kSize = 1003;
  std::vector<float> weights(kSize);
  for (int64_t i = 0; i < kSize; ++i) weights[i] = static_cast<float>(i % 5) * 0.3F;
  weights[7] = -1;
  weights[8] = std::numeric_limits<float>::quiet_NaN();
  std::vector<double> expected(kSize);
  baseline::pick_kernels.exponentials(5, 2, weights.data(), kSize, expected.data());
  for (int64_t i = 0; i < kSize; ++i) {
    if (!(weights[i] > 0)) {
      CHECK(std::isinf(expected[i]) && expected[i] > 0);
      continue;
    }
    const double u = (static_cast<double>(draw(5, 2 + i) >> 12) + 0.5) * 0x1.0p-52;
    const double reference = -std::log(u) / static_cast<double>(weights[i]);
    CHECK(std::abs(expected[i] - reference) <= 1e-11 * reference);
  }
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t size : {int64_t{1}, int64_t{17}, kSize}) {
      std::vector<double> times(size);
      kernels.pick->exponentials(5, 2, weights.data(), size, times.data());
      CHECK(std::equal(times.begin(), times.end(), expected.begin()));
    }
  }
}

// Positions, weights and rows match the edges, and requesting them does not change the sample.
// Weighted samples do not depend on the number of threads and never have an edge of weight 0.
template <typename Vertex>
void test_positions_and_weights() {
  const auto graph = random_graph<Vertex>(5000);
  const auto num_edges = static_cast<int64_t>(graph.indices.size());
  std::vector<float> weights(num_edges);
  for (int64_t i = 0; i < num_edges; ++i) weights[i] = static_cast<float>(below(draw(11, i), 4));
  std::vector<uint32_t> rows(num_edges);
  for (int64_t i = 0; i < num_edges; ++i) rows[i] = static_cast<uint32_t>(draw(12, i));
  const WeightSlots slots(graph.indptr.data(), 5000, weights.data(), num_edges, 2);
  CHECK(!slots.all_positive());
  std::vector<Vertex> seeds;
  for (Vertex v = 0; v < 200; ++v) seeds.push_back(v * 23);
  Sampler<Vertex> reference(graph.topology(), kDenseInTurn);
  const auto in_graph = graph.topology();
  for (const Relabelling& how : {kDenseAtOnce, kHashedInTurn}) {
    Sampler<Vertex> sampler(graph.topology(), how);
    for (const std::vector<int64_t>& fanouts :
         std::vector<std::vector<int64_t>>{{-1, -1}, {10, 5}, {3, -1, 2}, {50}}) {
      for (const int variant : {0, 1, 2, 3}) {
        const bool replace = variant & 1, by_weight = variant & 2;
        const EdgeOptions plain{weights.data(), &slots, by_weight, false, false};
        const EdgeOptions all{weights.data(), &slots, by_weight, true, true, rows.data()};
        const auto expected =
            reference.sample_neighbors(seeds_of(seeds), fanouts, replace, 3, 4, 1, false, plain);
        CHECK(expected.blocks[0].positions.size == 0);
        CHECK(expected.blocks[0].edge_rows.size == 0);
        if (!by_weight) {
          CHECK(same(expected,
                     reference.sample_neighbors(seeds_of(seeds), fanouts, replace, 3, 4, 1)));
        }
        for (const int threads : {1, 2, 8}) {
          const auto batch = sampler.sample_neighbors(seeds_of(seeds), fanouts, replace, 3, 4,
                                                      threads, false, all);
          CHECK(same(expected, batch));
          for (const BlockArrays& block : batch.blocks) {
            const Vertex* ids = batch.input_vertices.data.get();
            for (int64_t dst = 0; dst + 1 < block.indptr.size; ++dst) {
              const auto [begin, degree] = in_graph.list(ids[dst]);
              for (int64_t e = block.indptr.data[dst]; e < block.indptr.data[dst + 1]; ++e) {
                const int64_t position = block.positions.data[e];
                CHECK(begin <= position && position < begin + degree);
                CHECK(graph.indices[position] == ids[block.indices.data[e]]);
                CHECK(weights[position] == block.edge_weights.data[e]);
                CHECK(rows[position] == block.edge_rows.data[e]);
                CHECK(!by_weight || weights[position] > 0);
                const auto* first = block.positions.data.get() + block.indptr.data[dst];
                const auto* end = block.positions.data.get() + e;
                if (by_weight && !replace) CHECK(std::find(first, end, position) == end);
              }
            }
          }
        }
      }
    }
  }
  const EdgeOptions everything{weights.data(), nullptr, false, true, true, rows.data()};
  const auto layers = reference.sample_layers(seeds_of(seeds), {50, 60}, 3, 4, everything);
  for (const BlockArrays& block : layers.blocks) {
    for (int64_t e = 0; e < block.indices.size; ++e) {
      const int64_t position = block.positions.data[e];
      CHECK(graph.indices[position] == layers.input_vertices.data[block.indices.data[e]]);
      CHECK(weights[position] == block.edge_weights.data[e]);
      CHECK(rows[position] == block.edge_rows.data[e]);
    }
  }
}

// Returns the probability of each edge of a list according to its slots.
std::vector<double> probabilities(const WeightedList& list) {
  const int64_t size = list.num_blocks();
  std::vector<double> of_slots(size), result(list.end - list.begin);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t alias = list.slots[i].alias;
    const double own_share = static_cast<double>(alias & kSlotMask) * 0x1.0p-32;
    const auto other = static_cast<int64_t>((alias & ~kSlotFilled) >> kSlotBits);
    CHECK((alias & kSlotFilled) != 0 && other < size);
    of_slots[i] += own_share / static_cast<double>(size);
    of_slots[other] += (1 - own_share) / static_cast<double>(size);
  }
  for (int64_t i = 0; i < size; ++i) {
    const WeightSlot& slot = list.slots[i];
    double sum = 0;
    for (int64_t edge = list.begin_of(i); edge < list.end_of(i); ++edge) {
      // The accepted share of an edge's parts is its weight.
      const double filled = static_cast<double>(list.weights[edge]) * kMaxParts / slot.largest;
      const int parts = slot.parts[edge % kWeightBlock];
      CHECK(list.weights[edge] > 0 ? parts - 1 < filled && filled <= parts * (1 + 1e-12)
                                   : parts == 0);
      sum += list.weights[edge];
    }
    for (int64_t edge = list.begin_of(i); edge < list.end_of(i); ++edge) {
      if (sum > 0) result[edge - list.begin] = of_slots[i] * list.weights[edge] / sum;
    }
  }
  return result;
}

// Slots give every edge the probability weight / sum; any number of threads fills equal slots, and
// slots of damaged lists stay empty.
void test_weight_slots() {
  std::vector<float> weights(1000);
  for (int64_t i = 0; i < 1000; ++i) {
    weights[i] = i % 7 == 0 ? 0.0F : static_cast<float>(unit(draw(8, i)));
    if (i >= 600 && i % 7 != 0) weights[i] = 1 / weights[i];  // few edges have most of the weight
  }
  weights[999] = 1e9F;
  const std::vector<int64_t> indptr{0, 10, 10, 40, 48, 400, 600, 1000};
  const auto num_vertices = static_cast<int64_t>(indptr.size()) - 1;
  const WeightSlots slots(indptr.data(), num_vertices, weights.data(), 1000, 1);
  const WeightSlots again(indptr.data(), num_vertices, weights.data(), 1000, 4);
  CHECK(!slots.all_positive());
  const int64_t num_slots = num_weight_slots(num_vertices, 1000);
  CHECK(std::memcmp(slots.data(), again.data(), num_slots * sizeof(WeightSlot)) == 0);
  int64_t used = 0;
  for (int64_t v = 0; v < num_vertices; ++v) {
    const int64_t degree = indptr[v + 1] - indptr[v];
    const WeightedList list = weighted_list(weights.data(), slots.data(), v, indptr[v], degree);
    CHECK(list.slots - slots.data() == used);
    used = list.slots - slots.data() + list.num_blocks();
    double sum = 0;
    for (int64_t edge = list.begin; edge < list.end; ++edge) sum += weights[edge];
    const std::vector<double> found = probabilities(list);
    for (int64_t i = 0; i < degree; ++i) {
      CHECK(std::abs(found[i] - weights[indptr[v] + i] / sum) <= 1e-9);
    }
  }
  CHECK(used == num_slots);

  const std::vector<int64_t> wrong{0, 20, 1001, -3, 50};
  const WeightSlots damaged(wrong.data(), 4, weights.data(), 1000, 2);
  for (int64_t i = 2; i < num_weight_slots(4, 1000); ++i) CHECK(damaged.data()[i].alias == 0);
  // Draws of a list with the slots of another list stay inside the list.
  const WeightedList list = weighted_list(weights.data(), slots.data(), 3, 40, 8);
  const WeightedList moved{weights.data(), slots.data() + 20, 40, 48};
  for (uint64_t i = 0; i < 1000; ++i) {
    for (const WeightedList& candidate : {list, moved}) {
      const int64_t slot = candidate.aliased_at(block_random(1, i));
      CHECK(0 <= slot && slot < candidate.num_blocks());
      const int64_t edge = candidate.edge_in(slot, edge_random(1, i));
      CHECK(edge == -1 || (40 <= edge && edge < 48 && weights[edge] > 0));
    }
  }
  CHECK_THROWS(WeightSlots(indptr.data(), 0, weights.data(), kMaxWeighted + 1, 1),
               std::length_error);
}

// Kernels draw as the header documents, for any list and for infinite weights.
void test_weighted_kernels(const Kernels& kernels) {
  std::vector<float> weights(3000);
  for (int64_t i = 0; i < 3000; ++i) {
    const double u = unit(draw(9, i));
    weights[i] = i % 11 == 0 ? 0.0F : static_cast<float>(i < 1500 ? u : 1 / (u * u));
  }
  weights[2900] = std::numeric_limits<float>::infinity();
  weights[2901] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int64_t> indptr{0, 5, 69, 70, 400, 1600, 2800, 3000};
  const WeightSlots slots(indptr.data(), 7, weights.data(), 3000, 1);
  for (int64_t v = 0; v < 7; ++v) {
    const WeightedList list =
        weighted_list(weights.data(), slots.data(), v, indptr[v], indptr[v + 1] - indptr[v]);
    for (uint64_t key = 0; key < 50; ++key) {
      for (const int64_t k : {1, 3, 16, 17, 32}) {
        std::vector<int64_t> picked_slots(k), expected;
        for (int64_t i = 0; i < k; ++i) picked_slots[i] = list.aliased_at(block_random(key, i));
        std::vector<int64_t> edges = picked_slots;
        const int64_t max_count = 2 * k;
        const int64_t size =
            kernels.weighted->distinct_in(list, key, k, max_count, picked_slots.data());
        kernels.weighted->edges_in(list, key, k, edges.data());
        for (int64_t i = 0; i < max_count && static_cast<int64_t>(expected.size()) < k; ++i) {
          const int64_t slot = list.aliased_at(block_random(key, i));
          const int64_t edge = list.edge_in(slot, edge_random(key, i));
          if (i < k) CHECK(edges[i] == edge);
          const bool is_new = std::find(expected.begin(), expected.end(), edge) == expected.end();
          if (edge >= 0 && is_new) expected.push_back(edge);
        }
        picked_slots.resize(size);
        CHECK(picked_slots == expected);
      }
    }
  }
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// On a graph of 111 million vertices, a batch uses memory for its own vertices only.
void test_memory_is_proportional_to_the_batch() {
  constexpr int64_t kSize = 111'000'000, kSeeds = 1024, kDegree = 128;
  // Except for the seeds, the untouched offsets are 0 and use no memory.
  void* offsets = mmap(nullptr, (kSize + 1) * sizeof(int64_t), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(offsets != MAP_FAILED);
  auto* indptr = static_cast<int64_t*>(offsets);
  std::vector<int32_t> seeds, indices;
  for (int64_t i = 0; i < kSeeds; ++i) {
    const int64_t seed = i * 100'000;
    seeds.push_back(static_cast<int32_t>(seed));
    indptr[seed] = i * kDegree;
    indptr[seed + 1] = (i + 1) * kDegree;
    for (int64_t j = 0; j < kDegree; ++j) {
      indices.push_back(static_cast<int32_t>(below(draw(i, j), kSize)));
    }
  }
  const int64_t old_bytes = resident_bytes();
  Sampler<int32_t> sampler({kSize, std::ssize(indices), indptr, indices.data()});
  for (const int threads : {1, 8}) {
    const auto batch = sampler.sample_neighbors(seeds_of(seeds), {-1}, false, 0, 0, threads);
    CHECK(batch.blocks[0].indices.size == kSeeds * kDegree);
    CHECK(batch.input_vertices.size > 120'000);
  }
  if (!kSanitized) CHECK(resident_bytes() - old_bytes < 32 << 20);
  munmap(offsets, (kSize + 1) * sizeof(int64_t));
}

// The process forks while samplers are taken and returned; the child can sample.
void test_fork_during_sampling() {
  const auto graph = random_graph<int32_t>(100);
  SamplerPool<int32_t> pool(graph.topology());
  const std::vector<int32_t> none, one{1};
  const auto sample = [&](const std::vector<int32_t>& seeds) {
    return pool.with_sampler([&](Sampler<int32_t>& sampler) {
      return sampler.sample_neighbors(seeds_of(seeds), {}, false, 0, 0, 1).input_vertices.size;
    });
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> samplers;
  for (int i = 0; i < (kSanitized ? 0 : 2); ++i) {
    samplers.emplace_back([&] {
      while (!stop) sample(none);
    });
  }
  for (int repeat = 0; repeat < 100; ++repeat) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a child that waits forever fails
      _exit(sample(one) == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!WIFEXITED(status)) break;
  }
  stop = true;
  for (std::thread& thread : samplers) thread.join();
}

// Two layers of at most two vertices: all edges are the graph's, and each edge's mean importance
// over steps is 1.
void test_layers() {
  const Graph<int32_t> graph(
      std::vector<std::vector<int32_t>>{{1, 2, 3}, {2, 4}, {0, 1, 3, 4}, {0}, {}});
  const std::vector<int32_t> seeds{0, 1};
  Sampler<int32_t> sampler(graph.topology());
  constexpr int64_t kNumSteps = 40000;
  std::map<std::array<int32_t, 2>, double> importance;
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const auto batch = sampler.sample_layers(seeds_of(seeds), {2, 2}, 0, step);
    const auto vertices = values(batch.input_vertices);
    CHECK(vertices[0] == 0 && vertices[1] == 1);
    for (const BlockArrays& block : batch.blocks) {
      std::set<int32_t> kept_vertices;
      for (int64_t dst = 0; dst + 1 < block.indptr.size; ++dst) {
        for (int64_t e = block.indptr.data[dst]; e < block.indptr.data[dst + 1]; ++e) {
          const int32_t u = vertices[block.indices.data[e]];
          const auto *from = &graph.indices[graph.indptr[vertices[dst]]],
                     *to = from + graph.topology().list(vertices[dst]).degree;
          CHECK(std::find(from, to, u) != to);
          CHECK(block.importance.data[e] >= 1);
          kept_vertices.insert(u);
          if (&block == &batch.blocks[0])
            importance[{vertices[dst], u}] += block.importance.data[e];
        }
      }
      CHECK(kept_vertices.size() <= 2);
    }
  }
  CHECK(importance.size() == 5);
  for (const auto& [edge, sum] : importance) CHECK(std::abs(sum / kNumSteps - 1) < 0.03);

  const auto all = sampler.sample_layers(seeds_of(seeds), {4}, 0, 0);
  CHECK((values(all.blocks[0].importance) == std::vector<float>(5, 1.0F)));
  CHECK((values(all.input_vertices) == std::vector<int32_t>{0, 1, 2, 3, 4}));
}

}  // namespace

int main() {
  test_relabel();
  test_relabel_stamps_run_out();
  test_relabel_grows();
  test_relabel_wide_ids();
  test_relabel_at_once();
  test_picks();
  test_labor();
  test_typed_batches<int32_t>();
  test_typed_batches<int64_t>();
  for (const int64_t degree : {10, 100, 1000, 50000}) {
    // Sanitizers find nothing more in a minute of equal draws.
    if (kSanitized && degree > 1000) continue;
    for (const int64_t fanout : {5, 9, 16, 25, 32, 33, 60}) {
      if (fanout < degree) test_uniform(degree, fanout, false);
    }
    test_uniform(degree, 10, true);
    test_uniform(degree, 40, true);
  }
  test_uniform_sets();
  test_full_neighbors_by_hand<int32_t>();
  test_full_neighbors_by_hand<int64_t>();
  test_replacement_by_hand();
  test_invalid_seeds();
  for (const Relabelling& how : {kDenseInTurn, kHashedAtOnce}) {
    test_damaged_topology<int32_t>(how);
    test_damaged_topology<int64_t>(how);
    test_sizes_have_limits(how);
    test_input_frontier_equals_sampled_inputs<int32_t>(how);
    test_input_frontier_equals_sampled_inputs<int64_t>(how);
  }
  test_results_do_not_depend_on_threads();
  test_results_do_not_depend_on_relabeling<int32_t>();
  test_results_do_not_depend_on_relabeling<int64_t>();
  test_exponentials();
  test_weight_slots();
  for (const Kernels& kernels : available_kernels()) test_weighted_kernels(kernels);
  test_positions_and_weights<int32_t>();
  test_positions_and_weights<int64_t>();
  test_memory_is_proportional_to_the_batch();
  if (kCanFork) test_fork_during_sampling();
  test_layers();
  return check_result();
}
