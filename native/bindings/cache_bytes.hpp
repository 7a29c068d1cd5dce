// Shared argument parsing of cache operations.
#pragma once

#include "argument_checks.hpp"
#include "gnnscale/hotness.hpp"

namespace gnnscale {

// Maximum number of members of a clique.
inline constexpr int64_t kMaxMembers = 1024;

// Returns the cache bytes of vertices; `offsets` may be None.
inline CacheBytes cache_bytes(py::handle per_vertex, py::handle offsets, py::handle per_entry,
                              int64_t num_vertices) {
  CacheBytes bytes;
  bytes.per_vertex = integer(per_vertex, "bytes_per_vertex", 0, kMaxLocal);
  bytes.per_entry = integer(per_entry, "bytes_per_entry", 0, kMaxLocal);
  if (offsets.is_none()) {
    if (bytes.per_entry != 0) refuse_type("offsets", "None", "int64 where entries take bytes");
  } else {
    bytes.offsets = vector<int64_t>(offsets, "offsets", num_vertices + 1).data;
    bytes.num_entries = bytes.offsets[num_vertices];
    if (bytes.offsets[0] != 0 || bytes.num_entries < 0) {
      refuse_value("offsets",
                   std::to_string(bytes.offsets[0]) + " to " + std::to_string(bytes.num_entries),
                   "such that rise from 0");
    }
  }
  const auto all = static_cast<__int128>(bytes.per_vertex) * num_vertices +
                   static_cast<__int128>(bytes.per_entry) * bytes.num_entries;
  if (all > INT64_MAX) {
    refuse_value(bytes.per_entry == 0 ? "bytes_per_vertex" : "offsets", "2^63 bytes or more in all",
                 "fewer");
  }
  return bytes;
}

}  // namespace gnnscale
