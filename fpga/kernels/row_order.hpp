// Access orders of a bank of rows, which match the order in which other processes send and receive
// the rows' data.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// Walks over the words of a stage's rows in a bank: word j of all rows, then word j + 1.
struct Walk {
  int first;  // first word
  int rows;   // rows in the bank
  int row_stride;
  int stride;  // from one word of a row to the next
  int times;   // repetitions of each word of all rows
  int left;    // remaining steps
  int row = 0, time = 0, base = 0;

  Walk(int first_word, int num_rows, int words_of_row, int words_between, int num_times,
       int num_words)
      : first(first_word),
        rows(num_rows),
        row_stride(words_of_row),
        stride(words_between),
        times(num_times),
        left(num_rows * num_times * num_words) {}
  int word() const { return first + base + row * row_stride; }
  void next() {
    --left;
    if (++row < rows) return;
    row = 0;
    if (++time < times) return;
    time = 0;
    base += stride;
  }
};

// Returns the walk over `passes` words of source rows: backward, the rows of the tile.
template <class D>
Walk walk_sources(const Task& task, int bank, int num_rows) {
  const int first = task.below + task.first_row / D::kBanks * task.words_in;
  return {first, rows_of_bank<D>(num_rows, bank), task.words_in, 1, 1, task.passes};
}

// Returns the walk over every `step`th part of the aggregated rows from `part` on.
template <class D>
Walk walk_kept(const Task& task, int bank, int num_rows, int times, int part, int step) {
  const int part_words = words_of(padded(task.stage_rows), D::kBanks);
  const int first = task.kept.chip + part * part_words + task.first_row / D::kBanks;
  const int num_parts = (task.kept.parts - part + step - 1) / step;
  return {first, rows_of_bank<D>(num_rows, bank), 1, step * part_words, times, num_parts};
}

// Walks over gradients of the output rows, word by word of the rows that the array's slices take
// together, of which this bank has a fixed number.
template <class D>
struct SlicesWalk {
  static constexpr int kTogether = D::kSlices > D::kBanks ? D::kSlices / D::kBanks : 1;
  int num_rows, words_out, left;
  int base = 0, word = 0, row = 0;

  SlicesWalk(const Task& task, int bank, int times)
      : num_rows(rows_of_bank<D>(padded(task.num_rows), bank)),
        words_out(task.words_out),
        left(times * num_rows * task.words_out) {}
  int place() const { return (base + row) * words_out + word; }
  void next() {
    --left;
    if (++row < kTogether) return;
    row = 0;
    if (++word < words_out) return;
    word = 0;
    base = base + kTogether < num_rows ? base + kTogether : 0;
  }
};

// Walks over gradients of the output rows in the backward pass: part by part of the aggregated
// rows, by groups of interleaved rows, word by word of each group.
template <class D>
struct GroupsWalk {
  int num_rows, first_of_bank, group_rows, words_out;
  int group = 0, word = 0, row = 0;  // `row` is the index in the bank
  int left;

  GroupsWalk(const Task& task, int bank)
      : num_rows(rows_of_bank<D>(padded(task.num_rows), bank)),
        first_of_bank(bank),
        group_rows(D::kRows * turns_of<D>(task)),
        words_out(task.words_out),
        left(parts_of(task) * num_rows * task.words_out) {}
  // Returns the first index in the bank of the group's rows, and the end.
  int begin(int number) const {
    return (number * group_rows - first_of_bank + D::kBanks - 1) / D::kBanks;
  }
  int end() const { return min_of(begin(group + 1), num_rows); }
  int place() const { return row * words_out + word; }
  void next() {
    --left;
    if (++row < end()) return;
    if (++word == words_out) {
      word = 0;
      group = end() < num_rows ? group + 1 : 0;
    }
    row = begin(group);
  }
};

}  // namespace gnnscale::fpga
