#include "gnnscale/disk_lists.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "gnnscale/sampler.hpp"

namespace gnnscale {
namespace {

// A topology in memory, and its neighbors in a file after `offset` leading bytes.
template <typename Vertex>
struct OnDisk {
  OnDisk(std::vector<int64_t> offsets, std::vector<Vertex> neighbors, int64_t bytes_before)
      : indptr(std::move(offsets)), indices(std::move(neighbors)), offset(bytes_before) {
    std::ofstream out(path, std::ios::binary);
    out << std::string(static_cast<size_t>(offset), 'x');
    out.write(reinterpret_cast<const char*>(indices.data()),
              static_cast<std::streamsize>(indices.size() * sizeof(Vertex)));
  }
  ~OnDisk() { std::remove(path.c_str()); }

  int64_t num_vertices() const { return std::ssize(indptr) - 1; }
  Topology<Vertex> topology() const {
    return {num_vertices(), std::ssize(indices), indptr.data(), indices.data()};
  }
  Topology<Vertex> offsets() const {
    return {num_vertices(), std::ssize(indices), indptr.data(), nullptr};
  }
  RowFile file() const { return {path, offset, std::ssize(indices), sizeof(Vertex)}; }

  std::vector<int64_t> indptr;
  std::vector<Vertex> indices;
  int64_t offset;
  std::string path = "disk_lists_" + std::to_string(getpid());
};

// Vertex 0 has more neighbors than a block, every seventh vertex has none.
template <typename Vertex>
OnDisk<Vertex> make_on_disk(int64_t num_vertices, int64_t offset) {
  std::mt19937_64 random(1);
  std::vector<int64_t> indptr{0};
  std::vector<Vertex> indices;
  for (int64_t v = 0; v < num_vertices; ++v) {
    const auto degree = v == 0 ? 5000 : v % 7 == 0 ? 0 : static_cast<int64_t>(random() % 40);
    for (int64_t i = 0; i < degree; ++i) {
      indices.push_back(static_cast<Vertex>(random() % static_cast<uint64_t>(num_vertices)));
    }
    indptr.push_back(std::ssize(indices));
  }
  return {std::move(indptr), std::move(indices), offset};
}

template <typename T>
std::vector<T> values(const Array<T>& array) {
  return {array.data.get(), array.data.get() + array.size};
}

template <typename Vertex>
void check_same(Sampler<Vertex>& one, Sampler<Vertex>& other, uint64_t step, int threads) {
  std::vector<int64_t> seeds(50);
  std::iota(seeds.begin(), seeds.end(), 0);
  const Seeds from{seeds.data(), true, std::ssize(seeds)};
  for (const bool replace : {false, true}) {
    for (const std::vector<int64_t>& fanouts :
         {std::vector<int64_t>{5, 3}, {-1, 2}, {40, -1}, {3000}}) {
      const EdgeOptions edges{.positions = true};
      const auto a = one.sample_neighbors(from, fanouts, replace, 7, step, threads, false, edges);
      const auto b = other.sample_neighbors(from, fanouts, replace, 7, step, 1, false, edges);
      CHECK(values(a.input_vertices) == values(b.input_vertices));
      CHECK(values(a.edge_vertices[0]) == values(b.edge_vertices[0]));
      for (size_t i = 0; i < fanouts.size(); ++i) {
        CHECK(values(a.blocks[i].indptr) == values(b.blocks[i].indptr));
        CHECK(values(a.blocks[i].indices) == values(b.blocks[i].indices));
        CHECK(values(a.blocks[i].positions) == values(b.blocks[i].positions));
      }
      const auto frontier = one.reach_neighbors(from, fanouts, replace, 7, step, threads);
      CHECK(values(frontier.vertices) == values(b.input_vertices));
    }
  }
}

template <typename Vertex>
void test_samples_equal_those_from_memory(ReadEngine engine) {
  const OnDisk<Vertex> data = make_on_disk<Vertex>(3000, 128);
  Sampler<Vertex> memory(data.topology());
  std::vector<int64_t> all(3000), few{0, 1, 5, 700, 2999};
  std::iota(all.begin(), all.end(), 0);
  for (const auto& cached : {std::vector<int64_t>{}, few, all}) {
    for (const int64_t gap : {0, 4096, 1 << 20}) {
      DiskLists<Vertex> lists(data.offsets(), data.file(),
                              {.depth = 4, .max_gap_bytes = gap, .engine = engine}, cached);
      Sampler<Vertex> disk(data.offsets(), {.at_once_from = 1}, &lists);
      for (const int threads : {1, 4}) check_same(disk, memory, 1, threads);
      const ListCounters counters = lists.take_counters();
      CHECK((counters.hits == 0) == cached.empty());
      CHECK((counters.misses == 0) == (std::ssize(cached) == data.num_vertices()));
      CHECK((counters.reads.requests == 0) == (counters.misses == 0));
      CHECK(lists.take_counters().hits == 0);
    }
  }
}

void test_several_threads_sample(ReadEngine engine) {
  const OnDisk<int32_t> data = make_on_disk<int32_t>(3000, 0);
  DiskLists<int32_t> lists(data.offsets(), data.file(), {.engine = engine}, {0, 3});
  SamplerPool<int32_t> pool(data.offsets(), {}, &lists);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      Sampler<int32_t> memory(data.topology());
      for (uint64_t step = 0; step < 3; ++step) {
        pool.with_sampler([&](Sampler<int32_t>& sampler) {
          check_same(sampler, memory, 4 * step + static_cast<uint64_t>(caller), 1);
          return 0;
        });
      }
    });
  }
  for (std::thread& thread : callers) thread.join();
}

void test_damage_is_rejected(ReadEngine engine) {
  const auto sample = [&](const OnDisk<int32_t>& data, const std::vector<int64_t>& cached) {
    DiskLists<int32_t> lists(data.offsets(), data.file(), {.engine = engine}, cached);
    Sampler<int32_t> sampler(data.offsets(), {}, &lists);
    const std::vector<int64_t> seeds{0};
    sampler.sample_neighbors({seeds.data(), true, 1}, {-1}, false, 0, 0, 1);
  };
  for (const std::vector<int64_t>& cached : {std::vector<int64_t>{}, {0}}) {
    sample({{0, 2, 2, 2}, {1, 2}, 8}, cached);
    for (const int32_t bad : {3, -1, INT32_MIN, INT32_MAX}) {
      CHECK_THROWS(sample({{0, 2, 2, 2}, {1, bad}, 8}, cached), TopologyError);
    }
    CHECK_THROWS(sample({{0, 3, 2, 2}, {1, 2}, 8}, cached), TopologyError);
  }
  const OnDisk<int32_t> data({0, 2, 2, 2}, {1, 2}, 8);
  const auto open = [&](const std::vector<int64_t>& cached) {
    DiskLists<int32_t>(data.offsets(), data.file(), {.engine = engine}, cached);
  };
  for (const std::vector<int64_t>& cached : {std::vector<int64_t>{1, 0}, {1, 1}, {3}, {-1}}) {
    CHECK_THROWS(open(cached), std::invalid_argument);
  }
}

void test_truncated_file(ReadEngine engine) {
  const OnDisk<int32_t> data = make_on_disk<int32_t>(3000, 0);
  DiskLists<int32_t> lists(data.offsets(), data.file(), {.engine = engine}, {});
  Sampler<int32_t> sampler(data.offsets(), {}, &lists);
  CHECK(truncate(data.path.c_str(), 4096) == 0);
  const std::vector<int64_t> seeds{2998};
  CHECK_THROWS(sampler.sample_neighbors({seeds.data(), true, 1}, {-1}, false, 0, 0, 1), FileError);
}

// A list whose offsets change after it was copied is read from the file.
void test_list_with_changed_length(ReadEngine engine) {
  OnDisk<int32_t> data({0, 1, 3, 3}, {1, 2, 0}, 0);
  DiskLists<int32_t> lists(data.offsets(), data.file(), {.engine = engine}, {0});
  Sampler<int32_t> disk(data.offsets(), {}, &lists), memory(data.topology());
  data.indptr[1] = 3;
  const std::vector<int64_t> seeds{0};
  const auto a = disk.sample_neighbors({seeds.data(), true, 1}, {-1}, false, 0, 0, 1);
  const auto b = memory.sample_neighbors({seeds.data(), true, 1}, {-1}, false, 0, 0, 1);
  CHECK(values(a.edge_vertices[0]) == values(b.edge_vertices[0]));
}

bool works(ReadEngine engine) {
  const OnDisk<int32_t> data({0, 1}, {0}, 0);
  try {
    DiskLists<int32_t>(data.offsets(), data.file(), {.engine = engine}, {});
  } catch (const FileError&) {
    return false;
  }
  return true;
}

}  // namespace
}  // namespace gnnscale

int main() {
  using namespace gnnscale;
  for (const ReadEngine engine : {ReadEngine::threads, ReadEngine::io_uring}) {
    if (!works(engine)) continue;  // containers may forbid io_uring
    test_samples_equal_those_from_memory<int32_t>(engine);
    test_samples_equal_those_from_memory<int64_t>(engine);
    test_several_threads_sample(engine);
    test_damage_is_rejected(engine);
    test_truncated_file(engine);
    test_list_with_changed_length(engine);
  }
  return check_result();
}
