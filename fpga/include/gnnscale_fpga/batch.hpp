// Layout of a mini-batch in device memory, written by gnnscale/backend/fpga/layout.py.
#pragma once

#include "gnnscale_fpga/word.hpp"

namespace gnnscale::fpga {

// A mini-batch is a sequence of groups of seeds, each small enough for the on-chip memory. This is
// the first word of each group.
struct Group {
  int32_t stages;      // word of its first stage
  int32_t num_stages;  // inputs first
  int32_t features;    // word of its input rows in `features`, [words_in][num_sources]
  int32_t labels;      // word of its labels: 16 classes a word; or words_out words a
                       // seed
  int32_t num_seeds;
  int32_t num_classes;
  int32_t logits;  // word of its logits in `result`, [num_seeds][words_out]
  int32_t unused[9];
};

// A stage is an aggregation followed by a product: a layer of GCN and GraphSAGE. The second product
// of GIN's perceptron is a stage whose edges are self-loops.
struct Stage {
  int32_t num_sources;  // input rows
  int32_t num_rows;     // output rows
  int32_t words_in;     // words of a source row, and of each slot of an aggregated row
  int32_t words_out;    // words of an output row
  int32_t weights;      // word in `weights` and `gradients`: [slots * words_in *
                        // 16][words_out], then the bias [words_out]
  int32_t flags;        // kActivates, kDrops, kConcatenates
  int32_t dropout;      // probability of dropping in 1/65536; from bit 16 on the
                        // layer's number
  int32_t vertices;     // word of the rows' global ids, 8 a word
  int32_t hidden;       // word of the output rows in each bank of rows
  int32_t kept;         // word of the aggregated rows kept in each bank
  int32_t kept_parts;   // parts kept in the banks: a part is one word of all rows
  int32_t outside;      // word of the remaining parts in `scratch`
  int32_t forward;      // word of its first tile
  int32_t num_forward;  // tiles
  int32_t backward;     // word of its first tile in the backward pass
  int32_t num_backward;
};

// Rows whose sums fit on the chip together, with their incoming edges: output rows of the stage, or
// source rows in the backward pass.
struct Tile {
  int32_t first;  // first row
  int32_t num_rows;
  int32_t edges;      // word in `edges`
  int32_t num_words;  // words of edges
  int32_t unused[12];
};

constexpr int32_t kActivates = 1;     // update() is applied to the product
constexpr int32_t kDrops = 2;         // dropout after it
constexpr int32_t kConcatenates = 4;  // own rows in slot 0, sums in slot 1 (GraphSAGE)

// Options of a run.
constexpr int32_t kTrain = 1;       // compute loss and gradients
constexpr int32_t kGiveLogits = 2;  // write the last stage's rows to `result`
constexpr int32_t kMultilabel = 4;  // binary cross-entropy instead of cross-entropy

// The first word of `result`.
struct Outcome {
  int32_t magic;   // kMagic once the run is complete
  int32_t status;  // one of Status
  int32_t stage;   // stage that the status refers to
  float loss;
  int32_t n, m;  // of the design
  int32_t unused[10];
};

constexpr int32_t kMagic = 0x474e4e53;
enum Status : int32_t { kFine = 0, kTooManyRows = 1, kTooWide = 2, kTooManyStages = 3 };

static_assert(sizeof(Group) == sizeof(Word) && sizeof(Stage) == sizeof(Word));
static_assert(sizeof(Tile) == sizeof(Word) && sizeof(Outcome) == sizeof(Word));

// An edge has 8 bytes, 8 edges a word: destination of its message, first-edge flag of the next
// source, and weight.
constexpr int kEdgesPerWord = 8;
constexpr uint32_t kFirstOfSource = 0x80000000U;
constexpr uint32_t kNoDestination = 0x7fffffffU;

template <class Record>
inline Record record_of(const Word& word) {
  union {
    Word word;
    Record record;
  } both;
  both.word = word;
  return both.record;
}

template <class Record>
inline Word word_of(const Record& record) {
  union {
    Word word;
    Record record;
  } both;
  both.record = record;
  return both.word;
}

}  // namespace gnnscale::fpga
