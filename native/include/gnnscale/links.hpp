// Link prediction: negative sampling and the split of edges.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Returns `count` negative vertices for each of `edges`, drawn uniformly and independently: pure
// functions of (seed, step, edge, index). Row e of the result belongs to edge e.
Array<int64_t> draw_negatives(RowIds edges, int64_t num_edges, int64_t count, int64_t num_vertices,
                              uint64_t seed, uint64_t step, int num_threads);

// Returns a uniform number in (0, 1) for each pair of vertices, a pure function of (seed, first,
// second).
Array<double> draw_of_pairs(RowIds first, RowIds second, int64_t num_pairs, uint64_t seed,
                            int num_threads);

}  // namespace gnnscale
