// Hotness of vertices for static caches: selects the hottest vertices that fit, assigns them to the
// members of a clique, and propagates values to in-neighbors, from which hotness is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/prefetch.hpp"
#include "gnnscale/rows.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

// One non-negative number for each vertex.
struct Keys {
  enum class Type { int32, int64, float32 };

  const void* data = nullptr;
  Type type = Type::int32;
};

// Calls use(array) with the keys as an array of their type.
template <typename Use>
decltype(auto) with_type(const Keys& keys, Use&& use) {
  if (keys.type == Keys::Type::int32) return use(static_cast<const int32_t*>(keys.data));
  if (keys.type == Keys::Type::int64) return use(static_cast<const int64_t*>(keys.data));
  return use(static_cast<const float*>(keys.data));
}

// Cache bytes of vertices: a constant for each vertex and, with `offsets`, a constant for each
// entry of its adjacency list. The sum over all vertices must fit into 64 bits.
struct CacheBytes {
  int64_t per_vertex = 0;
  int64_t per_entry = 0;
  const int64_t* offsets = nullptr;  // [num_vertices + 1]
  int64_t num_entries = 0;

  // Returns the bytes of v. Throws TopologyError if the list of v is out of range.
  uint64_t of(int64_t v) const {
    if (offsets == nullptr) return per_vertex;
    const int64_t begin = offsets[v], end = offsets[v + 1];
    if (begin < 0 || end < begin || end > num_entries) [[unlikely]]
      refuse(v, begin, end);
    return static_cast<uint64_t>(per_vertex) + static_cast<uint64_t>(per_entry) * (end - begin);
  }
  [[noreturn]] void refuse(int64_t v, int64_t begin, int64_t end) const;

  // Prefetches the cache lines that `of` reads.
  void fetch(int64_t v) const {
    if (offsets == nullptr) return;
    prefetch(offsets + v);
    prefetch(offsets + v + 1);  // on the next line for one vertex in eight
  }
};

struct HotVertices {
  Keys hotness, tie_break;  // tie_break may be null
  int64_t num_vertices;
  CacheBytes bytes;
  int64_t capacity;
  int64_t max_bytes = INT64_MAX;  // vertices of more bytes are excluded
  bool only_hot = false;          // whether vertices of hotness 0 are excluded
};

// Returns the vertices by descending hotness, ties by descending tie_break, then by ascending id.
// The result has every vertex whose first byte is below `capacity`, so only the last one may exceed
// the capacity. Throws invalid_argument if a hotness is negative or NaN, TopologyError if
// `bytes.offsets` are damaged.
template <typename Vertex>
Array<Vertex> hottest(const HotVertices& task, int num_threads, const Poll& poll = {});

// Legion's Algorithm 1 under a capacity for each member: in the given order, a vertex goes to the
// member with the highest local hotness among those with enough free bytes. Ties go to the member
// with most free bytes, then to the lowest number.
struct ShareOut {
  RowIds order;
  int64_t num_ordered;
  std::vector<Keys> local;  // hotness of each vertex for each member; all of one type
  int64_t num_vertices;
  CacheBytes bytes;
  std::vector<int64_t> capacities;  // non-negative
};

// Output arrays of share_out.
struct Shared {
  int16_t* member;  // [num_ordered] member of each vertex; -1 if no member has enough free bytes
  int64_t* bytes;   // [K] bytes of each member's vertices
  int64_t* reads;   // [K, K] at [j, k]: hotness to j of k's vertices; null unless int32
};

// Throws as `hottest`, and invalid_argument if the order has an id that is no vertex.
void share_out(const ShareOut& task, const Shared& shared, int num_threads, const Poll& poll = {});

// out[u] += values[v] for every in-neighbor u of every vertex v. Each out[u] is summed in edge
// order, so the result is bit-identical for any number of threads. Adjacency lists of vertices with
// value 0 are not read. Throws TopologyError if the topology is damaged; some values may have been
// added by then.
template <typename Vertex, typename Value>
void scatter_to_neighbors(const Topology<Vertex>& graph, const Value* values, Value* out,
                          int num_threads, const Poll& poll = {});

}  // namespace gnnscale
