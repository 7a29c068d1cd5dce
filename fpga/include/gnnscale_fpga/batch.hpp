// How a mini-batch lies in device memory. gnnscale/backend/fpga/layout.py
// writes it.
#pragma once

#include "gnnscale_fpga/word.hpp"

namespace gnnscale::fpga {

// A mini-batch is a sequence of groups of seeds, each small enough for the
// memory on the chip. The first word of each group:
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

// A stage is an aggregation and the product after it: a layer of GCN and
// GraphSAGE. The second product of GIN's perceptron is a stage whose edges lead
// from each row to itself.
struct Stage {
  int32_t num_sources;  // rows that are read
  int32_t num_rows;     // rows that are written
  int32_t words_in;     // words of a source row, and of each slot of an aggregated one
  int32_t words_out;    // words of an output row
  int32_t weights;      // word in `weights` and `gradients`: [slots * words_in *
                        // 16][words_out], then the bias [words_out]
  int32_t flags;        // kActivates, kDrops, kConcatenates
  int32_t dropout;      // probability of dropping in 1/65536, and from bit 16 on the
                        // layer's number
  int32_t vertices;     // word of the rows' global ids, 8 a word
  int32_t hidden;       // word of the output rows in each bank of rows
  int32_t kept;         // word of the aggregated rows in each bank for these
  int32_t kept_parts;   // parts of them that are there: a part is a word of all rows
  int32_t outside;      // word of the other parts in `scratch`
  int32_t forward;      // word of its first tile
  int32_t num_forward;  // tiles
  int32_t backward;     // word of its first tile on the way back
  int32_t num_backward;
};

// Rows whose sums fit on the chip together, with the edges that lead to them:
// output rows of the stage, or on the way back source rows.
struct Tile {
  int32_t first;  // row
  int32_t num_rows;
  int32_t edges;      // word in `edges`
  int32_t num_words;  // of edges
  int32_t unused[12];
};

constexpr int32_t kActivates = 1;     // update() is applied to the product
constexpr int32_t kDrops = 2;         // dropout after it
constexpr int32_t kConcatenates = 4;  // own rows are slot 0, sums are slot 1 (GraphSAGE)

// What a run is asked for.
constexpr int32_t kTrain = 1;       // loss and gradients
constexpr int32_t kGiveLogits = 2;  // the last rows, to `result`
constexpr int32_t kMultilabel = 4;  // binary cross-entropy instead of cross-entropy

// The first word of `result`.
struct Outcome {
  int32_t magic;   // kMagic once the run is complete
  int32_t status;  // one of Status
  int32_t stage;   // that the status is about
  float loss;
  int32_t n, m;  // of the design
  int32_t unused[10];
};

constexpr int32_t kMagic = 0x474e4e53;
enum Status : int32_t { kFine = 0, kTooManyRows = 1, kTooWide = 2, kTooManyStages = 3 };

static_assert(sizeof(Group) == sizeof(Word) && sizeof(Stage) == sizeof(Word));
static_assert(sizeof(Tile) == sizeof(Word) && sizeof(Outcome) == sizeof(Word));

// An edge of 8 bytes, 8 in a word: where its message goes, whether it is the
// first edge of the next source, and its weight.
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
