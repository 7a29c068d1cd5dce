// Order of a sampled block's edges for a streaming kernel.
//
// The kernel streams feature rows one after the other and adds each, scaled, to rows of a buffer.
// The buffer holds one tile of the destinations, so each tile has its own edge list. Every list has
// at least one entry for each source; the flag on a source's first entry tells the kernel to read
// the next row.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"

namespace gnnscale {

// Handling of a destination's own row: not read, added to the sum of its neighbors with factor
// self_scale, or concatenated with the sum.
enum class OwnRow : int { none = 0, add = 1, concat = 2 };

// Options of arrange_block, and its block in compressed sparse columns, whose destinations are its
// first sources. A null weight or scale counts as 1.
struct Arrange {
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst, num_src;
  const int32_t* destinations;  // [num_destinations] below num_dst, in the kernel's order
  int64_t num_destinations;
  OwnRow own_row;
  int64_t tile_rows;               // destinations of a tile, at most kMaxTileRows
  int64_t backward_tile_rows = 0;  // sources of a tile of the transpose; 0: no transpose
  int64_t num_banks = 1;           // banks of the buffer; row i is in bank i modulo num_banks
  const float* weights = nullptr;  // [num_edges], with stride weight_stride
  int64_t weight_stride = 1;
  const float* dst_scale = nullptr;   // [num_dst]
  const float* self_scale = nullptr;  // [num_dst]
};

// Flag of a source's first entry. The bits of the edge's weight are the upper 32 bits.
inline constexpr uint64_t kFirstEntry = uint64_t{1} << 31;
inline constexpr uint64_t kNullEdge = kFirstEntry - 1;  // padding: no destination, weight 0
// Edges of a word of the kernel's memory.
inline constexpr int64_t kWordEdges = 8;
inline constexpr int64_t kMaxTileRows = int64_t{1} << 30;
inline constexpr int64_t kMaxBanks = 256;

struct EdgeTiles {
  Array<uint64_t> edges;
  Array<int64_t> tiles;  // [num_tiles, 3] first word, number of words, number of destination rows
};

struct Arranged {
  Array<int32_t> sources;
  EdgeTiles forward;
  EdgeTiles backward;  // empty without a transpose
};

// Throws invalid_argument if a destination appears twice or a row index exceeds 31 bits.
// gnnscale/ops/_native.pyi documents the order.
Arranged arrange_block(const Arrange& task);

}  // namespace gnnscale
