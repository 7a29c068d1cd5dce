#include "gnnscale/replacement.hpp"

#include <mutex>

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

// Keeps the priorities alive, and serializes calls.
class BoundReplacement {
 public:
  BoundReplacement(const py::object& priority, const py::object& capacity, const py::object& match)
      : priority_(priority), replacement_(make_replacement(priority, capacity, match)) {}

  static std::unique_ptr<BoundReplacement> empty(const py::object& priority,
                                                 const py::object& capacity,
                                                 const py::object& match) {
    return std::make_unique<BoundReplacement>(priority, capacity, match);
  }

  static void expect(BoundReplacement& self, const py::object& vertices,
                     const py::object& num_threads) {
    const Ids batch = ids(vertices, "vertices");
    const int threads = thread_count(num_threads);
    NoGil released;
    batch.check(batch.size, self.replacement_.num_vertices(), "vertices", threads);
    const std::lock_guard lock(self.mutex_);
    self.replacement_.expect(batch.ids, batch.size, threads);
  }

  py::array_t<int32_t> look_up(const py::object& num_threads) {
    const int threads = thread_count(num_threads);
    return to_numpy([&] {
      NoGil released;
      const std::lock_guard lock(mutex_);
      return replacement_.look_up(threads);
    }());
  }

  py::tuple advance(const py::object& num_threads) {
    const int threads = thread_count(num_threads);
    Replaced replaced = [&] {
      NoGil released;
      const std::lock_guard lock(mutex_);
      return replacement_.advance(threads);
    }();
    return py::make_tuple(replaced.num_hits, replaced.num_previous, replaced.num_misses,
                          to_numpy(std::move(replaced.positions)),
                          to_numpy(std::move(replaced.slots)));
  }

  // Returns a read-only view that keeps its owner alive.
  static py::array_t<int32_t> slots(const py::object& self) {
    const auto& replacement = self.cast<const BoundReplacement&>().replacement_;
    py::array_t<int32_t> view({replacement.num_vertices()}, replacement.slots(), self);
    py::detail::array_proxy(view.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    return view;
  }

 private:
  static Replacement make_replacement(const py::object& priority, const py::object& capacity,
                                      const py::object& match) {
    const auto order = vector<int32_t>(priority, "priority");
    if (order.size > INT32_MAX) refuse_value("priority", "more than 2^31 - 1 entries", "fewer");
    const int64_t slots = integer(capacity, "capacity", 0, order.size);
    return {order.data, order.size, slots, flag(match, "match")};
  }

  py::object priority_;
  Replacement replacement_;
  std::mutex mutex_;
};

}  // namespace

void bind_replacement(py::module_& m) {
  using Bound = BoundReplacement;
  py::class_<Bound>(m, "NativeReplacement", py::module_local())
      .def(py::init(naming<1>("capacity", &Bound::empty)), "priority"_a, py::kw_only(),
           "capacity"_a, "match"_a)
      .def("expect", naming<1>("vertices", &Bound::expect), "vertices"_a, py::kw_only(),
           "num_threads"_a)
      .def("look_up", &Bound::look_up, py::kw_only(), "num_threads"_a)
      .def("advance", &Bound::advance, py::kw_only(), "num_threads"_a)
      .def_property_readonly("slots", &Bound::slots);
}

}  // namespace gnnscale
