// Tests that batches of every kind of sampling, by several blocks on several threads, equal those
// of the native sampler; sanitizers check the kernels' reads and writes.
#include <algorithm>
#include <string>
#include <vector>

#include "check.hpp"
#include "gnnscale/sampler.hpp"
#include "kernels.hpp"
#include "kernels/drop_edges.cu"
#include "kernels/sample.cu"
#include "kernels/sample_high_fanout.cu"
#include "kernels/sample_layers.cu"
#include "kernels/sample_weighted.cu"

using namespace gnnscale;

namespace {

constexpr unsigned kGrid = 3, kHostThreads = 2;
constexpr uint64_t kSeed = 17;

// Buffers have the exact size of a batch, so that sanitizers detect writes past the end.
template <typename T>
using Buffer = std::vector<T>;

template <typename Vertex>
struct Graph {
  std::vector<int64_t> indptr{0};
  std::vector<Vertex> indices;
  std::vector<float> weights;

  // Lists of 0 to 20 neighbors, 3,000 for vertex 0; a third of the weights are 0.
  explicit Graph(int64_t num_vertices) {
    for (int64_t v = 0; v < num_vertices; ++v) {
      const auto degree = v == 0 ? 3000 : static_cast<int64_t>(below(draw(7, v), 21));
      for (int64_t i = 0; i < degree; ++i) {
        const uint64_t random = draw(combine(7, v), i);
        indices.push_back(static_cast<Vertex>(below(random, num_vertices)));
        weights.push_back(random % 3 == 0 ? 0.0F : static_cast<float>(random % 1000) + 1.0F);
      }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
  }
  int64_t num_vertices() const { return static_cast<int64_t>(indptr.size()) - 1; }
  int64_t num_edges() const { return static_cast<int64_t>(indices.size()); }
};

struct Options {
  std::vector<int64_t> fanouts;
  bool replace = false, by_weight = false, layerwise = false, cached = false;
};

struct HopBuffers {
  Buffer<int64_t> indptr, positions;
  Buffer<int32_t> indices;
  Buffer<float> edge_weights, importance;

  HopBuffers(int64_t num_dst, int64_t num_edges)
      : indptr(num_dst + 1),
        positions(num_edges),
        indices(num_edges),
        edge_weights(num_edges),
        importance(num_edges) {}
  SampleHop of(int64_t fanout) {
    return {fanout,
            static_cast<int64_t>(indices.size()),
            static_cast<int64_t>(indptr.size()) - 1,
            indptr.data(),
            indices.data(),
            positions.data(),
            edge_weights.data(),
            importance.data()};
  }
};

// Arguments have the types of the kernel's parameters.
template <typename... Arguments>
void run(const std::string& name, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const cuda_host::Kernel& kernel : cuda_host::kernels()) {
    if (kernel.name == name) return cuda_host::launch(kernel, kGrid, kThreads, cells, kHostThreads);
  }
  CHECK(false);
}

template <typename Vertex>
class DeviceSampler {
 public:
  DeviceSampler(const Graph<Vertex>& graph, const Options& options)
      : options_(options),
        max_edges_(std::max(graph.num_edges(), int64_t{1200})),
        ids_(graph.num_vertices()),
        picked_(max_edges_),
        kept_(max_edges_),
        left_sources_(max_edges_),
        stamps_(ids_.size(), ~0U),
        candidates_(ids_.size(), ~0U),
        slots_(2 * max_edges_),
        histograms_(kMaxHops * 8 * 256),
        begins_(ids_.size()),
        degrees_(ids_.size()),
        lists_(ids_.size()),
        kept_before_(max_edges_ + 1),
        priorities_(max_edges_),
        vertex_tiles_(ids_.size() / 256 + 1),
        edge_tiles_(max_edges_ / 256 + 1),
        weight_slots_(num_weight_slots(graph.num_vertices(), graph.num_edges())) {
    plan_.num_vertices = graph.num_vertices();
    plan_.num_edges = graph.num_edges();
    plan_.indptr = graph.indptr.data();
    plan_.indices = graph.indices.data();
    plan_.weights = graph.weights.data();
    plan_.weight_slots = weight_slots_.data();
    plan_.num_hops = static_cast<int64_t>(options.fanouts.size());
    plan_.replace = options.replace;
    plan_.by_weight = options.by_weight;
    plan_.layerwise = options.layerwise;
    plan_.seed = kSeed;
    plan_.max_vertices = graph.num_vertices();
    plan_.num_stamps = plan_.max_vertices + max_edges_;
    plan_.last_base = &base_;
    point_at_buffers();
    if (options.cached) keep_lists(graph);
    for (const int64_t fanout : options.fanouts) {
      hops_.emplace_back(graph.num_vertices(), max_edges_);
      left_.emplace_back(graph.num_vertices(), max_edges_);
      plan_.hops[hops_.size() - 1] = hops_.back().of(fanout);
      plan_.left[hops_.size() - 1] = left_.back().of(fanout);
    }
    run("sample_fill_slots", graph.indptr.data(), graph.weights.data(), weight_slots_.data(),
        graph.num_vertices(), graph.num_edges());
  }

  // Excluded edges ascend by destination, then source.
  void sample(const std::vector<int64_t>& seeds, uint64_t step,
              const std::vector<int64_t>& sources = {},
              const std::vector<int64_t>& destinations = {}) {
    run("sample_forget", &plan_);
    run_of("sample_begin", seeds.data(), 1, static_cast<int64_t>(seeds.size()), &step);
    run("sample_exclude", &state_, sources.data(), destinations.data(),
        static_cast<int64_t>(sources.size()));
    for (int hop = 0; hop < plan_.num_hops; ++hop) {
      if (options_.layerwise) {
        sample_layer(hop);
      } else {
        pick(hop, options_.fanouts[hop]);
        run_of("sample_number", hop);
        run_of("sample_relabel", hop);
      }
      run_of("sample_leave_out", hop);
      run_of("sample_place_left", hop);
      if (options_.cached) run_of("sample_found", hop);
    }
  }

  bool is(const SampledBatch<Vertex>& expected) const {
    const int64_t end = state_.num_vertices[plan_.num_hops];
    bool same = state_.error == ~uint64_t{0} && equal(expected.input_vertices, ids_, end);
    for (int64_t hop = 0; hop < plan_.num_hops; ++hop) {
      const BlockArrays& block = expected.blocks[hop];
      const int64_t num_edges = state_.num_edges[hop];
      same = same && block.num_src == state_.num_vertices[hop + 1] &&
             equal(block.indptr, hops_[hop].indptr, state_.num_vertices[hop] + 1) &&
             equal(block.indices, hops_[hop].indices, num_edges) &&
             equal(block.positions, hops_[hop].positions, num_edges) &&
             equal(block.edge_weights, hops_[hop].edge_weights, num_edges) &&
             (!options_.layerwise || equal(block.importance, hops_[hop].importance, num_edges));
    }
    return same;
  }

  const SampleState& state() const { return state_; }
  const std::vector<uint64_t>& found() const { return found_; }

 private:
  template <typename T>
  static bool equal(const Array<T>& expected, const Buffer<T>& actual, int64_t size) {
    return expected.size == size &&
           std::equal(expected.data.get(), expected.data.get() + size, actual.begin());
  }

  // Each of two members caches the lists of a third of the vertices.
  void keep_lists(const Graph<Vertex>& graph) {
    list_slots_.assign(graph.num_vertices(), -1);
    plan_.list_slots = list_slots_.data();
    plan_.num_members = 2;
    plan_.needs_places = 1;
    plan_.found = found_.data();
    int32_t slot = 0;
    for (const int member : {0, 1}) {
      plan_.first_slots[member] = slot;
      kept_indptr_[member] = {0};
      for (int64_t v = member; v < graph.num_vertices(); v += 3) {
        list_slots_[v] = slot++;
        kept_indices_[member].insert(kept_indices_[member].end(),
                                     graph.indices.begin() + graph.indptr[v],
                                     graph.indices.begin() + graph.indptr[v + 1]);
        kept_indptr_[member].push_back(static_cast<int64_t>(kept_indices_[member].size()));
      }
      plan_.first_slots[member + 1] = slot;
      plan_.cached_indptr[member] = kept_indptr_[member].data();
      plan_.cached_indices[member] = kept_indices_[member].data();
    }
  }

  void point_at_buffers() {
    plan_.vertices = ids_.data();
    plan_.stamps = stamps_.data();
    plan_.begins = begins_.data();
    plan_.lists = lists_.data();
    plan_.degrees = degrees_.data();
    plan_.picked = picked_.data();
    plan_.slots = slots_.data();
    plan_.candidates = candidates_.data();
    plan_.kept = kept_.data();
    plan_.kept_before = kept_before_.data();
    plan_.priorities = priorities_.data();
    plan_.histograms = histograms_.data();
    plan_.vertex_tiles = vertex_tiles_.data();
    plan_.edge_tiles = edge_tiles_.data();
    plan_.left_sources = left_sources_.data();
  }

  // Runs the kernel for this id size.
  template <typename... Arguments>
  void run_of(const std::string& name, Arguments... arguments) {
    run(name + (sizeof(Vertex) == 4 ? "_int32" : "_int64"), &plan_, &state_, arguments...);
  }

  void sample_layer(int hop) {
    run_of("sample_count", hop);
    run_of("sample_gather", hop);
    for (int pass = 0; pass < 8; ++pass) {
      run_of("sample_rank", hop + kMaxHops * pass);
    }
    run_of("sample_keep", hop);
    run_of("sample_place", hop);
    run_of("sample_relabel_kept", hop);
  }

  void pick(int hop, int64_t fanout) {
    if (options_.by_weight) run_of("sample_weigh", hop);
    run_of("sample_count", hop);
    const bool replaced = options_.replace && fanout >= 0;
    if (options_.by_weight && replaced) {
      run_of("sample_pick_weighted_each", hop);
    } else if (options_.by_weight) {
      run_of("sample_pick_weighted", hop);
      run_of("sample_pick_weighted_long", hop);
    } else if (replaced || fanout < 0) {
      run_of("sample_pick_each", hop);
    } else if (fanout <= 32) {
      run_of("sample_pick", hop);
    } else {
      run_of("sample_clear_slots", hop);
      run_of("sample_draw_many", hop);
      run_of("sample_pick_many", hop);
    }
  }

  Options options_;
  int64_t max_edges_;  // maximum edges of a hop
  Buffer<Vertex> ids_, picked_, kept_, left_sources_;
  Buffer<uint32_t> stamps_, candidates_, slots_, histograms_;
  Buffer<int64_t> begins_, degrees_;
  Buffer<const void*> lists_;
  Buffer<int32_t> kept_before_;
  Buffer<uint64_t> priorities_, vertex_tiles_, edge_tiles_;
  Buffer<WeightSlot> weight_slots_;
  std::vector<HopBuffers> hops_, left_;
  Buffer<int32_t> list_slots_;
  Buffer<int64_t> kept_indptr_[2];
  Buffer<Vertex> kept_indices_[2];
  Buffer<uint64_t> found_ = Buffer<uint64_t>(3);
  SamplePlan plan_{};
  SampleState state_{};
  uint64_t base_ = ~0U;
};

std::vector<int64_t> some_seeds(int64_t count) {
  std::vector<int64_t> seeds;
  for (int64_t i = 0; i < count; ++i) seeds.push_back(i * 7 % 300);
  return seeds;
}

template <typename Vertex>
SampledBatch<Vertex> native_sample(const Graph<Vertex>& graph, const Options& options,
                                   const std::vector<int64_t>& seeds, uint64_t step) {
  Sampler<Vertex> sampler(
      {graph.num_vertices(), graph.num_edges(), graph.indptr.data(), graph.indices.data()});
  const Seeds from{seeds.data(), true, static_cast<int64_t>(seeds.size())};
  const WeightSlots slots(graph.indptr.data(), graph.num_vertices(), graph.weights.data(),
                          graph.num_edges(), 1);
  const EdgeOptions edges{graph.weights.data(), &slots, options.by_weight, true, true};
  if (options.layerwise) return sampler.sample_layers(from, options.fanouts, kSeed, step, edges);
  return sampler.sample_neighbors(from, options.fanouts, options.replace, kSeed, step, 1, false,
                                  edges);
}

template <typename Vertex>
void test_samples(const std::vector<Options>& all) {
  const Graph<Vertex> graph(300);
  const std::vector<int64_t> seeds = some_seeds(30);
  for (const Options& options : all) {
    DeviceSampler<Vertex> sampler(graph, options);
    for (const uint64_t step : {0, 1}) {
      sampler.sample(seeds, step);
      CHECK(sampler.is(native_sample(graph, options, seeds, step)));
      if (!options.cached) continue;
      int64_t reads = 0;
      for (size_t hop = 0; hop < options.fanouts.size(); ++hop) {
        reads += sampler.state().num_vertices[hop] + sampler.state().num_edges[hop];
      }
      const auto& found_reads = sampler.found();
      CHECK(found_reads[0] > 0 && found_reads[1] > 0 && found_reads[2] > 0);
      CHECK(static_cast<int64_t>(found_reads[0] + found_reads[1] + found_reads[2]) == reads);
    }
  }
}

void test_all_samples() {
  test_samples<int32_t>({
      {.fanouts = {25, 10}},
      {.fanouts = {5, -1}},
      {.fanouts = {40, 33}},
      {.fanouts = {6, 4}, .replace = true},
      {.fanouts = {4, 40}, .by_weight = true},
      {.fanouts = {6, 4}, .replace = true, .by_weight = true},
      {.fanouts = {2, 600}, .by_weight = true},
      {.fanouts = {60, 200}, .layerwise = true},
      {.fanouts = {25, 10}, .cached = true},
      {.fanouts = {4, 40}, .by_weight = true, .cached = true},
      {.fanouts = {60, 200}, .layerwise = true, .cached = true},
  });
  test_samples<int64_t>({{.fanouts = {25, 10}}, {.fanouts = {40}}});
}

void test_excluded_edges() {
  const Graph<int32_t> graph(300);
  const Options options{.fanouts = {-1}};
  DeviceSampler<int32_t> sampler(graph, options);
  // All edges into vertex 7 of the seeds 0, 7 and 14.
  std::vector<int64_t> sources(graph.indices.begin() + graph.indptr[7],
                               graph.indices.begin() + graph.indptr[8]);
  std::sort(sources.begin(), sources.end());
  sampler.sample(some_seeds(3), 0, sources, std::vector<int64_t>(sources.size(), 7));
  CHECK(!sources.empty());
  CHECK(sampler.state().num_left[0] ==
        sampler.state().num_edges[0] - static_cast<int64_t>(sources.size()));
}

// A one-bit difference would hardly ever change a pick, so the times are compared directly.
void test_exponential_times() {
  constexpr int64_t kSize = 2000;
  std::vector<float> weights(kSize);
  for (int64_t i = 0; i < kSize; ++i) weights[i] = static_cast<float>(i % 7) * 0.3F;
  std::vector<double> expected(kSize);
  baseline::pick_kernels.exponentials(5, 0, weights.data(), kSize, expected.data());
  const Race race{5, weights.data(), kSize};
  for (int64_t i = 0; i < kSize; ++i) CHECK(race.time(i) == bits_of(expected[i]));
  CHECK(race.time(kSize) == kNever);
}

// Damaged data is not followed, and the first error is kept.
void test_damage() {
  Graph<int32_t> graph(300);
  graph.indptr[8] = -5;
  graph.indices[3] = 300;
  graph.indices[4] = -1;
  for (const Options& options :
       {Options{.fanouts = {-1, 5}}, Options{.fanouts = {10}, .layerwise = true}}) {
    DeviceSampler<int32_t> sampler(graph, options);
    sampler.sample({0}, 0);
    CHECK(sampler.state().error == ((uint64_t{3} << 48) | 3));
    sampler.sample({14, 7, 0}, 0);
    CHECK(sampler.state().error == ((uint64_t{1} << 48) | 1));
    sampler.sample({14, 300, 14}, 0);
    CHECK(sampler.state().error == 1);
    sampler.sample({14, 21, 14}, 0);
    CHECK(sampler.state().error == 2);
  }
}

}  // namespace

int main() {
  test_all_samples();
  test_excluded_edges();
  test_damage();
  test_exponential_times();
  return check_result();
}
