// Which vertices are hot, and who caches them: the hottest ones that fit, these shared out among
// the members of a clique, and values passed to in-neighbours, of which hotness is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/prefetch.hpp"
#include "gnnscale/rows.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

// One number a vertex, none of them negative.
struct Keys {
  enum class Type { int32, int64, float32 };

  const void* data = nullptr;
  Type type = Type::int32;
};

// Calls use(array) with the keys in their type.
template <typename Use>
decltype(auto) with_type(const Keys& keys, Use&& use) {
  if (keys.type == Keys::Type::int32) return use(static_cast<const int32_t*>(keys.data));
  if (keys.type == Keys::Type::int64) return use(static_cast<const int64_t*>(keys.data));
  return use(static_cast<const float*>(keys.data));
}

// Bytes that the vertices take in a cache: as many for each, and, with `offsets`, as many for each
// entry of a vertex's list. Those of all vertices must be a 64-bit number.
struct CacheBytes {
  int64_t per_vertex = 0;
  int64_t per_entry = 0;
  const int64_t* offsets = nullptr;  // [num_vertices + 1]
  int64_t num_entries = 0;

  // Throws TopologyError if the list of v is none.
  uint64_t of(int64_t v) const {
    if (offsets == nullptr) return per_vertex;
    const int64_t begin = offsets[v], end = offsets[v + 1];
    if (begin < 0 || end < begin || end > num_entries) [[unlikely]]
      refuse(v, begin, end);
    return static_cast<uint64_t>(per_vertex) + static_cast<uint64_t>(per_entry) * (end - begin);
  }
  [[noreturn]] void refuse(int64_t v, int64_t begin, int64_t end) const;

  // Fetches the cache lines that `of` reads.
  void fetch(int64_t v) const {
    if (offsets == nullptr) return;
    prefetch(offsets + v);
    prefetch(offsets + v + 1);  // on the next line, of one vertex in eight
  }
};

struct HotVertices {
  Keys hotness, tie_break;  // tie_break may have no data
  int64_t num_vertices;
  CacheBytes bytes;
  int64_t capacity;
  int64_t max_bytes = INT64_MAX;  // a vertex that takes more is left out
  bool only_hot = false;          // whether a vertex of hotness 0 is
};

// The vertices by falling hotness, those alike by falling tie_break, then by rising id; as many as
// begin below `capacity` bytes. So all of them fit but perhaps the last. Throws invalid_argument
// where a hotness is negative or no number, TopologyError if `bytes.offsets` are damaged.
template <typename Vertex>
Array<Vertex> hottest(const HotVertices& task, int num_threads, const Poll& poll = {});

// Legion's Algorithm 1 if members have room for so much: in the order given, a vertex goes to
// the member to which it is hottest of those that have room for it. Of equal ones it is the member
// with most bytes left, then the lowest number.
struct ShareOut {
  RowIds order;
  int64_t num_ordered;
  std::vector<Keys> local;  // a hotness of each vertex for each member, all of one type
  int64_t num_vertices;
  CacheBytes bytes;
  std::vector<int64_t> capacities;  // not negative
};

// Where it is written who takes what, and what that comes to.
struct Shared {
  int16_t* member;  // [num_ordered], who takes each vertex; -1 if none has room
  int64_t* bytes;   // [K], what each member's vertices take
  int64_t* reads;   // [K, K], [j, k]: the hotness to j of what k takes; none unless it is int32
};

// Throws as `hottest`, and invalid_argument if the order holds no vertex.
void share_out(const ShareOut& task, const Shared& shared, int num_threads, const Poll& poll = {});

// out[u] += values[v] for every in-neighbour u of every vertex v. Each out[u] is summed in the
// order of the edges, so that the result is that of one thread to the last bit. Lists of vertices
// whose value is 0 are not read. Throws TopologyError if the topology is damaged; some may have
// been added by then.
template <typename Vertex, typename Value>
void scatter_to_neighbors(const Topology<Vertex>& graph, const Value* values, Value* out,
                          int num_threads, const Poll& poll = {});

}  // namespace gnnscale
