// The update engine's systolic array: m multiply-accumulate units, kRows rows of
// 16. It multiplies blocks of matrices (HitGNN, section V-C): one step a cycle,
// in which each row multiplies one value with a word of 16.
//
// There is one array, for products with the weights and for both gradients.
#pragma once

#include "kernels/feed.hpp"

namespace gnnscale::fpga {

// The sums of the array: for each of its rows as many as an output row has
// words, or as take turns.
template <class D>
constexpr int sums_of_row() {
  return D::kMaxWordsOut > 2 * D::kMaxTurns ? D::kMaxWordsOut : 2 * D::kMaxTurns;
}
template <class D>
using Sums = Word[D::kRows][sums_of_row<D>()];

// What the array makes of a block to the left and one to the right.
struct Steps {
  Mode mode;
  int lanes;    // of the left words, or steps of the right block's rows
  int turns;    // of sums
  int sets;     // of sums of a word
  int words;    // of the right block's rows that are multiplied one after the other
  int column;   // on the way back: word of the weights' rows; for their gradients: lane
  int before;   // steps that were made before, for the gradients of weights
  bool begins;  // the sums
};

// One step: sums[row][at] += values[row] * words[slice of the row].
template <class D>
void step(const float (&values)[D::kRows], const Word (&words)[D::kSlices], bool begins, int at,
          Sums<D>& sums) {
#pragma HLS inline
  for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
    Word& sum = sums[row][at];
    for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      const float before = begins ? 0.0F : sum.lane[lane];
      sum.lane[lane] = before + values[row] * words[row / D::kSliceRows].lane[lane];
    }
  }
}

// Multiplies two blocks, the values of a left word with words of the right one:
// forward   sums[row][turn, j]  += left[turn, row].lane[i] * right[i][j]
// weights   sums[row][turn, j]  += left[i, slice].lane[row] * right[i, slice][j]
// backward  sums[row][turn, i]  += left[turn, row].lane[i] * right[.][column].lane[i]
template <class D>
void multiply_blocks(const Steps& steps, const Left<D>& left, const Right<D>& right,
                     Sums<D>& sums) {
#pragma HLS inline off
  const bool transposes = steps.mode == Mode::weight_gradients;
lanes:
  for (int i = 0; i < steps.lanes; ++i) {
  turns:
    for (int turn = 0; turn < (transposes ? 1 : steps.turns); ++turn) {
    words:
      for (int j = 0; j < steps.words; ++j) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter distance = 8 true
        float values[D::kRows];
        Word words[D::kSlices];
        for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
          values[row] = transposes ? left[i * D::kSlices + row / D::kSliceRows]
                                         .lane[steps.column + row % D::kSliceRows]
                                   : left[turn * D::kRows + row].lane[i];
        }
        for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
          for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
            words[slice].lane[lane] =
                steps.mode == Mode::backward
                    ? right[lane][steps.column].lane[i]
                    : right[transposes ? i * D::kSlices + slice : i][j].lane[lane];
          }
        }
        const int number = steps.before + i;  // of a step that adds another vertex
        const bool first = transposes ? number < steps.turns : steps.begins && i < steps.sets;
        const int sums_before = (transposes ? number % steps.turns : turn) * steps.sets;
        const int at = (sums_before + i % steps.sets) * steps.words + j;
        step<D>(values, words, first, at, sums);
      }
    }
  }
  const int cycles = steps.lanes * (transposes ? 1 : steps.turns) * steps.words;
  count(Count::multiplying, cycles);
  clock_cycle(cycles);
}

// Products of rows with the weights, forward, or with these transposed, on the
// way back. The sums of each group of rows leave while the next are made.
template <class D>
void multiply_weights(const Task& task, Blocks<Left<D>>& lefts, Blocks<Right<D>>& rights,
                      Blocks<Sums<D>>& out) {
  const bool forward = task.mode == Mode::forward;
  const int turns = turns_of<D>(task);
  const int sets = sets_of<D>(task);
  const int words = forward ? task.words_out : 1;
  const int blocks = forward ? 1 : task.words_out;
  const int groups = words_of(padded(task.num_rows), turns * D::kRows);
  for (int part = 0; part < parts_of(task); ++part) {
    ReadLock<Right<D>> right(rights);
    for (int group = 0; group < groups; ++group) {
      WriteLock<Sums<D>> sums(out);
      for (int block = 0; block < blocks; ++block) {
        ReadLock<Left<D>> left(lefts);
        multiply_blocks<D>({task.mode, kLanes, turns, sets, words, block, 0, block == 0}, left,
                           right, sums);
      }
    }
  }
}

// Gradients of weights: dW = A^T dZ. Each slice adds up its vertices.
template <class D>
void multiply_rows(const Task& task, Blocks<Left<D>>& lefts, Blocks<Right<D>>& rights,
                   Blocks<Sums<D>>& out) {
  constexpr int kSteps = kLanes / D::kSlices;
  const int steps = padded(task.num_rows) / D::kSlices;
  const int turns = min_of(turns_of<D>(task), steps);
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    const int lane = block % (kLanes / D::kSliceRows) * D::kSliceRows;
    WriteLock<Sums<D>> sums(out);
    for (int before = 0; before < steps; before += kSteps) {
      ReadLock<Left<D>> left(lefts);
      ReadLock<Right<D>> right(rights);
      multiply_blocks<D>({task.mode, kSteps, turns, 1, task.words_out, lane, before, false}, left,
                         right, sums);
    }
  }
}

template <class D>
void multiply(Task task, Blocks<Left<D>>& lefts, Blocks<Right<D>>& rights, Blocks<Sums<D>>& out) {
  if (task.mode == Mode::weight_gradients) {
    multiply_rows<D>(task, lefts, rights, out);
  } else {
    multiply_weights<D>(task, lefts, rights, out);
  }
}

}  // namespace gnnscale::fpga
