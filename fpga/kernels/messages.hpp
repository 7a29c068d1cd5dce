// What the processes of a compute unit hand to each other, and what they are
// asked for.
#pragma once

#include <type_traits>

#include "gnnscale_fpga/batch.hpp"
#include "gnnscale_fpga/dataflow.hpp"
#include "gnnscale_fpga/design.hpp"
#include "gnnscale_fpga/dropout.hpp"

namespace gnnscale::fpga {

// What the two engines do with a stage. They are the same engines in all three.
enum class Mode {
  forward,           // aggregate, then multiply with the weights
  weight_gradients,  // multiply aggregated rows with gradients; nothing is aggregated
  backward           // multiply gradients with the weights, then aggregate
};

// What becomes of a product: update and dropout. What dropout keeps is not yet scaled: rows are as
// they leave, and gradients as they come.
struct Activation {
  bool activates;
  bool drops;
  uint32_t drop;  // probability in 1/65536
  uint64_t key;   // of the layer in this step
};

// Where aggregated rows are kept for the gradients of the weights: their first
// parts on the chip, the others in device memory, each word of all rows in one
// piece.
struct Kept {
  int chip;     // word in each bank
  int parts;    // on the chip
  int outside;  // word in `scratch`
};

// What every process is told of a stage, or of a tile of it.
struct Task {
  Mode mode;
  // The aggregate engine.
  int passes;    // words of a row, one of all rows after the other; 0: it rests
  int incoming;  // rows that come to the scatter PEs in each pass
  int own;       // aggregated rows, or rows of gradients, that are copied and not scattered
  int sums;      // rows of each gather PE
  int unclear;   // sums of each gather PE that have to be cleared before
  int edges;     // word in `edges`
  int edge_words;
  // The update engine.
  int slots;  // sums of a row: 2 where its own features are kept beside its neighbours'
  int words_in;
  int words_out;
  int num_rows;    // that are multiplied
  int first_row;   // of the tile
  int stage_rows;  // output rows of the whole stage
  int weights;     // word in `weights` and `gradients`
  bool adds;       // to the gradients of the groups before
  // Rows.
  bool hidden;   // source rows are the output rows of the stage before, on the chip
  int features;  // word of the source rows in `features` otherwise
  int num_sources;
  float source_scale;  // of source rows and their gradients, which dropout asks for
  int below;           // word of the source rows in each bank
  int rows;            // word of the output rows in each bank
  Kept kept;
  int vertices;    // word of the tile's ids in `batch`
  Activation how;  // of the output rows; on the way back of the source rows
};

// Parts of the aggregated rows: a word of each row, slot by slot of each column.
inline int parts_of(const Task& task) { return task.words_in * task.slots; }

// Of a part: its slot, and its word of the row. There are one or two slots, so
// that this is no division.
inline int slot_of(const Task& task, int part) { return task.slots == 2 ? part % 2 : 0; }
inline int column_of(const Task& task, int part) { return task.slots == 2 ? part / 2 : part; }

// The first row of a part's weights: parts come slot by slot of each column,
// weights lie column by column of a slot.
inline int weights_row(const Task& task, int part) {
  return (slot_of(task, part) * task.words_in + column_of(task, part)) * kLanes;
}

// One word of a row, on its way to all scatter PEs.
struct Row {
  Word value;
  int32_t source;
};

// With what the forward pass has gathered beside its gradient.
struct RowWithSum : Row {
  Word gathered;
};

// An edge on its way to its scatter PE.
struct Edge {
  int32_t source;
  uint32_t destination;
  float weight;
  bool end;  // of the pass
};

// A row that a scatter PE has edges of.
struct Need {
  int32_t source;
  bool skips;  // it has none, nor of the rows before
  bool end;    // of the pass; its source is the last one
};

// A word on its way to the gather PE of its destination.
struct Message {
  Word value;
  uint32_t destination;
  bool end;  // of the pass
};

// A gradient whose derivative the gather PE takes, which has the source's row
// of the forward pass.
struct MessageWithSum : Message {
  Word gathered;
  float weight;
  bool own;  // to be added as it is
};

template <class Functions>
using RowOf = std::conditional_t<Functions::kGradientReadsRows, RowWithSum, Row>;
template <class Functions>
using MessageOf = std::conditional_t<Functions::kGradientReadsRows, MessageWithSum, Message>;

// A word of a product, on its way to the bank of its row.
struct Product {
  Word value;
  Draws draws;     // for dropout
  int32_t row;     // in the bank
  int32_t column;  // word of the row
  bool first;      // part of it
  bool last;
};

// Rows of a block are laid out in multiples of so many, so that each gather PE
// has as many.
constexpr int kRowMultiple = 16;
constexpr int padded(int rows) { return (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }

// Row v is in bank v modulo kBanks: of `rows` padded ones, so many are in a bank.
template <class D>
constexpr int rows_of_bank(int rows, int bank) {
  return (rows - bank + D::kBanks - 1) / D::kBanks;
}

}  // namespace gnnscale::fpga
