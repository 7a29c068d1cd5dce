#include "argument_checks.hpp"
#include "gnnscale/generate.hpp"
#include "gnnscale/links.hpp"

namespace gnnscale {
namespace {

py::tuple to_pair(EdgeList&& edges) {
  return py::make_tuple(to_numpy(std::move(edges.src)), to_numpy(std::move(edges.dst)));
}

py::tuple edges_of_rmat(const py::object& num_vertices, const py::object& num_edges,
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
}

py::tuple draws_of_rmat(const py::object& num_vertices, const py::object& a, const py::object& b,
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
}

py::array_t<int32_t> numbering_of_rmat(const py::object& num_vertices, const py::object& seed) {
  const int64_t vertices = integer(num_vertices, "num_vertices", 2, kMaxLocal);
  const uint64_t key = word(seed, "seed");
  return to_numpy([&] {
    NoGil released;
    return rmat_numbering(vertices, key);
  }());
}

py::tuple edges_of_communities(const py::object& community, const py::object& weight,
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
}

py::object negatives(const py::object& edges, const py::object& count,
                     const py::object& num_vertices, const py::object& seed, const py::object& step,
                     const py::object& num_threads) {
  const Ids numbers = ids(edges, "edges");
  const int64_t num_negatives = integer(count, "count", 0, kMaxLocal);
  const int64_t vertices = integer(num_vertices, "num_vertices", 1, kMaxBytes);
  const uint64_t key = word(seed, "seed"), at = word(step, "step");
  const int threads = thread_count(num_threads);
  if (num_negatives > 0 && numbers.size > kMaxBytes / num_negatives) throw std::bad_alloc();
  return to_numpy([&] {
           NoGil released;
           return draw_negatives(numbers.ids, numbers.size, num_negatives, vertices, key, at,
                                 threads);
         }())
      .reshape({numbers.size, num_negatives});
}

py::array_t<double> of_pairs(const py::object& first, const py::object& second,
                             const py::object& seed, const py::object& num_threads) {
  const Ids first_ids = ids(first, "first"), second_ids = ids(second, "second");
  check_size("second", second_ids.size, first_ids.size);
  const uint64_t key = word(seed, "seed");
  const int threads = thread_count(num_threads);
  return to_numpy([&] {
    NoGil released;
    return draw_of_pairs(first_ids.ids, second_ids.ids, first_ids.size, key, threads);
  }());
}

}  // namespace

void bind_draws(py::module_& m) {
  m.def("rmat_edges", naming<1>("num_edges", &edges_of_rmat), "num_vertices"_a, "num_edges"_a,
        "a"_a, "b"_a, "c"_a, "seed"_a, "num_threads"_a);
  m.def("rmat_draws", naming<6>("num_draws", &draws_of_rmat), "num_vertices"_a, "a"_a, "b"_a, "c"_a,
        "seed"_a, "first"_a, "num_draws"_a, "num_threads"_a);
  m.def("rmat_numbering", naming<0>("num_vertices", &numbering_of_rmat), "num_vertices"_a,
        "seed"_a);
  m.def("planted_partition_edges", naming<2>("num_edges", &edges_of_communities), "community"_a,
        "weight"_a, "num_edges"_a, "within"_a, "seed"_a);
  m.def("draw_negatives", naming<1>("count", &negatives), "edges"_a, "count"_a, "num_vertices"_a,
        py::kw_only(), "seed"_a, "step"_a, "num_threads"_a = 1);
  m.def("draw_of_pairs", naming<0>("first", &of_pairs), "first"_a, "second"_a, py::kw_only(),
        "seed"_a, "num_threads"_a = 1);
}

}  // namespace gnnscale
