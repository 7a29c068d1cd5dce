// The extension module gnnscale._native. Only the package gnnscale/ops imports it.
#include "border.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/simd.hpp"

PYBIND11_MODULE(_native, m, pybind11::mod_gil_not_used()) {
  using namespace gnnscale;
  m.def("empty", [](const py::object& num_bytes) {
    return to_numpy(Array<uint8_t>(integer(num_bytes, "shape", 0, kMaxBytes)));
  });
  isa();  // refuses a level that does not exist before anything is computed
  m.def("simd_level", [] { return name_of(isa()); });
  m.def("supported_simd_level", [] { return name_of(supported_isa()); });
  m.def("keep_freed_memory", [] { return keep_freed_memory(); });
  bind_sampler(m);
  bind_csc(m);
  bind_rows(m);
  bind_read_ahead(m);
  bind_elementwise(m);
  bind_generators(m);
  bind_partition(m);
  bind_edge_cut(m);
  bind_replacement(m);
  bind_ranked_slots(m);
  bind_cached_rows(m);
  bind_hotness(m);
  bind_along(m);
  bind_arrange(m);
  bind_id_table(m);
}
