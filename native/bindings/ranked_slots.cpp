#include "gnnscale/ranked_slots.hpp"

#include <memory>

#include "argument_checks.hpp"
#include "gnnscale/cached_rows.hpp"

namespace gnnscale {
namespace {

std::unique_ptr<RankedSlots> make_slots(const py::object& num_vertices, const py::object& members) {
  const int64_t size = integer(num_vertices, "num_vertices", 0, kMaxBytes);
  std::vector<Ids> vertices;
  std::vector<RankedSlots::Member> lists;
  int64_t num_rows = 0;
  const py::tuple items =
      sequence(members, "members", "a list of the vertices of each", kMaxCaches);
  for (const py::handle item : items) {
    const std::string name = "members[" + std::to_string(lists.size()) + "]";
    vertices.push_back(ids(item, name.c_str()));
    num_rows += vertices.back().size;
    lists.push_back({vertices.back().ids, vertices.back().size});
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
      .def(py::init(naming<0>("num_vertices", &make_slots)), "num_vertices"_a, "members"_a)
      .def_property_readonly("num_bytes", &RankedSlots::num_bytes)
      .def_property_readonly("starts", [](const RankedSlots& slots) {
        return py::array_t<int64_t>(static_cast<py::ssize_t>(slots.starts().size()),
                                    slots.starts().data());
      });
}

}  // namespace gnnscale
