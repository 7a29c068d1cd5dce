// The extension module gnnscale.ops._native. Only the package gnnscale/ops imports it.
#include "argument_checks.hpp"
#include "gnnscale/simd.hpp"

namespace gnnscale {
namespace {

py::object empty(const py::object& shape, const py::object& dtype) {
  if (!py::isinstance<py::tuple>(shape)) {
    refuse_type("shape", type_name(shape), "a tuple of whole numbers");
  }
  return new_tensor(py::reinterpret_borrow<py::tuple>(shape), dtype).tensor;
}

}  // namespace
}  // namespace gnnscale

PYBIND11_MODULE(_native, m, pybind11::mod_gil_not_used()) {
  using namespace gnnscale;
  isa();  // rejects an unknown level before any computation
  m.def("empty", naming<0>("shape", &empty), "shape"_a, "dtype"_a);
  m.def("simd_level", [] { return name_of(isa()); });
  m.def("supported_simd_level", [] { return name_of(supported_isa()); });
  bind_sampler(m);
  bind_csc(m);
  bind_rows(m);
  bind_elementwise(m);
  bind_neighbors(m);
  bind_row_updates(m);
  bind_draws(m);
  bind_partition(m);
  bind_edge_cut(m);
  bind_replacement(m);
  bind_ranked_slots(m);
  bind_cached_rows(m);
  bind_hotness(m);
  bind_prefix_sums(m);
  bind_arrange(m);
  bind_id_table(m);
  bind_row_reader(m);
  bind_disk_lists(m);
  bind_shared_sum(m);
  bind_process(m);
}
