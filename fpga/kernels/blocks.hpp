// Blocking of matrices in the update engine, shared by its processes.
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// Returns the rows interleaved on a row of the array, so that each sum is ready before its next
// addition. Backward, each row is one word wide. For the gradients of weights, steps are
// interleaved instead.
template <class D>
int turns_of(const Task& task) {
  const int rows = padded(task.num_rows);
  if (task.mode == Mode::backward) return min_of(D::kMaxTurns, words_of(rows, D::kRows));
  const int turns = task.words_out >= kSumWindow ? 1 : words_of(kSumWindow, task.words_out);
  return task.mode == Mode::forward ? turns : min_of(turns, rows / D::kSlices);
}

// Returns the partial sums of each word if there are too few rows to interleave in the backward
// pass.
template <class D>
int sets_of(const Task& task) {
  return task.mode == Mode::backward ? words_of(kSumWindow, turns_of<D>(task)) : 1;
}

// Returns the sums that a row of the array holds: the words of an output row, times the interleaved
// rows.
template <class D>
constexpr int sums_of_row() {
  return max_of(D::kMaxWordsOut, 2 * D::kMaxTurns);
}

// Returns the weight row blocks whose gradients are computed together.
template <class D>
int blocks_of(const Task& task) {
  return parts_of(task) * (kLanes / D::kSliceRows);
}

// The blocks of a pass. A left block holds a group of interleaved rows; backward there is one for
// each of their words, and for the gradients of weights it has sixteen rows. A right block holds
// sixteen rows of the weights.
template <class D>
struct Blocks {
  bool transposes;
  int turns, sets;
  int words;    // words multiplied one after the other
  int columns;  // left blocks that share sums
  int lanes;    // lanes of a left block that are multiplied
  int rows;     // padded
  int group_rows, groups;
  int steps;  // steps for the gradients of a block of weights
  int parts;

  explicit Blocks(const Task& task)
      : transposes(task.mode == Mode::weight_gradients),
        turns(turns_of<D>(task)),
        sets(sets_of<D>(task)),
        words(task.mode == Mode::backward ? 1 : task.words_out),
        columns(task.mode == Mode::backward ? task.words_out : 1),
        lanes(transposes ? kLanes / D::kSlices : kLanes),
        rows(padded(task.num_rows)),
        group_rows(transposes ? kLanes : turns * D::kRows),
        groups(words_of(rows, group_rows)),
        steps(rows / D::kSlices),
        parts(transposes ? blocks_of<D>(task) : parts_of(task)) {}

  int num_lefts() const { return parts * groups * columns; }
  int num_sums() const { return transposes ? parts : parts * groups; }
  // Returns the lane of the left words that the array's first row takes, for gradients.
  int lane_of(int part) const { return part % (kLanes / D::kSliceRows) * D::kSliceRows; }
};

// The current group of rows of a process. Each part begins with the first group.
template <class D>
struct GroupCounter {
  int group_rows, all;
  int begin = 0;

  explicit GroupCounter(const Blocks<D>& blocks)
      : group_rows(blocks.group_rows), all(blocks.rows) {}
  int rows() const { return min_of(group_rows, all - begin); }
  void next() { begin = begin + group_rows < all ? begin + group_rows : 0; }
};

}  // namespace gnnscale::fpga
