#include "gnnscale/links.hpp"

#include "border.hpp"

namespace gnnscale {

void bind_links(py::module_& m) {
  m.def("draw_negatives",
        [](const py::object& edges, const py::object& count, const py::object& num_vertices,
           const py::object& seed, const py::object& step, const py::object& num_threads) {
          const auto numbers = vector<int64_t>(edges, "edges");
          const int64_t each = integer(count, "count", 0, kMaxLocal);
          const int64_t vertices = integer(num_vertices, "num_vertices", 1, kMaxBytes);
          const uint64_t key = word(seed, "seed"), at = word(step, "step");
          const int threads = thread_count(num_threads);
          if (each > 0 && numbers.size > kMaxBytes / each) throw std::bad_alloc();
          return to_numpy([&] {
            NoGil released;
            return draw_negatives(numbers.data, numbers.size, each, vertices, key, at, threads);
          }());
        });
  m.def("draw_of_pairs", [](const py::object& first, const py::object& second,
                            const py::object& seed, const py::object& num_threads) {
    const auto left = vector<int64_t>(first, "first");
    const auto right = vector<int64_t>(second, "second", left.size);
    const uint64_t key = word(seed, "seed");
    const int threads = thread_count(num_threads);
    return to_numpy([&] {
      NoGil released;
      return draw_of_pairs(left.data, right.data, left.size, key, threads);
    }());
  });
}

}  // namespace gnnscale
