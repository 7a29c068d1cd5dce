// Shared code of bindings that read files.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "argument_checks.hpp"
#include "gnnscale/disk_lists.hpp"

namespace gnnscale {

std::string path_of(py::handle value);
ReadEngine engine_of(py::handle value);
inline const char* name_of(ReadEngine engine) {
  return engine == ReadEngine::io_uring ? "io_uring" : "threads";
}
// Raises OSError, or its Python subclass for the errno.
[[noreturn]] void raise(const FileError& error, const std::string& path);

// Disk-backed adjacency lists, with the file's checks.
class BoundLists {
 public:
  template <typename Vertex>
  BoundLists(std::unique_ptr<DiskLists<Vertex>> lists, py::object indptr)
      : lists_(std::move(lists)), indptr_(std::move(indptr)) {}

  // Returns the lists for a topology with this vertex type. Throws ValueError unless the numbers of
  // vertices and edges match.
  template <typename Vertex>
  const DiskLists<Vertex>* of(const Topology<Vertex>& graph) const {
    const auto* typed_lists = std::get_if<std::unique_ptr<DiskLists<Vertex>>>(&lists_);
    if (typed_lists == nullptr) refuse_value("lists", "ids of another type", "those of indices");
    check_size("lists", (*typed_lists)->graph().num_edges, graph.num_edges);
    check_size("lists", (*typed_lists)->graph().num_vertices, graph.num_vertices);
    return typed_lists->get();
  }
  template <typename Use>
  auto visit(Use&& use) const {
    return std::visit([&](auto& lists) { return use(*lists); }, lists_);
  }
  std::string path() const {
    return visit([](auto& lists) { return lists.file().path; });
  }

 private:
  std::variant<std::unique_ptr<DiskLists<int32_t>>, std::unique_ptr<DiskLists<int64_t>>> lists_;
  py::object indptr_;
};

}  // namespace gnnscale
