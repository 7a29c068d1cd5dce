#include "gnnscale/shared_sum.hpp"

#include "argument_checks.hpp"
#include "arrays.hpp"

namespace gnnscale {
namespace {

std::unique_ptr<SharedSum> made_in(const py::object& memory, const py::object& rank,
                                   const py::object& size) {
  const int64_t members = integer(size, "size", 1, SharedSum::kMaxSize);
  const int64_t own_rank = integer(rank, "rank", 0, members - 1);
  const auto bytes = mutable_vector<uint8_t>(memory, "memory", SharedSum::num_bytes(members));
  if (reinterpret_cast<uintptr_t>(bytes.data) % SharedSum::kAlignment != 0) {
    refuse_value("memory", "an array that is not aligned", "aligned ones");
  }
  return std::make_unique<SharedSum>(bytes.data, own_rank, members);
}

template <typename T>
void add_as(SharedSum& sums, const py::object& values, const SharedSum::Poll& poll) {
  const auto summed = mutable_vector<T>(values, "values");
  NoGil released;
  sums.add(summed.data, summed.size, poll);
}

void add_values(SharedSum& sums, const py::object& values, const py::object& poll) {
  constexpr const char* kAllowed = "float32, float64 and int64";
  if (PyCallable_Check(poll.ptr()) == 0) refuse_type("poll", type_name(poll), "a function");
  if (!py::isinstance<py::array>(values)) refuse_type("values", type_name(values), kAllowed);
  const auto call = [&poll] {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    poll();
  };
  const py::dtype dtype = py::reinterpret_borrow<py::array>(values).dtype();
  if (dtype.kind() == 'f' && dtype.itemsize() == 4) {
    add_as<float>(sums, values, call);
  } else if (dtype.kind() == 'f' && dtype.itemsize() == 8) {
    add_as<double>(sums, values, call);
  } else {
    array_of(values, "values", "i", 8, kAllowed);
    add_as<int64_t>(sums, values, call);
  }
}

}  // namespace

void bind_shared_sum(py::module_& m) {
  py::class_<SharedSum>(m, "SharedSum", py::module_local())
      .def(py::init(&made_in), "memory"_a, py::kw_only(), "rank"_a, "size"_a,
           py::keep_alive<1, 2>())
      .def_static(
          "num_bytes",
          [](const py::object& size) {
            return SharedSum::num_bytes(integer(size, "size", 1, SharedSum::kMaxSize));
          },
          "size"_a)
      .def("add", &add_values, "values"_a, "poll"_a)
      .def("leave", &SharedSum::leave);
}

}  // namespace gnnscale
