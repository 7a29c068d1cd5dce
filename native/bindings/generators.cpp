#include "border.hpp"
#include "gnnscale/generate.hpp"

namespace gnnscale {
namespace {

py::tuple to_pair(EdgeList&& edges) {
  return py::make_tuple(to_numpy(std::move(edges.src)), to_numpy(std::move(edges.dst)));
}

}  // namespace

void bind_generators(py::module_& m) {
  m.def("rmat_edges", [](const py::object& num_vertices, const py::object& num_edges,
                         const py::object& a, const py::object& b, const py::object& c,
                         const py::object& seed, const py::object& num_threads) {
    const int64_t vertices = integer(num_vertices, "num_vertices", 2, kMaxLocal);
    const int64_t count = integer(num_edges, "num_edges", 0, vertices * (vertices - 1) / 4);
    const double pa = real(a, "a", 0, 1), pb = real(b, "b", 0, 1), pc = real(c, "c", 0, 1);
    const uint64_t key = word(seed, "seed");
    const int threads = thread_count(num_threads);
    return to_pair([&] {
      NoGil released;
      return rmat_edges(vertices, count, pa, pb, pc, key, threads);
    }());
  });
  m.def("rmat_draws", [](const py::object& num_vertices, const py::object& a, const py::object& b,
                         const py::object& c, const py::object& seed, const py::object& first,
                         const py::object& num_draws, const py::object& num_threads) {
    const int64_t vertices = integer(num_vertices, "num_vertices", 2, kMaxLocal);
    const double pa = real(a, "a", 0, 1), pb = real(b, "b", 0, 1), pc = real(c, "c", 0, 1);
    const uint64_t key = word(seed, "seed"), begin = word(first, "first");
    const int64_t count = integer(num_draws, "num_draws", 0, kMaxBytes);
    const int threads = thread_count(num_threads);
    return to_pair([&] {
      NoGil released;
      return rmat_draws(vertices, pa, pb, pc, key, begin, count, threads);
    }());
  });
  m.def("rmat_numbering", [](const py::object& num_vertices, const py::object& seed) {
    const int64_t vertices = integer(num_vertices, "num_vertices", 2, kMaxLocal);
    const uint64_t key = word(seed, "seed");
    return to_numpy([&] {
      NoGil released;
      return rmat_numbering(vertices, key);
    }());
  });
  m.def("planted_partition_edges", [](const py::object& community, const py::object& weight,
                                      const py::object& num_edges, const py::object& within,
                                      const py::object& seed) {
    const auto classes = vector<int32_t>(community, "community");
    const auto weights = vector<float>(weight, "weight", classes.size);
    const int64_t count = integer(num_edges, "num_edges", 0, kMaxBytes);
    const double inside = real(within, "within", 0, 1);
    const uint64_t key = word(seed, "seed");
    return to_pair([&] {
      NoGil released;
      return planted_partition_edges(classes.data, weights.data, classes.size, count, inside, key);
    }());
  });
}

}  // namespace gnnscale
