// Feature rows in caches and the host's matrix: looks up which cache has a vertex's row, gathers
// rows from caches and host, counts hits and misses, and fills caches.
#pragma once

#include <cstdint>

#include "gnnscale/limits.hpp"
#include "gnnscale/ranked_slots.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

inline constexpr int64_t kMaxCaches = 1024;

// Map from vertex to cache slot. The rows of all caches are numbered consecutively, cache by cache;
// a vertex's slot is its row number, or -1 if no cache has its row. Slots and vertices are checked
// as they are read, each read once.
struct Slots {
  const int32_t* data;  // [num_vertices]; null if `ranked` has the slots
  int64_t num_vertices;
  const int64_t* starts;  // [num_caches + 1] first slot of each cache; then the number of slots
  int64_t num_caches;     // at most kMaxCaches
  const RankedSlots* ranked = nullptr;  // slots of the same vertices and starts
};

// out[i] = row of vertex ids[i], from the cache that has the row, otherwise from x.
struct GatherCached {
  Gather from_host;
  const Rows* caches;  // with the type and row length of x
  Slots slots;
};

// Both functions write the number of vertices found in each cache, and last the number found in no
// cache, to counts[num_caches + 1]. They throw invalid_argument if a vertex or a slot is out of
// range.
void gather_cached(const GatherCached& task, int64_t* counts, int num_threads);
// Vertex i counts weights[i + 1] - weights[i] times; once if weights is null.
void count_slots(const Slots& slots, const RowIds& vertices, int64_t size, const int64_t* weights,
                 int64_t* counts, int num_threads);

// counts[vertices[i]] += weights[i + 1] - weights[i], or 1 if weights is null; a count saturates at
// the maximum of its type. Concurrent calls with more than one thread may add to the same counts.
// Throws invalid_argument if a vertex is out of range; some vertices may have been counted by then.
void count_uses(const RowIds& vertices, int64_t size, const int64_t* weights, int32_t* counts,
                int64_t num_vertices, int num_threads);

// target[target_ids[i]] = source[source_ids[i]] for i in [0, size). Both have one type and row
// length.
struct CopyRows {
  Rows source;
  int64_t num_source;
  RowIds source_ids;
  int64_t size;
  MutableRows target;
  int64_t num_target;
  RowIds target_ids;
};

// Throws invalid_argument if an id is out of range or a target row appears twice; some rows may
// have been written by then.
void copy_rows(const CopyRows& task, int num_threads);

}  // namespace gnnscale
