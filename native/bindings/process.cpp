// Bindings that concern the whole process or the processor.
#include <string>
#include <system_error>

#include "argument_checks.hpp"
#include "gnnscale/bus_errors.hpp"
#include "gnnscale/cache_lines.hpp"
#include "gnnscale/memory.hpp"

namespace gnnscale {
namespace {

void end_on_error(const py::object& descriptor, const py::object& after, const py::object& status) {
  const auto file = static_cast<int>(integer(descriptor, "descriptor", 0, INT32_MAX));
  if (!py::isinstance<py::bytes>(after)) refuse_type("after", type_name(after), "bytes");
  const std::string text = py::reinterpret_borrow<py::bytes>(after);
  if (text.size() > kMaxBusErrorText) {
    refuse_value("after", std::to_string(text.size()) + " bytes",
                 "up to " + std::to_string(kMaxBusErrorText));
  }
  const auto exit_status = static_cast<int>(integer(status, "status", 0, 255));
  try {
    end_on_bus_error(file, text, exit_status);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw py::error_already_set();
  }
}

bool flush(const py::object& data) {
  const auto bytes = vector<uint8_t>(data, "data");
  NoGil released;
  return flush_cache_lines(bytes.data, static_cast<size_t>(bytes.size));
}

void move_pages(const py::object& data) {
  const auto bytes = vector<uint8_t>(data, "data");
  NoGil released;
  move_to_large_pages(bytes.data, static_cast<size_t>(bytes.size));
}

}  // namespace

void bind_process(py::module_& m) {
  m.def("keep_freed_memory", [] { return keep_freed_memory(); });
  m.def("end_on_bus_error", &end_on_error, py::kw_only(), "descriptor"_a, "after"_a, "status"_a);
  m.def("flush_cache_lines", &flush, "data"_a);
  m.def("move_to_large_pages", &move_pages, "data"_a);
}

}  // namespace gnnscale
