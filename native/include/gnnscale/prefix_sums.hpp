// Prefix sums over an order of vertices, and the vertices of each member.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/hotness.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Prefix sums over vertices in a given order; a vertex contributes values[v] and its cache bytes.
struct PrefixSums {
  RowIds order;
  int64_t num_ordered;
  int64_t num_vertices;
  const int32_t* values;  // [num_vertices]; may be null
  CacheBytes bytes;
  bool falling;  // whether values descend along the order, so that the tail need not be read
  const float* reals = nullptr;  // [num_vertices], instead of values; may be null
};

// sums[i] is the sum of the first i * every vertices of the order, the last entry the total:
// ceil(num_ordered / every) + 1 sums. Throws invalid_argument if the order has an id that is no
// vertex, TopologyError if `bytes.offsets` are damaged.
void running_sums(const PrefixSums& task, int64_t every, int64_t* sums, int num_threads,
                  const Poll& poll = {});
// Prefix sums of `task.reals`. The order of additions does not depend on the number of threads.
void running_sums(const PrefixSums& task, int64_t every, double* sums, int num_threads,
                  const Poll& poll = {});

// Splits the order into one list of vertices for each member, in the order's sequence. Skips
// vertices of member -1; throws invalid_argument for any other member out of range.
template <typename Vertex>
std::vector<Array<Vertex>> split_by_member(const Vertex* order, const int16_t* member,
                                           int64_t num_ordered, int64_t num_members,
                                           int num_threads, const Poll& poll = {});

}  // namespace gnnscale
