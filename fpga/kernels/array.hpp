// Units of the array's process: block filling, steps, and draining of sums. Each is a few counters
// and performs one action a cycle.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// Left block: a word for each row of the array and each interleaved row. For the gradients of
// weights, a word of sixteen rows.
template <class D>
using Left = Word[2][max_of(D::kMaxTurns, kLanes / D::kRows)][D::kRows];
// Right block: sixteen rows of the weights.
template <class D>
using Right = Word[2][kLanes][D::kMaxWordsOut];
// The sums of each row of the array.
template <class D>
using Sums = Word[2][D::kRows][sums_of_row<D>()];

// State of a double buffer: the half being filled, the half used next, and whether each is full.
struct Halves {
  bool full[2] = {false, false};
  int fills = 0;
  int uses = 0;

  bool has_room() const { return !full[fills]; }
  bool is_ready() const { return full[uses]; }
  void filled() {
    full[fills] = true;
    fills = 1 - fills;
  }
  void used() {
    full[uses] = false;
    uses = 1 - uses;
  }
};

// Fills the left blocks, kLefts rows a cycle.
template <class D>
struct LeftFiller {
  Blocks<D> blocks;
  GroupCounter<D> group;
  int column = 0;
  int at = 0;     // row of the block
  int remaining;  // remaining blocks

  explicit LeftFiller(const Task& task)
      : blocks(task), group(blocks), remaining(blocks.num_lefts()) {}
  void step(Stream<Word> (&in)[D::kLefts], Left<D>& out, Halves& halves) {
#pragma HLS inline
    bool ready = remaining > 0 && halves.has_room();
    for (int i = 0; i < D::kLefts; ++i) {
#pragma HLS unroll
      ready = ready && !in[i].empty();
    }
    if (!ready) return;
    for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
      if (row / D::kLefts != at % D::kRows / D::kLefts) continue;
      out[halves.fills][at / D::kRows][row] = in[row % D::kLefts].read();
    }
    at += D::kLefts;
    if (at < group.rows()) return;
    at = 0;
    --remaining;
    halves.filled();
    if (++column < blocks.columns) return;
    column = 0;
    group.next();
  }
};

// Fills the right blocks, one word a cycle.
template <class D>
struct RightFiller {
  int words, remaining;  // words of a row; remaining blocks
  int row = 0, word = 0;

  explicit RightFiller(const Task& task)
      : words(task.words_out),
        remaining(task.mode == Mode::weight_gradients ? 0 : parts_of(task)) {}
  void step(Stream<Word>& in, Right<D>& out, Halves& halves) {
#pragma HLS inline
    if (remaining == 0 || !halves.has_room() || in.empty()) return;
    const Word value = in.read();
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      if (i == row) out[halves.fills][i][word] = value;
    }
    if (++word < words) return;
    word = 0;
    if (++row < kLanes) return;
    row = 0;
    --remaining;
    halves.filled();
  }
};

// Sequences the steps of the array.
template <class D>
struct Stepper {
  Blocks<D> blocks;
  bool backward;
  int lane = 0;  // lane of the left words, or step of the right rows
  int turn = 0;
  int word = 0;
  int column = 0;  // backward: word of the weights' rows
  int group = 0;
  int part = 0;          // or block of the gradients of weights
  int steps_before = 0;  // steps before this left block, for the gradients of weights
  int cycle = 0;         // cycle of the turns, for the gradients of weights
  int set = 0;

  explicit Stepper(const Task& task) : blocks(task), backward(task.mode == Mode::backward) {}

  bool done() const { return part == blocks.parts; }
  // Returns whether the step starts new sums.
  bool begins() const {
    if (blocks.transposes) return steps_before + lane < blocks.turns;
    return column == 0 && lane < blocks.sets;
  }
  // Returns the index of the step's sums in each row.
  int sum() const {
    return ((blocks.transposes ? cycle : turn) * blocks.sets + set) * blocks.words + word;
  }
  void next(Halves& lefts, Halves& rights, Halves& sums) {
#pragma HLS inline
    if (++word < blocks.words) return;
    word = 0;
    if (!blocks.transposes && ++turn < blocks.turns) return;
    turn = 0;
    cycle = cycle + 1 == blocks.turns ? 0 : cycle + 1;
    set = set + 1 == blocks.sets ? 0 : set + 1;
    if (++lane < blocks.lanes) return;
    lane = 0;
    lefts.used();
    steps_before += blocks.lanes;
    if (blocks.transposes ? steps_before < blocks.steps : ++column < blocks.columns) return;
    column = steps_before = cycle = set = 0;
    sums.filled();
    if (!blocks.transposes && ++group < blocks.groups) return;
    group = 0;
    if (!blocks.transposes) rights.used();
    ++part;
  }
};

// Drains the sums of a block: forward a word of kDrainStep rows a cycle, backward a word of one
// row, and for the gradients of weights a word of each slice.
template <class D>
struct Drain {
  Blocks<D> blocks;
  GroupCounter<D> group;
  Mode mode;
  int turn = 0, row = 0, word = 0, set = 0;
  int settles;    // cycles until the first sums are complete
  int remaining;  // remaining blocks

  explicit Drain(const Task& task)
      : blocks(task), group(blocks), mode(task.mode), remaining(blocks.num_sums()) {
    settle();
  }

  // Forward, the first sums of a block are complete kSumWindow cycles before the last.
  void settle() { settles = mode == Mode::forward ? 0 : kSumWindow; }
  bool done() const { return remaining == 0; }
  int sum() const {
    if (mode == Mode::backward) return row / D::kRows * blocks.sets + set;
    return turn * blocks.words + word;
  }
  // Returns whether row `at` of the array is drained in this cycle.
  bool takes(int at) const {
    if (mode == Mode::forward) return at / D::kDrainStep == row / D::kDrainStep;
    if (mode == Mode::backward) return at == row % D::kRows;
    return at % D::kSliceRows == row;
  }
  int stream(int at) const {
    if (mode == Mode::forward) return at % D::kDrainStep;
    return mode == Mode::backward ? 0 : at / D::kSliceRows;
  }
  int num_streams() const {
    if (mode == Mode::forward) return D::kDrainStep;
    return mode == Mode::backward ? 1 : D::kSlices;
  }
  void next(Halves& sums) {
#pragma HLS inline
    bool complete = false;
    if (mode == Mode::forward) {
      // Order: interleaved row, then word, then the rows of the array.
      row += D::kDrainStep;
      const int rows = min_of(D::kRows, group.rows() - turn * D::kRows);
      if (row >= rows) {
        row = 0;
        if (++word == blocks.words) {
          word = 0;
          complete = ++turn * D::kRows >= group.rows();
        }
      }
    } else if (mode == Mode::backward) {
      if (++row == group.rows()) {
        row = 0;
        complete = ++set == blocks.sets;
      }
    } else if (++word == blocks.words) {
      word = 0;
      if (++row == D::kSliceRows) {
        row = 0;
        complete = ++turn == blocks.turns;
      }
    }
    if (!complete) return;
    turn = set = 0;
    settle();
    --remaining;
    sums.used();
    group.next();
  }
};

}  // namespace gnnscale::fpga
