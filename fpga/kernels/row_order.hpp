// In which order a bank of rows is read and written: the orders in which other
// processes hand out and take what belongs to its rows.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// The words of a stage's rows in a bank, one of all rows after the other.
struct Walk {
  int first;  // word
  int rows;   // in the bank
  int row_stride;
  int stride;  // from one word of a row to the next
  int times;   // that each word of all rows is walked
  int left;    // steps
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

// Source rows, `passes` words of them: those of the tile on the way back.
template <class D>
Walk walk_sources(const Task& task, int bank, int num_rows) {
  const int first = task.below + task.first_row / D::kBanks * task.words_in;
  return {first, rows_of_bank<D>(num_rows, bank), task.words_in, 1, 1, task.passes};
}

// Aggregated rows, every `step`th part of them from `part` on.
template <class D>
Walk walk_kept(const Task& task, int bank, int num_rows, int times, int part, int step) {
  const int part_words = words_of(padded(task.stage_rows), D::kBanks);
  const int first = task.kept.chip + part * part_words + task.first_row / D::kBanks;
  const int num_parts = (task.kept.parts - part + step - 1) / step;
  return {first, rows_of_bank<D>(num_rows, bank), 1, step * part_words, times, num_parts};
}

// Gradients of the output rows, word by word of those that the array's slices
// take at once. Of these, so many are in the same bank.
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

// The same on the way back: part by part of the aggregated rows, a group of rows
// that take turns after the other, word by word of all of these.
template <class D>
struct GroupsWalk {
  int num_rows, first_of_bank, group_rows, words_out;
  int group = 0, word = 0, row = 0;  // `row` is the place in the bank
  int left;

  GroupsWalk(const Task& task, int bank)
      : num_rows(rows_of_bank<D>(padded(task.num_rows), bank)),
        first_of_bank(bank),
        group_rows(D::kRows * turns_of<D>(task)),
        words_out(task.words_out),
        left(parts_of(task) * num_rows * task.words_out) {}
  // The first place in the bank of the group's rows, and the end.
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
