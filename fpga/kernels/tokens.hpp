// What the processes of the aggregate engine hand to each other.
#pragma once

#include "gnnscale_fpga/batch.hpp"
#include "gnnscale_fpga/dataflow.hpp"
#include "gnnscale_fpga/design.hpp"

namespace gnnscale::fpga {

// One word of a source row, on its way to all scatter PEs.
struct Row {
  Word value;
  int32_t source;
};

// The same in the backward pass, with the destination's sum of the forward pass
// beside its gradient.
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
  bool end;  // of the pass; its source is the last one
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

// Rows of a block are laid out in multiples of so many, so that each gather PE
// has as many.
constexpr int kRowMultiple = 16;
constexpr int padded(int rows) { return (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

}  // namespace gnnscale::fpga
