// Link prediction: vertices that an edge is told apart from, and which edges are held out.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// For each of `edges`, `count` vertices drawn uniformly and independently: pure functions of (seed,
// step, edge, index). Row e of the answer is edge e's.
Array<int64_t> draw_negatives(RowIds edges, int64_t num_edges, int64_t count, int64_t num_vertices,
                              uint64_t seed, uint64_t step, int num_threads);

// A uniform number in (0, 1) for each pair of vertices, a pure function of (seed, first, second).
Array<double> draw_of_pairs(RowIds first, RowIds second, int64_t num_pairs, uint64_t seed,
                            int num_threads);

}  // namespace gnnscale
