// Prefix sums over an order of vertices, and the part of each member.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/hotness.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Vertices in some order, of which each counts as values[v] and the bytes that it takes.
struct PrefixSums {
  RowIds order;
  int64_t num_ordered;
  int64_t num_vertices;
  const int32_t* values;  // [num_vertices], or none
  CacheBytes bytes;
  bool falling;                  // whether values fall along the order: many need not be read
  const float* reals = nullptr;  // [num_vertices] in place of values, or none
};

// sums[i] is the sum of the first i * every vertices of the order, the last one that of all:
// ceil(num_ordered / every) + 1 sums. Throws invalid_argument if the order holds no vertex,
// TopologyError if `bytes.offsets` are damaged.
void running_sums(const PrefixSums& task, int64_t every, int64_t* sums, int num_threads,
                  const Poll& poll = {});
// The same of `task.reals`. Sums are taken in one order, whatever the number of threads.
void running_sums(const PrefixSums& task, int64_t every, double* sums, int num_threads,
                  const Poll& poll = {});

// For each member the vertices of the order that are its own, in the same order. A vertex whose
// member is -1 is left out; throws invalid_argument if it is no other member.
template <typename Vertex>
std::vector<Array<Vertex>> split_by_member(const Vertex* order, const int16_t* member,
                                           int64_t num_ordered, int64_t num_members,
                                           int num_threads, const Poll& poll = {});

}  // namespace gnnscale
