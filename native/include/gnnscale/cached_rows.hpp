// Rows of a feature matrix of which caches hold copies: which of them hold a vertex's row, reading
// rows from where they are, counting such reads, and filling caches.
#pragma once

#include <cstdint>

#include "gnnscale/limits.hpp"
#include "gnnscale/ranked_slots.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

inline constexpr int64_t kMaxCaches = 1024;

// Which cache holds the row of a vertex. The rows of all caches are numbered one cache after the
// other; a vertex's slot is such a number, or -1 if no cache has its row. Slots and vertices are
// checked as they are read, each once.
struct Slots {
  const int32_t* data;  // [num_vertices]; null if `ranked` has them
  int64_t num_vertices;
  const int64_t* starts;  // [num_caches + 1] number of each cache's first row, and of all rows
  int64_t num_caches;     // at most kMaxCaches
  const RankedSlots* ranked = nullptr;  // of these vertices and starts
};

// out[i] = row of vertex ids[i], from the cache that has it or else from x.
struct GatherCached {
  Gather from_host;
  const Rows* caches;  // of x's type and length
  Slots slots;
};

// Both write the number of vertices found in each cache and, last, in none to
// counts[num_caches + 1]. They throw invalid_argument if a vertex or a slot is none.
void gather_cached(const GatherCached& task, int64_t* counts, int num_threads);
// Vertex i counts weights[i + 1] - weights[i] times, or once where weights is null.
void count_slots(const Slots& slots, const RowIds& vertices, int64_t size, const int64_t* weights,
                 int64_t* counts, int num_threads);

// counts[vertices[i]] += weights[i + 1] - weights[i], or 1 if weights is null; a count stays at
// its type's largest number. Calls with more than one thread may add to the same counts at once.
// Throws invalid_argument if a vertex is none; some may have been counted by then.
void count_uses(const RowIds& vertices, int64_t size, const int64_t* weights, int32_t* counts,
                int64_t num_vertices, int num_threads);

// target[target_ids[i]] = source[source_ids[i]], of the same type and length, for i in [0, size).
struct CopyRows {
  Rows source;
  int64_t num_source;
  RowIds source_ids;
  int64_t size;
  MutableRows target;
  int64_t num_target;
  RowIds target_ids;
};

// Throws invalid_argument if an id is none, or a row would be written twice; some rows may have
// been written by then.
void copy_rows(const CopyRows& task, int num_threads);

}  // namespace gnnscale
