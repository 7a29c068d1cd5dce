#include "gnnscale/ranked_slots.hpp"

#include <memory>

#include "border.hpp"
#include "gnnscale/cached_rows.hpp"

namespace gnnscale {
namespace {

std::unique_ptr<RankedSlots> made(const py::object& num_vertices, const py::object& members) {
  const int64_t size = integer(num_vertices, "num_vertices", 0, kMaxBytes);
  if (!py::isinstance<py::list>(members) && !py::isinstance<py::tuple>(members)) {
    refuse_type("members", py::str(py::type::handle_of(members).attr("__name__")),
                "a list of the vertices of each");
  }
  const auto items = py::reinterpret_borrow<py::sequence>(members);
  if (items.size() > kMaxCaches) {
    refuse_value("members", std::to_string(items.size()) + " of them",
                 "up to " + std::to_string(kMaxCaches));
  }
  std::vector<RankedSlots::Member> lists;
  int64_t num_rows = 0;
  for (const py::handle item : items) {
    const Ids vertices = ids(item, ("members[" + std::to_string(lists.size()) + "]").c_str());
    num_rows += vertices.size;
    lists.push_back({vertices.ids, vertices.size});
  }
  if (num_rows > kMaxLocal) {
    refuse_value("members", std::to_string(num_rows) + " rows in all", "up to 2^31 - 1");
  }
  NoGil released;
  return std::make_unique<RankedSlots>(size, lists);
}

}  // namespace

void bind_ranked_slots(py::module_& m) {
  py::class_<RankedSlots>(m, "RankedSlots", py::module_local())
      .def(py::init(&made))
      .def_property_readonly("num_bytes", &RankedSlots::num_bytes)
      .def_property_readonly("starts", [](const RankedSlots& slots) {
        return py::array_t<int64_t>(static_cast<py::ssize_t>(slots.starts().size()),
                                    slots.starts().data());
      });
}

}  // namespace gnnscale
