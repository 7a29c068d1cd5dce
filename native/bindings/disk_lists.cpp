#include "gnnscale/disk_lists.hpp"

#include "disk.hpp"

namespace gnnscale {
namespace {

std::unique_ptr<BoundLists> opened_lists(const py::object& path, const py::object& indptr,
                                         const py::object& indices, const py::object& held,
                                         const py::object& offset, const py::object& depth,
                                         const py::object& max_gap_bytes, const py::object& engine,
                                         const py::object& direct) {
  RowFile file{path_of(path), integer(offset, "offset", 0, kMaxReadOffset)};
  const ReaderOptions options{
      .depth = static_cast<int>(integer(depth, "depth", 1, kMaxReadDepth)),
      .max_gap_bytes = integer(max_gap_bytes, "max_gap_bytes", 0, kMaxRequestBytes),
      .engine = engine_of(engine),
      .direct = flag(direct, "direct")};
  const Ids vertices = ids(held, "held");
  if (vertices.size > kMaxLocal) refuse_value("held", "2^31 vertices or more", "fewer");
  std::vector<int64_t> copied(vertices.size);
  for (int64_t i = 0; i < vertices.size; ++i) copied[i] = vertices.ids[i];
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    Topology<Vertex> graph = topology<Vertex>(indptr, indices);
    if (graph.num_edges > kMaxFileRows) refuse_value("indices", "more than 2^33", "fewer");
    graph.indices = nullptr;
    file.num_rows = graph.num_edges;
    file.row_bytes = sizeof(Vertex);
    try {
      auto lists = [&] {
        NoGil released;
        return std::make_unique<DiskLists<Vertex>>(graph, file, options, copied);
      }();
      return std::make_unique<BoundLists>(std::move(lists), indptr);
    } catch (const FileError& error) {
      raise(error, file.path);
    }
  });
}

py::dict take_counters(BoundLists& bound) {
  const ListCounters counters = bound.visit([](auto& lists) { return lists.take_counters(); });
  return py::dict("hits"_a = counters.hits, "misses"_a = counters.misses,
                  "waited_s"_a = counters.waited_s, "requests"_a = counters.reads.requests,
                  "bytes_read"_a = counters.reads.bytes_read, "busy_s"_a = counters.reads.busy_s);
}

}  // namespace

void bind_disk_lists(py::module_& m) {
  py::class_<BoundLists>(m, "DiskLists", py::module_local())
      .def(py::init(naming<3>("held", &opened_lists)), "path"_a, "indptr"_a, "indices"_a, "held"_a,
           py::kw_only(), "offset"_a, "depth"_a = 64, "max_gap_bytes"_a, "engine"_a = "auto",
           "direct"_a = true)
      .def("take_counters", &take_counters)
      .def_property_readonly("num_bytes",
                             [](const BoundLists& bound) {
                               return bound.visit([](auto& lists) { return lists.num_bytes(); });
                             })
      .def_property_readonly(
          "engine",
          [](const BoundLists& bound) {
            return bound.visit([](auto& lists) { return name_of(lists.reader().engine()); });
          })
      .def_property_readonly("direct", [](const BoundLists& bound) {
        return bound.visit([](auto& lists) { return lists.reader().direct(); });
      });
}

}  // namespace gnnscale
