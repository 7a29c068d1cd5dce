// A sampled block's edges in the order in which a streaming kernel reads them.
//
// The kernel reads one row of features after the other and adds each, scaled, to rows of a buffer.
// The buffer holds a tile of the destinations, so there is a list of edges for each tile; every
// list has at least one entry of every source, and its first one tells the kernel to read on.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// What becomes of a destination's own row: it is not read, added to the neighbours' sum with
// self_scale, or kept beside it.
enum class OwnRow : int { none = 0, add = 1, concat = 2 };

// A block in compressed sparse columns, whose destinations are the first of its sources, and what
// is wanted of it. A weight or a scale that is not given counts as 1.
struct Arrange {
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst, num_src;
  const int32_t* destinations;  // [num_destinations] below num_dst, in the kernel's order
  int64_t num_destinations;
  OwnRow own_row;
  int64_t tile_rows;               // destinations of a tile, at most kMaxTileRows
  int64_t backward_tile_rows = 0;  // sources of a tile of the transpose, 0 for no transpose
  int64_t num_banks = 1;           // that hold the buffer's rows, row i in bank i modulo so many
  const float* weights = nullptr;  // [num_edges], weight_stride apart
  int64_t weight_stride = 1;
  const float* dst_scale = nullptr;   // [num_dst]
  const float* self_scale = nullptr;  // [num_dst]
};

// An edge has its weight's bits above these 32.
inline constexpr uint64_t kFirstEntry = uint64_t{1} << 31;
inline constexpr uint64_t kNullEdge = kFirstEntry - 1;  // a destination that there is not, weight 0
// A word of the kernel's memory has so many edges.
inline constexpr int64_t kWordEdges = 8;
inline constexpr int64_t kMaxTileRows = int64_t{1} << 30;
inline constexpr int64_t kMaxBanks = 256;

struct EdgeTiles {
  Array<uint64_t> edges;
  Array<int64_t> tiles;  // [num_tiles, 3] first word, words and destination rows of each tile
};

struct Arranged {
  Array<int32_t> sources;
  EdgeTiles forward;
  EdgeTiles backward;  // empty if there is to be none
};

// Throws invalid_argument if a destination comes twice, or where places take more than 31 bits.
// What docs say of the order is in gnnscale/ops/_native.pyi.
Arranged arrange_block(const Arrange& task);

}  // namespace gnnscale
