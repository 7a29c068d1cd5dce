#include "gnnscale/sampler.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "disk.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kMaxFanout = kMaxLocal;
// Maximum fan-out with replacement, which does not depend on the degree.
constexpr int64_t kMaxReplaced = int64_t{1} << 20;

Record hop_type, typed_sample;

template <typename T>
py::object optional_numpy(Array<T>&& array) {
  if (!array.data) return py::none();
  return to_numpy(std::move(array));
}

py::object to_python(BlockArrays&& block) {
  return hop_type(
      to_numpy(std::move(block.indptr)), to_numpy(std::move(block.indices)), block.num_src,
      optional_numpy(std::move(block.importance)), optional_numpy(std::move(block.positions)),
      optional_numpy(std::move(block.edge_weights)), optional_numpy(std::move(block.edge_rows)));
}

template <typename Vertex>
py::object to_python(SampledBatch<Vertex>&& batch) {
  py::list blocks;
  for (BlockArrays& block : batch.blocks) blocks.append(to_python(std::move(block)));
  return py::make_tuple(to_numpy(std::move(batch.input_vertices)), blocks,
                        optional_numpy(std::move(batch.edge_vertices.front())));
}

template <typename Vertex>
struct TypedBatch {
  SampledBatch<Vertex> batch;
};

template <typename Vertex>
py::object to_python(TypedBatch<Vertex>&& typed) {
  SampledBatch<Vertex>& batch = typed.batch;
  py::list hops, edge_vertices, sizes;
  const size_t num_types = batch.edge_vertices.size();
  for (size_t first = 0; first < batch.blocks.size(); first += num_types) {
    py::list hop;
    for (size_t r = 0; r < num_types; ++r)
      hop.append(to_python(std::move(batch.blocks[first + r])));
    hops.append(hop);
  }
  for (auto& vertices : batch.edge_vertices) {
    edge_vertices.append(optional_numpy(std::move(vertices)));  // None: there is no hop
  }
  for (const auto& by_type : batch.type_sizes) {
    py::tuple type_sizes(by_type.size());
    for (size_t type = 0; type < by_type.size(); ++type) type_sizes[type] = by_type[type];
    sizes.append(type_sizes);
  }
  return typed_sample(to_numpy(std::move(batch.input_vertices)), sizes, hops, edge_vertices,
                      optional_numpy(std::move(batch.cutoffs)),
                      optional_numpy(std::move(batch.trees)));
}

template <typename Vertex>
py::object to_python(ReachedBatch<Vertex>&& batch) {
  py::list indptrs;
  for (Array<int64_t>& offsets : batch.indptrs) indptrs.append(to_numpy(std::move(offsets)));
  return py::make_tuple(to_numpy(std::move(batch.vertices)), indptrs);
}

py::object to_python(Array<int64_t>&& numbers) { return to_numpy(std::move(numbers)); }

py::object to_python(HopTimes&& times) {
  py::dict seconds;
  for (int phase = 0; phase < HopTimes::kNumPhases; ++phase) {
    seconds[HopTimes::kNames[phase]] = times.shared[phase];
  }
  seconds["alone"] = times.alone;
  return seconds;
}

// Returns how the bounds of a hop's sources follow from those of its destinations.
Handed handed_of(const py::object& rule, bool forward) {
  const std::string name = py::isinstance<py::str>(rule) ? rule.cast<std::string>() : "";
  if (name == "seed") return Handed::cutoff;
  if (name == "destination") return Handed::edge_time;
  if (name == "walk") return forward ? Handed::since : Handed::edge_time;
  if (name == "none") return Handed::none;
  refuse_value("rule", std::string(py::repr(rule)), "seed, destination, walk and none");
}

Seeds seeds_of(const Ids& ids) { return {ids.ids.data, ids.ids.wide, ids.size}; }

// Vertex and edge types as GraphSchema.native describes them.
GraphTypes types_of(const py::object& schema) {
  const py::tuple native = schema.attr("native");
  GraphTypes types;
  for (const py::handle item : native[0]) {
    const auto type = item.cast<py::tuple>();
    types.vertices.push_back({type[0].cast<int64_t>(), type[1].cast<int64_t>()});
  }
  for (const py::handle item : native[1]) {
    const auto type = item.cast<py::tuple>();
    types.edges.push_back({type[0].cast<int>(), type[1].cast<int>(), type[2].cast<int64_t>(),
                           type[3].cast<int64_t>()});
  }
  return types;
}

std::vector<int64_t> fanouts_of(const py::object& fanouts, bool replace) {
  return integers(fanouts, "fanouts", -1, replace ? kMaxReplaced : kMaxFanout);
}

Labor labor_of(const py::object& layer_dependency) {
  return flag(layer_dependency, "layer_dependency") ? Labor::batch : Labor::hop;
}

// Returns the exception of a damaged topology; `graph` is its path or its name.
py::object damaged(const py::object& graph, const std::string& error) {
  const std::string message = std::string(py::str(graph)) + ": damaged, " + error +
                              "; gnnscale doctor store=DIR looks at all of it";
  return py::module_::import("gnnscale.core.errors").attr("GraphError")(message);
}

template <typename Vertex>
struct Pools {
  Pools(Topology<Vertex> graph, const DiskLists<Vertex>* disk, const GraphTypes* types)
      : usual(graph, {}, disk, types), at_once(graph, {.at_once_from = 1}) {}

  SamplerPool<Vertex> usual;
  SamplerPool<Vertex> at_once;  // for time_relabeling
};

// Sampler pools of a topology, with references that keep the topology's arrays alive.
class NativeSampler {
 public:
  explicit NativeSampler(const py::object& graph) {
    if (!py::isinstance(graph, py::module_::import("gnnscale.graph").attr("Graph"))) {
      refuse_type("graph", type_name(graph), "a Graph");
    }
    const py::object path = graph.attr("path");
    name_ = path.is_none() ? graph.attr("name") : path;
    indptr_ = graph.attr("indptr");
    indices_ = graph.attr("indices");
    weights_ = graph.attr("edge_weights");
    rows_ = graph.attr("edge_rows");
    const py::object times = graph.attr("times");
    times_ = times.is_none() ? times : times.attr("edges");
    lists_ = graph.attr("lists");
    const py::object types = graph.attr("types");
    if (!lists_.is_none() && !py::isinstance<BoundLists>(lists_)) {
      refuse_type("lists", type_name(lists_), "DiskLists and None");
    }
    for_vertices(indices_, "indices", [&]<typename Vertex>() {
      auto graph = topology<Vertex>(indptr_, indices_);
      const DiskLists<Vertex>* disk = nullptr;
      if (!lists_.is_none()) {
        disk = lists_.cast<const BoundLists&>().of(graph);
        graph.indices = nullptr;
      }
      edge_weights_ = optional_vector<float>(weights_, "edge_weights", graph.num_edges).data;
      edge_rows_ = optional_vector<uint32_t>(rows_, "edge_rows", graph.num_edges).data;
      edge_times_ = optional_vector<int64_t>(times_, "times.edges", graph.num_edges).data;
      offsets_ = graph.indptr;
      num_rows_ = graph.num_vertices;
      num_edges_ = graph.num_edges;
      types_ = types.is_none() ? GraphTypes::homogeneous(num_rows_) : types_of(types);
      check_rows();
      graph.num_vertices = types_.vertices.back().first + types_.vertices.back().size;
      pools_ = std::make_unique<Pools<Vertex>>(graph, disk, &types_);
    });
  }

  void prepare_weights(const py::object& num_threads) {
    refuse_without_weights("by_weight");
    weight_slots(thread_count(num_threads));
  }

  py::object sample_neighbors(const py::object& seeds, const py::object& fanouts,
                              const py::object& replace, const py::object& seed,
                              const py::object& step, const py::object& num_threads,
                              const py::object& only_new, const py::object& by_weight,
                              const py::object& positions, const py::object& edge_weights,
                              const py::object& edge_rows) {
    refuse_typed("sample_neighbors");
    const Ids from = ids(seeds, "seeds");
    const bool replaces = flag(replace, "replace");
    const auto counts = fanouts_of(fanouts, replaces);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    const bool expands_new = flag(only_new, "only_new");
    EdgeOptions edge_options =
        ask_of(flag(by_weight, "by_weight"), positions, edge_weights, edge_rows);
    if (edge_options.by_weight) edge_options.slots = weight_slots(threads);
    return run([&](auto& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return sampler.sample_neighbors(seeds_of(from), counts, replaces, run_seed, at, threads,
                                        expands_new, edge_options);
      });
    });
  }

  py::object sample_typed(const py::object& seeds, const py::object& fanouts,
                          const py::object& replace, const py::object& seed, const py::object& step,
                          const py::object& num_threads, const py::object& only_new,
                          const py::object& by_weight, const py::object& labor,
                          const py::object& positions, const py::object& edge_weights,
                          const py::object& edge_rows, const py::object& cutoffs,
                          const py::object& rule, const py::object& forward,
                          const py::object& strict, const py::object& window,
                          const py::object& last, const py::object& disjoint) {
    const Ids from = ids(seeds, "seeds");
    const auto as_of = cutoffs_of(cutoffs, from.size);
    TimeRule time = time_rule_of(rule, forward, strict, window, last, disjoint);
    const bool replaces = flag(replace, "replace");
    const auto counts = typed_fanouts(fanouts, replaces);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    const bool expands_new = flag(only_new, "only_new");
    EdgeOptions edge_options =
        ask_of(flag(by_weight, "by_weight"), positions, edge_weights, edge_rows);
    if (edge_options.by_weight) edge_options.slots = weight_slots(threads);
    if (!labor.is_none()) {
      refuse_on_disk("labor");
      edge_options.labor = labor_of(labor);
    }
    if (time.handed == Handed::none && counts.size() != types_.edges.size()) {
      refuse_value("rule", "none", "others for several hops");
    }
    Seeds units = seeds_of(from);
    if (!cutoffs.is_none()) {
      units.cutoffs = as_of.data();
      time.index = time_index(threads);
      edge_options.time = &time;
    }
    return run([&]<typename Vertex>(Pools<Vertex>& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return TypedBatch<Vertex>{sampler.sample_neighbors(units, counts, replaces, run_seed, at,
                                                           threads, expands_new, edge_options)};
      });
    });
  }

  py::object last_times(const py::object& vertices, const py::object& cutoffs,
                        const py::object& edge_type, const py::object& strict,
                        const py::object& num_threads) {
    const Ids from = ids(vertices, "vertices");
    if (cutoffs.is_none()) refuse_type("cutoffs", "None", "int64 arrays");
    const auto as_of = cutoffs_of(cutoffs, from.size);
    const auto num_types = static_cast<int64_t>(types_.edges.size());
    const auto type = static_cast<int>(integer(edge_type, "edge_type", 0, num_types - 1));
    const int threads = thread_count(num_threads);
    TimeRule time{.times = edge_times_, .strict = flag(strict, "strict")};
    time.index = time_index(threads);
    Seeds units = seeds_of(from);
    units.cutoffs = as_of.data();
    return run([&](auto& pools) {
      return pools.usual.with_sampler(
          [&](auto& sampler) { return sampler.last_times(units, type, time, threads); });
    });
  }

  py::object reach_neighbors(const py::object& seeds, const py::object& fanouts,
                             const py::object& replace, const py::object& seed,
                             const py::object& step, const py::object& num_threads) {
    refuse_typed("reach_neighbors");
    const Ids from = ids(seeds, "seeds");
    const bool replaces = flag(replace, "replace");
    const auto counts = fanouts_of(fanouts, replaces);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    return run([&](auto& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return sampler.reach_neighbors(seeds_of(from), counts, replaces, run_seed, at, threads);
      });
    });
  }

  py::object sample_labor(const py::object& seeds, const py::object& fanouts,
                          const py::object& layer_dependency, const py::object& seed,
                          const py::object& step, const py::object& num_threads,
                          const py::object& positions, const py::object& edge_weights,
                          const py::object& edge_rows) {
    refuse_typed("sample_labor");
    const Ids from = ids(seeds, "seeds");
    const auto counts = fanouts_of(fanouts, false);
    refuse_on_disk("sample_labor");
    EdgeOptions edge_options = ask_of(false, positions, edge_weights, edge_rows);
    edge_options.labor = labor_of(layer_dependency);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    return run([&](auto& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return sampler.sample_neighbors(seeds_of(from), counts, false, run_seed, at, threads, false,
                                        edge_options);
      });
    });
  }

  py::object reach_labor(const py::object& seeds, const py::object& fanouts,
                         const py::object& layer_dependency, const py::object& seed,
                         const py::object& step, const py::object& num_threads) {
    refuse_typed("reach_labor");
    const Ids from = ids(seeds, "seeds");
    const auto counts = fanouts_of(fanouts, false);
    refuse_on_disk("reach_labor");
    EdgeOptions edge_options;
    edge_options.labor = labor_of(layer_dependency);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    return run([&](auto& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return sampler.reach_neighbors(seeds_of(from), counts, false, run_seed, at, threads,
                                       edge_options);
      });
    });
  }

  py::object time_relabelling(const py::object& seeds, const py::object& fanouts,
                              const py::object& seed, const py::object& step,
                              const py::object& num_threads) {
    refuse_on_disk("time_relabelling");
    refuse_typed("time_relabelling");
    const Ids from = ids(seeds, "seeds");
    const auto counts = fanouts_of(fanouts, false);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const int threads = thread_count(num_threads);
    return run([&](auto& pools) {
      return pools.at_once.with_sampler([&](auto& sampler) {
        return sampler.time_neighbors(seeds_of(from), counts, run_seed, at, threads);
      });
    });
  }

  py::object sample_layers(const py::object& seeds, const py::object& layer_sizes,
                           const py::object& seed, const py::object& step,
                           const py::object& positions, const py::object& edge_weights,
                           const py::object& edge_rows) {
    refuse_on_disk("sample_layers");
    refuse_typed("sample_layers");
    const Ids from = ids(seeds, "seeds");
    const auto sizes = integers(layer_sizes, "layer_sizes", 1, kMaxLocal);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const EdgeOptions edge_options = ask_of(false, positions, edge_weights, edge_rows);
    return run([&](auto& pools) {
      return pools.usual.with_sampler([&](auto& sampler) {
        return sampler.sample_layers(seeds_of(from), sizes, run_seed, at, edge_options);
      });
    });
  }

 private:
  // Calls use(pools) without the GIL, and returns its result.
  template <typename Use>
  py::object run(Use&& use) {
    const auto run_on = [&](auto& pools) {
      auto result = [&] {
        NoGil released;
        return use(*pools);
      }();
      return to_python(std::move(result));
    };
    try {
      return std::visit(run_on, pools_);
    } catch (const TopologyError& error) {
      const py::object refusal = damaged(name_, error.what());
      PyErr_SetObject(py::type::handle_of(refusal).ptr(), refusal.ptr());
      throw py::error_already_set();
    } catch (const FileError& error) {
      raise(error, lists_.cast<const BoundLists&>().path());
    }
  }

  EdgeOptions ask_of(bool by_weight, const py::object& positions, const py::object& edge_weights,
                     const py::object& edge_rows) const {
    const bool asks_rows = flag(edge_rows, "edge_rows");
    const EdgeOptions edge_options{.weights = edge_weights_,
                                   .by_weight = by_weight,
                                   .positions = flag(positions, "edge_positions"),
                                   .edge_weights = flag(edge_weights, "edge_weights"),
                                   .rows = asks_rows ? edge_rows_ : nullptr,
                                   .has_scattered_copies = edge_times_ != nullptr};
    if (edge_options.by_weight) {
      refuse_on_disk("by_weight");
      refuse_without_weights("by_weight");
    }
    if (edge_options.edge_weights) refuse_without_weights("edge_weights");
    if (asks_rows && edge_rows_ == nullptr) {
      refuse_value("edge_rows", "True", "False for a graph whose edges have no features");
    }
    return edge_options;
  }

  // Cut-offs of the seeds, a copy which no other thread can change.
  std::vector<int64_t> cutoffs_of(const py::object& cutoffs, int64_t num_seeds) const {
    if (cutoffs.is_none()) return {};
    if (edge_times_ == nullptr) {
      refuse_value("cutoffs", "those of a graph without times", "those of a graph with times");
    }
    const auto given = packed<int64_t>(cutoffs, "cutoffs");
    check_size("cutoffs", given.size, num_seeds);
    std::vector<int64_t> copy(given.data, given.data + given.size);
    if (std::find(copy.begin(), copy.end(), kNoTime) != copy.end()) {
      refuse_value("cutoffs", std::to_string(kNoTime), "later times");
    }
    return copy;
  }

  TimeRule time_rule_of(const py::object& rule, const py::object& forward, const py::object& strict,
                        const py::object& window, const py::object& last,
                        const py::object& disjoint) const {
    constexpr int64_t kMaxWindow = std::numeric_limits<int64_t>::max();
    return {.times = edge_times_,
            .handed = handed_of(rule, flag(forward, "forward")),
            .strict = flag(strict, "strict"),
            .window = window.is_none() ? 0 : integer(window, "window", 1, kMaxWindow),
            .last = flag(last, "last"),
            .disjoint = flag(disjoint, "disjoint")};
  }

  // The lists of all edge types must be those that the topology has.
  void check_rows() const {
    int64_t num_rows = 0;
    for (const EdgeType& edges : types_.edges) num_rows += types_.vertices[edges.destination].size;
    if (num_rows != num_rows_) {
      refuse_value("indptr", "offsets of " + std::to_string(num_rows_) + " lists",
                   std::to_string(num_rows) + ", those of the schema");
    }
  }

  // Fan-outs of a list of hops, each a list with a number for each edge type.
  Fanouts typed_fanouts(const py::object& fanouts, bool replace) const {
    const int64_t last = replace ? kMaxReplaced : kMaxFanout;
    const size_t num_types = types_.edges.size();
    Fanouts counts;
    for (const py::handle hop : sequence(fanouts, "fanouts", "a list of lists", 64)) {
      const py::tuple of_types = sequence(hop, "fanouts", "a list of lists", num_types);
      if (of_types.size() != num_types) {
        refuse_value("fanouts", std::to_string(of_types.size()) + " numbers of a hop",
                     std::to_string(num_types) + ", one for each edge type");
      }
      for (const py::handle item : of_types) counts.push_back(integer(item, "fanouts", -1, last));
    }
    return counts;
  }

  void refuse_typed(const char* name) const {
    if (types_.vertices.size() == 1 && types_.edges.size() == 1) return;
    refuse_value(name, "a graph with types of vertices or edges", "those without");
  }

  void refuse_on_disk(const char* name) const {
    if (lists_.is_none()) return;
    refuse_value(name, "a graph whose lists are read from the disk", "those in memory");
  }

  void refuse_without_weights(const char* name) const {
    if (edge_weights_ != nullptr) return;
    refuse_value(name, "True", "False for a graph whose edges have no weights");
  }

  // Returns the index of the times, built on first use. Lists on disk exceed the memory: their
  // times have no codes.
  const TimeIndex* time_index(int num_threads) {
    NoGil released;
    std::call_once(indexed_, [&] {
      time_index_ = std::make_unique<TimeIndex>(edge_times_, offsets_, num_edges_, types_,
                                                lists_.is_none(), num_threads);
    });
    return time_index_.get();
  }

  // Returns the slots of weighted draws, built on first use.
  const WeightSlots* weight_slots(int num_threads) {
    NoGil released;
    std::call_once(prepared_, [&] {
      weight_slots_ = std::make_unique<WeightSlots>(offsets_, num_rows_, edge_weights_, num_edges_,
                                                    num_threads);
    });
    return weight_slots_.get();
  }

  py::object name_, indptr_, indices_, weights_, rows_, times_, lists_;
  const int64_t* offsets_ = nullptr;
  GraphTypes types_;
  int64_t num_rows_ = 0, num_edges_ = 0;
  const float* edge_weights_ = nullptr;
  const uint32_t* edge_rows_ = nullptr;
  const int64_t* edge_times_ = nullptr;
  std::once_flag prepared_, indexed_;
  std::unique_ptr<TimeIndex> time_index_;
  std::unique_ptr<WeightSlots> weight_slots_;
  std::variant<std::unique_ptr<Pools<int32_t>>, std::unique_ptr<Pools<int64_t>>> pools_;
};

}  // namespace

void bind_sampler(py::module_& m) {
  py::register_local_exception<TopologyError>(m, "TopologyError", PyExc_ValueError);
  m.def("damaged", &damaged, "graph"_a, "found"_a);
  hop_type.define(m, "SampledHop",
                  "indptr indices num_src importance positions edge_weights edge_rows", 4);
  typed_sample.define(m, "TypedSample",
                      "input_vertices type_sizes hops edge_vertices cutoffs trees", 2);
  py::class_<NativeSampler>(m, "NativeSampler", py::module_local())
      .def(py::init<const py::object&>(), "graph"_a)
      .def("prepare_weights", &NativeSampler::prepare_weights, py::kw_only(), "num_threads"_a)
      .def("sample_neighbors", &NativeSampler::sample_neighbors, "seeds"_a, "fanouts"_a,
           py::kw_only(), "replace"_a, "seed"_a, "step"_a, "num_threads"_a, "only_new"_a = false,
           "by_weight"_a = false, "edge_positions"_a = false, "edge_weights"_a = false,
           "edge_rows"_a = false)
      .def("sample_typed", &NativeSampler::sample_typed, "seeds"_a, "fanouts"_a, py::kw_only(),
           "replace"_a, "seed"_a, "step"_a, "num_threads"_a, "only_new"_a = false,
           "by_weight"_a = false, "labor"_a = py::none(), "edge_positions"_a = false,
           "edge_weights"_a = false, "edge_rows"_a = false, "cutoffs"_a = py::none(),
           "rule"_a = "seed", "forward"_a = false, "strict"_a = false, "window"_a = py::none(),
           "last"_a = false, "disjoint"_a = false)
      .def("last_times", &NativeSampler::last_times, "vertices"_a, "cutoffs"_a, py::kw_only(),
           "edge_type"_a, "strict"_a, "num_threads"_a)
      .def("reach_neighbors", &NativeSampler::reach_neighbors, "seeds"_a, "fanouts"_a,
           py::kw_only(), "replace"_a, "seed"_a, "step"_a, "num_threads"_a)
      .def("sample_labor", &NativeSampler::sample_labor, "seeds"_a, "fanouts"_a, py::kw_only(),
           "layer_dependency"_a, "seed"_a, "step"_a, "num_threads"_a, "edge_positions"_a = false,
           "edge_weights"_a = false, "edge_rows"_a = false)
      .def("reach_labor", &NativeSampler::reach_labor, "seeds"_a, "fanouts"_a, py::kw_only(),
           "layer_dependency"_a, "seed"_a, "step"_a, "num_threads"_a)
      .def("time_relabelling", &NativeSampler::time_relabelling, "seeds"_a, "fanouts"_a,
           py::kw_only(), "seed"_a, "step"_a, "num_threads"_a)
      .def("sample_layers", &NativeSampler::sample_layers, "seeds"_a, "layer_sizes"_a,
           py::kw_only(), "seed"_a, "step"_a, "edge_positions"_a = false, "edge_weights"_a = false,
           "edge_rows"_a = false);
}

}  // namespace gnnscale
