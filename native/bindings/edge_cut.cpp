#include <cerrno>
#include <system_error>

#include "argument_checks.hpp"
#include "gnnscale/coarsen.hpp"
#include "gnnscale/refine.hpp"
#include "gnnscale/undirected.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kMaxWeights = 8;
constexpr int64_t kMaxParts = 1 << 15;
constexpr int64_t kMaxRounds = 1 << 20;
// Maximum weight: sums over the maximum number of vertices and edges fit into 64 bits.
constexpr int64_t kMaxWeight = int64_t{1} << 31;

template <typename T>
void check_weights(Vector<const T> weights, const char* name, int64_t least) {
  for (int64_t i = 0; i < weights.size; ++i) {
    if (weights.data[i] < least || weights.data[i] > kMaxWeight) {
      throw std::invalid_argument(std::string(name) + ": " + std::to_string(weights.data[i]) +
                                  ", allowed are " + std::to_string(least) + " to 2^31");
    }
  }
}

// Views of a graph's arrays; `check` validates their contents.
template <typename Vertex>
struct Given {
  Vector<const int64_t> indptr;
  Vector<const Vertex> indices;

  Given(py::handle offsets, py::handle neighbors)
      : indptr(vector<int64_t>(offsets, "indptr")), indices(vector<Vertex>(neighbors, "indices")) {
    num_lists(indptr, "vertices");
  }
  int64_t num_vertices() const { return indptr.size - 1; }
  void check(int num_threads) const {
    check_offsets(indptr.data, num_vertices(), indices.size, "indptr", num_threads);
    check_below(indices.data, indices.size, num_vertices(), "indices", num_threads);
  }
  Lists<Vertex> lists() const { return {indptr.data, indices.data, num_vertices()}; }
};

template <typename Vertex>
struct GivenWeighted : Given<Vertex> {
  int64_t num_weights = kAnySize;
  Vector<const int64_t> vertex_weights;
  Vector<const int32_t> edge_weights;

  GivenWeighted(py::handle offsets, py::handle neighbors, py::handle on_edges,
                py::handle on_vertices)
      : Given<Vertex>(offsets, neighbors) {
    const auto table =
        int64_table(on_vertices, "vertex_weights", this->num_vertices(), &num_weights);
    if (num_weights < 1 || num_weights > kMaxWeights) {
      refuse_value("vertex_weights", std::to_string(num_weights) + " columns", "1 to 8");
    }
    vertex_weights = {table.data, table.size * num_weights};
    if (!on_edges.is_none()) {
      edge_weights = vector<int32_t>(on_edges, "edge_weights", this->indices.size);
    }
    // Clusters have 32-bit numbers.
    if (this->num_vertices() > kMaxLocal) refuse_value("indptr", "more", "2^31 - 1 vertices");
  }
  void check(int num_threads) const {
    Given<Vertex>::check(num_threads);
    check_weights(vertex_weights, "vertex_weights", 0);
    check_weights(edge_weights, "edge_weights", 1);
  }
  WeightedGraph<Vertex> graph() const {
    return {this->lists(), edge_weights.data, vertex_weights.data, num_weights};
  }
};

Record lists_type, refined_type, contracted_type;

py::object undirected(const py::object& indptr, const py::object& indices,
                      const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const Given<Vertex> graph_views(indptr, indices);
    const int threads = thread_count(num_threads);
    Undirected<Vertex> undirected;
    {
      NoGil released;
      graph_views.check(threads);
      undirected = make_undirected(graph_views.lists(), threads);
    }
    if (undirected.unchanged) return lists_type(indptr, indices, 0, 0, 0);
    return lists_type(to_numpy(std::move(undirected.indptr)),
                      to_numpy(std::move(undirected.indices)), undirected.num_loops,
                      undirected.num_duplicates, undirected.num_one_way);
  });
}

int64_t write_text(const py::object& fd, const py::object& indptr, const py::object& indices,
                   const py::object& vertex_weights, const py::object& edge_weights,
                   const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto file = static_cast<int>(integer(fd, "fd", 0, INT32_MAX));
    const Given<Vertex> graph_views(indptr, indices);
    const int threads = thread_count(num_threads);
    MetisText<Vertex> text{graph_views.lists(), nullptr, nullptr};
    if (!vertex_weights.is_none()) {
      text.vertex_weights =
          vector<int64_t>(vertex_weights, "vertex_weights", graph_views.num_vertices()).data;
    }
    if (!edge_weights.is_none()) {
      text.edge_weights =
          vector<int32_t>(edge_weights, "edge_weights", graph_views.indices.size).data;
    }
    int error = 0;
    int64_t num_bytes = 0;
    {
      NoGil released;
      graph_views.check(threads);
      try {
        num_bytes = write_metis(file, text, threads);
      } catch (const std::system_error& failed) {
        error = failed.code().value();
      }
    }
    if (error != 0) {
      errno = error;
      PyErr_SetFromErrno(PyExc_OSError);
      throw py::error_already_set();
    }
    return num_bytes;
  });
}

py::object refine_parts(const py::object& indptr, const py::object& indices,
                        const py::object& vertex_weights, const py::object& max_weights,
                        const py::object& owner, const py::object& edge_weights,
                        const py::object& labels, const py::object& num_clusters,
                        const py::object& num_rounds, const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const GivenWeighted<Vertex> graph_views(indptr, indices, edge_weights, vertex_weights);
    int64_t width = graph_views.num_weights;
    const auto limits = int64_table(max_weights, "max_weights", kAnySize, &width);
    if (limits.size < 1 || limits.size > kMaxParts) {
      refuse_value("max_weights", std::to_string(limits.size) + " rows, one for each part",
                   "1 to " + std::to_string(kMaxParts));
    }
    const auto parts = static_cast<int32_t>(limits.size);
    const auto owners = mutable_vector<int32_t>(owner, "owner", graph_views.num_vertices());
    Vector<const int32_t> names;
    if (!labels.is_none()) names = vector<int32_t>(labels, "labels", graph_views.num_vertices());
    const int64_t count = integer(num_clusters, "num_clusters", 0, graph_views.num_vertices());
    const int64_t rounds = integer(num_rounds, "num_rounds", 0, kMaxRounds);
    const int threads = thread_count(num_threads);
    Refined refined;
    {
      NoGil released;
      graph_views.check(threads);
      check_below(owners.data, owners.size, parts, "owner", threads);
      check_below(names.data, names.size, count, "labels", threads);
      refined = refine(graph_views.graph(), {limits.data, parts}, {names.data, count}, rounds,
                       owners.data, threads, Signals());
    }
    return refined_type(refined.cut_before, refined.cut_balanced, refined.cut, refined.within);
  });
}

py::tuple clusters(const py::object& indptr, const py::object& indices,
                   const py::object& vertex_weights, const py::object& max_weights,
                   const py::object& edge_weights, const py::object& owner,
                   const py::object& num_rounds) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const GivenWeighted<Vertex> graph_views(indptr, indices, edge_weights, vertex_weights);
    const auto limits = vector<int64_t>(max_weights, "max_weights", graph_views.num_weights);
    const int64_t rounds = integer(num_rounds, "num_rounds", 0, kMaxRounds);
    Vector<const int32_t> owners;
    if (!owner.is_none()) owners = vector<int32_t>(owner, "owner", graph_views.num_vertices());
    Array<int32_t> labels(graph_views.num_vertices());
    int64_t count = 0;
    {
      NoGil released;
      graph_views.check(1);
      count = find_clusters(graph_views.graph(), limits.data, rounds, owners.data,
                            labels.data.get(), Signals());
    }
    return py::make_tuple(to_numpy(std::move(labels)), count);
  });
}

py::object contracted(const py::object& indptr, const py::object& indices,
                      const py::object& vertex_weights, const py::object& edge_weights,
                      const py::object& labels, const py::object& num_clusters,
                      const py::object& threshold, const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const GivenWeighted<Vertex> graph_views(indptr, indices, edge_weights, vertex_weights);
    const auto names = vector<int32_t>(labels, "labels", graph_views.num_vertices());
    // Each cluster has a vertex, so a large num_clusters cannot allocate excessive memory.
    const int64_t count = integer(num_clusters, "num_clusters", 0, graph_views.num_vertices());
    const int64_t least = integer(threshold, "threshold", 1, INT32_MAX);
    const int threads = thread_count(num_threads);
    Coarse coarse;
    {
      NoGil released;
      graph_views.check(threads);
      check_below(names.data, names.size, count, "labels", threads);
      coarse = contract(graph_views.graph(), names.data, count, least, threads);
    }
    return contracted_type(
        to_numpy(std::move(coarse.indptr)), to_numpy(std::move(coarse.indices)),
        to_numpy(std::move(coarse.edge_weights)),
        to_numpy(std::move(coarse.vertex_weights)).reshape({count, graph_views.num_weights}));
  });
}

}  // namespace

void bind_edge_cut(py::module_& m) {
  lists_type.define(m, "UndirectedLists", "indptr indices num_loops num_duplicates num_one_way");
  refined_type.define(m, "Refined", "cut_before cut_balanced cut within");
  contracted_type.define(m, "Contracted", "indptr indices edge_weights vertex_weights");
  m.def("make_undirected", &undirected, "indptr"_a, "indices"_a, "num_threads"_a);
  m.def("write_metis", &write_text, "fd"_a, "indptr"_a, "indices"_a, py::kw_only(),
        "vertex_weights"_a = py::none(), "edge_weights"_a = py::none(), "num_threads"_a);
  m.def("refine", &refine_parts, "indptr"_a, "indices"_a, py::kw_only(), "vertex_weights"_a,
        "max_weights"_a, "owner"_a, "edge_weights"_a = py::none(), "labels"_a = py::none(),
        "num_clusters"_a = 0, "num_rounds"_a, "num_threads"_a);
  m.def("find_clusters", &clusters, "indptr"_a, "indices"_a, py::kw_only(), "vertex_weights"_a,
        "max_weights"_a, "edge_weights"_a = py::none(), "owner"_a = py::none(), "num_rounds"_a);
  m.def("contract", &contracted, "indptr"_a, "indices"_a, py::kw_only(), "vertex_weights"_a,
        "edge_weights"_a = py::none(), "labels"_a, "num_clusters"_a, "threshold"_a = 1,
        "num_threads"_a);
}

}  // namespace gnnscale
