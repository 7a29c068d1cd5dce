#include "gnnscale/sampler.hpp"
#include "border.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kMaxFanout = kMaxLocal;
// With replacement a fan-out is taken whatever the degree.
constexpr int64_t kMaxReplaced = int64_t{1} << 20;

template <typename Vertex>
py::tuple batch_to_python(SampledBatch<Vertex>&& batch) {
  py::list blocks;
  for (BlockArrays& block : batch.blocks) {
    py::object importance = py::none();
    if (block.importance.data) importance = to_numpy(std::move(block.importance));
    py::object positions = py::none(), edge_weights = py::none();
    if (block.positions.data) positions = to_numpy(std::move(block.positions));
    if (block.edge_weights.data) edge_weights = to_numpy(std::move(block.edge_weights));
    blocks.append(py::make_tuple(to_numpy(std::move(block.indptr)),
                                 to_numpy(std::move(block.indices)), block.num_src, importance,
                                 positions, edge_weights));
  }
  py::object edge_vertices = py::none();
  if (batch.edge_vertices.data) edge_vertices = to_numpy(std::move(batch.edge_vertices));
  return py::make_tuple(to_numpy(std::move(batch.input_vertices)), blocks, edge_vertices);
}

Seeds seeds_of(py::handle value) {
  const Ids found = ids(value, "seeds");
  return {found.ids.data, found.ids.wide, found.size};
}

// Keeps the topology's arrays alive for as long as the samplers that read them.
template <typename Vertex>
class BoundSampler {
 public:
  BoundSampler(const py::object& indptr, const py::object& indices, const py::object& weights)
      : indptr_(indptr),
        indices_(indices),
        weights_(weights),
        edge_weights_(
            optional_vector<float>(weights, "edge_weights", ids(indices, "indices").size).data),
        pool_(topology<Vertex>(indptr, indices)),
        at_once_pool_(topology<Vertex>(indptr, indices), {.at_once_from = 1}) {}

  py::tuple sample_neighbors(const py::object& seeds, const py::object& fanouts,
                             const py::object& replace, const py::object& seed,
                             const py::object& step, const py::object& num_threads,
                             const py::object& only_new, const py::object& by_weight,
                             const py::object& positions, const py::object& edge_weights) {
    const Seeds from = seeds_of(seeds);
    const bool replaces = flag(replace, "replace");
    const auto counts = integers(fanouts, "fanouts", -1, replaces ? kMaxReplaced : kMaxFanout);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    const bool expands_new = flag(only_new, "only_new");
    const EdgeAsk ask = ask_of(by_weight, positions, edge_weights);
    return batch_to_python([&] {
      NoGil released;
      return pool_.with_sampler([&](Sampler<Vertex>& sampler) {
        return sampler.sample_neighbors(from, counts, replaces, run_seed, at, threads, expands_new,
                                        ask);
      });
    }());
  }

  py::tuple reach_neighbors(const py::object& seeds, const py::object& fanouts,
                            const py::object& replace, const py::object& seed,
                            const py::object& step, const py::object& num_threads) {
    const Seeds from = seeds_of(seeds);
    const bool replaces = flag(replace, "replace");
    const auto counts = integers(fanouts, "fanouts", -1, replaces ? kMaxReplaced : kMaxFanout);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    ReachedBatch<Vertex> batch = [&] {
      NoGil released;
      return pool_.with_sampler([&](Sampler<Vertex>& sampler) {
        return sampler.reach_neighbors(from, counts, replaces, run_seed, at, threads);
      });
    }();
    py::list indptrs;
    for (Array<int64_t>& each : batch.indptrs) indptrs.append(to_numpy(std::move(each)));
    return py::make_tuple(to_numpy(std::move(batch.vertices)), indptrs);
  }

  py::dict time_relabelling(const py::object& seeds, const py::object& fanouts,
                            const py::object& seed, const py::object& step,
                            const py::object& num_threads) {
    const Seeds from = seeds_of(seeds);
    const auto counts = integers(fanouts, "fanouts", -1, kMaxFanout);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    const HopTimes times = [&] {
      NoGil released;
      return at_once_pool_.with_sampler([&](Sampler<Vertex>& sampler) {
        return sampler.time_neighbors(from, counts, run_seed, at, threads);
      });
    }();
    py::dict found;
    for (int phase = 0; phase < HopTimes::kNumPhases; ++phase) {
      found[HopTimes::kNames[phase]] = times.shared[phase];
    }
    found["alone"] = times.alone;
    return found;
  }

  py::tuple sample_layers(const py::object& seeds, const py::object& layer_sizes,
                          const py::object& seed, const py::object& step,
                          const py::object& positions, const py::object& edge_weights) {
    const Seeds from = seeds_of(seeds);
    const auto sizes = integers(layer_sizes, "layer_sizes", 1, kMaxLocal);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const EdgeAsk ask = ask_of(py::bool_(false), positions, edge_weights);
    return batch_to_python([&] {
      NoGil released;
      return pool_.with_sampler([&](Sampler<Vertex>& sampler) {
        return sampler.sample_layers(from, sizes, run_seed, at, ask);
      });
    }());
  }

 private:
  EdgeAsk ask_of(const py::object& by_weight, const py::object& positions,
                 const py::object& edge_weights) const {
    const EdgeAsk ask{edge_weights_, flag(by_weight, "by_weight"),
                      flag(positions, "edge_positions"), flag(edge_weights, "edge_weights")};
    if ((ask.by_weight || ask.edge_weights) && edge_weights_ == nullptr) {
      refuse_value(ask.by_weight ? "by_weight" : "edge_weights", "True",
                   "False for a graph whose edges have no weights");
    }
    return ask;
  }

  py::object indptr_, indices_, weights_;
  const float* edge_weights_;
  SamplerPool<Vertex> pool_;
  SamplerPool<Vertex> at_once_pool_;  // for time_relabelling
};

template <typename Vertex>
void bind_class(py::module_& m, const char* name) {
  using Bound = BoundSampler<Vertex>;
  py::class_<Bound>(m, name, py::module_local())
      .def(py::init<const py::object&, const py::object&, const py::object&>())
      .def("sample_neighbors", &Bound::sample_neighbors)
      .def("reach_neighbors", &Bound::reach_neighbors)
      .def("time_relabelling", &Bound::time_relabelling)
      .def("sample_layers", &Bound::sample_layers);
}

}  // namespace

void bind_sampler(py::module_& m) {
  py::register_local_exception<TopologyError>(m, "TopologyError", PyExc_ValueError);
  bind_class<int32_t>(m, "Sampler32");
  bind_class<int64_t>(m, "Sampler64");
  m.def("sampler",
        [](const py::object& indptr, const py::object& indices,
           const py::object& edge_weights) -> py::object {
          if (ids(indices, "indices").ids.wide) {
            return py::cast(std::make_unique<BoundSampler<int64_t>>(indptr, indices, edge_weights));
          }
          return py::cast(std::make_unique<BoundSampler<int32_t>>(indptr, indices, edge_weights));
        });
}

}  // namespace gnnscale
