#include "gnnscale/partition.hpp"

#include <algorithm>

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kMaxHops = kUnreached - 1;

// Checked ids of vertices, in the graph's vertex type.
template <typename Vertex>
Packed<Vertex> vertices_of(const Topology<Vertex>& graph, py::handle value) {
  auto packed_ids = packed<Vertex>(value, "vertices");
  check_below(packed_ids.data, packed_ids.size, graph.num_vertices, "vertices");
  return packed_ids;
}

py::array_t<int64_t> cut(const py::object& indptr, const py::object& indices,
                         const py::object& owner, const py::object& num_parts,
                         const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto graph = topology<Vertex>(indptr, indices);
    const auto owners = vector<int16_t>(owner, "owner", graph.num_vertices);
    const int64_t parts = integer(num_parts, "num_parts", 1, kMaxParts);
    const int threads = thread_count(num_threads);
    py::array_t<int64_t> counts({parts, parts});
    int64_t* const to = counts.mutable_data();
    {
      NoGil released;
      std::fill_n(to, parts * parts, 0);
      count_cut(graph, owners.data, parts, to, threads);
    }
    return counts;
  });
}

int64_t reach(const py::object& indptr, const py::object& indices, const py::object& vertices,
              const py::object& num_hops, const py::object& hops, const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto graph = topology<Vertex>(indptr, indices);
    const auto starts = vertices_of(graph, vertices);
    const int64_t count = integer(num_hops, "num_hops", 0, kMaxHops);
    const auto labels = mutable_vector<uint8_t>(hops, "hops", graph.num_vertices);
    const int threads = thread_count(num_threads);
    NoGil released;
    return hops_from(graph, starts.data, starts.size, count, labels.data, threads, Signals());
  });
}

py::tuple stream(const py::object& indptr, const py::object& indices, const py::object& vertices,
                 const py::object& num_parts, const py::object& num_hops,
                 const py::object& max_walked, const py::object& max_sampled,
                 const py::object& seed, const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto graph = topology<Vertex>(indptr, indices);
    const auto order = vertices_of(graph, vertices);
    const TrainingStream<Vertex> stream_views{graph,
                                              order.data,
                                              order.size,
                                              integer(num_parts, "num_parts", 1, kMaxParts),
                                              integer(num_hops, "num_hops", 1, kMaxHops),
                                              integer(max_walked, "max_walked", 0, kMaxLocal),
                                              integer(max_sampled, "max_sampled", 1, kMaxLocal),
                                              word(seed, "seed")};
    const int threads = thread_count(num_threads);
    py::array_t<int16_t> part_of(order.size);
    py::array_t<uint8_t> hops({stream_views.num_parts, graph.num_vertices});
    int16_t* const to_parts = part_of.mutable_data();
    uint8_t* const to_hops = hops.mutable_data();
    const int64_t num_estimated = [&] {
      NoGil released;
      return assign_stream(stream_views, to_parts, to_hops, threads, Signals());
    }();
    return py::make_tuple(part_of, hops, num_estimated);
  });
}

}  // namespace

void bind_partition(py::module_& m) {
  m.def("count_cut", &cut, "indptr"_a, "indices"_a, "owner"_a, "num_parts"_a, py::kw_only(),
        "num_threads"_a);
  m.def("hops_from", &reach, "indptr"_a, "indices"_a, "vertices"_a, "num_hops"_a, "hops"_a,
        py::kw_only(), "num_threads"_a);
  m.def("pagraph_stream", naming<3>("num_parts", &stream), "indptr"_a, "indices"_a, "vertices"_a,
        py::kw_only(), "num_parts"_a, "num_hops"_a, "max_walked"_a, "max_sampled"_a, "seed"_a,
        "num_threads"_a);
}

}  // namespace gnnscale
