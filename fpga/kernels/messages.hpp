// Messages between the processes of a compute unit, and their task descriptions.
#pragma once

#include <type_traits>

#include "gnnscale_fpga/batch.hpp"
#include "gnnscale_fpga/dataflow.hpp"
#include "gnnscale_fpga/design.hpp"
#include "gnnscale_fpga/dropout.hpp"

namespace gnnscale::fpga {

// Operation of the two engines on a stage. The same engines serve all three.
enum class Mode {
  forward,           // aggregate, then multiply with the weights
  weight_gradients,  // multiply aggregated rows with gradients; nothing is aggregated
  backward           // multiply gradients with the weights, then aggregate
};

// Activation of a product: update and dropout. Dropout does not scale kept values: rows stay as
// they leave, and gradients as they arrive.
struct Activation {
  bool activates;
  bool drops;
  uint32_t drop;  // probability in 1/65536
  uint64_t key;   // key of the layer in this step
};

// Location of aggregated rows kept for the gradients of weights: the first parts on the chip, the
// remaining parts in device memory, each word of all rows contiguous.
struct Kept {
  int chip;     // word in each bank
  int parts;    // parts on the chip
  int outside;  // word in `scratch`
};

// Description of a stage or of one of its tiles, sent to every process.
struct Task {
  Mode mode;
  // The aggregate engine.
  int passes;    // words of a row, one word of all rows after the other; 0: idle
  int incoming;  // rows that arrive at the scatter PEs in each pass
  int own;       // aggregated rows, or gradient rows, that are copied and not scattered
  int sums;      // rows of each gather PE
  int unclear;   // sums of each gather PE to clear first
  int edges;     // word in `edges`
  int edge_words;
  // The update engine.
  int slots;  // slots of a row: 2 if own features are kept next to the sum of neighbors
  int words_in;
  int words_out;
  int num_rows;    // rows to multiply
  int first_row;   // first row of the tile
  int stage_rows;  // output rows of the full stage
  int weights;     // word in `weights` and `gradients`
  bool adds;       // add to the gradients of earlier groups
  // Rows.
  bool hidden;   // whether source rows are the previous stage's output rows, on the chip
  int features;  // word of the source rows in `features` otherwise
  int num_sources;
  float source_scale;  // dropout scale of source rows and their gradients
  int below;           // word of the source rows in each bank
  int rows;            // word of the output rows in each bank
  Kept kept;
  int vertices;    // word of the tile's ids in `batch`
  Activation how;  // activation of the output rows; backward, of the source rows
};

// Returns the parts of the aggregated rows: a word of each row, slot by slot of each column.
inline int parts_of(const Task& task) { return task.words_in * task.slots; }

// Returns the slot of a part. There are one or two slots, so this needs no division.
inline int slot_of(const Task& task, int part) { return task.slots == 2 ? part % 2 : 0; }
inline int column_of(const Task& task, int part) { return task.slots == 2 ? part / 2 : part; }

// Returns the first weight row of a part: parts are ordered by column, then slot; weights by slot,
// then column.
inline int weights_row(const Task& task, int part) {
  return (slot_of(task, part) * task.words_in + column_of(task, part)) * kLanes;
}

// One word of a row, sent to all scatter PEs.
struct Row {
  Word value;
  int32_t source;
};

// A row word with the sum gathered by the forward pass next to its gradient.
struct RowWithSum : Row {
  Word gathered;
};

// An edge, sent to its scatter PE.
struct Edge {
  int32_t source;
  uint32_t destination;
  float weight;
  bool end;  // end of the pass
};

// A request of a scatter PE's edges for a row.
struct Need {
  int32_t source;
  bool skips;  // no edges of this row, nor of the rows before
  bool end;    // end of the pass; its source is the last one
};

// A word, sent to the gather PE of its destination.
struct Message {
  Word value;
  uint32_t destination;
  bool end;  // end of the pass
};

// A gradient whose derivative the gather PE computes, since it has the source's row of the forward
// pass.
struct MessageWithSum : Message {
  Word gathered;
  float weight;
  bool own;  // to be added unchanged
};

template <class Functions>
using RowOf = std::conditional_t<Functions::kGradientReadsRows, RowWithSum, Row>;
template <class Functions>
using MessageOf = std::conditional_t<Functions::kGradientReadsRows, MessageWithSum, Message>;

// A word of a product, sent to the bank of its row.
struct Product {
  Word value;
  Draws draws;     // for dropout
  int32_t row;     // row in the bank
  int32_t column;  // word of the row
  bool first;      // whether this is the first part
  bool last;
};

// Rows of a block are padded to multiples of this, so that gather PEs have equal numbers of rows.
constexpr int kRowMultiple = 16;
constexpr int padded(int rows) { return (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }

// Returns a bank's rows out of `rows` padded ones: row v is in bank v modulo kBanks.
template <class D>
constexpr int rows_of_bank(int rows, int bank) {
  return (rows - bank + D::kBanks - 1) / D::kBanks;
}

}  // namespace gnnscale::fpga
