// The memory of rows: output rows of all stages, and aggregated rows, which the
// gradients of weights take. Row v of a stage is in bank v modulo kBanks. Only
// its own process touches a bank, and it reads one word and writes one word in a
// cycle, as memory with two ports can.
#pragma once

#include "gnnscale_fpga/dropout.hpp"
#include "kernels/feed.hpp"

namespace gnnscale::fpga {

template <class D>
using Bank = Word[D::kRowWords / D::kBanks];

template <class Functions>
Word activated(const Word& product, const Activation& how, uint64_t vertex, int column) {
  Word out = product;
  if (how.activates) {
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      out.lane[i] = Functions::update(product.lane[i]);
    }
  }
  return how.drops ? dropped(out, how.key, vertex, column, how.drop, how.scale) : out;
}

// The gradient of what came before update and dropout, of that of the row.
template <class Functions>
Word before_activation(const Word& gradient, const Word& row, const Activation& how,
                       float unscaled) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float value = row.lane[i];
    const bool open = !how.drops || value != 0;  // what was dropped is 0
    const float passed = how.activates
                             ? Functions::update_gradient(value * unscaled, gradient.lane[i])
                             : gradient.lane[i];
    const float scaled = passed * how.scale;
#pragma HLS bind_op variable = scaled op = fmul impl = fabric
    out.lane[i] = open ? scaled : 0.0F;
  }
  return out;
}

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

// Forward: hands out source rows, keeps aggregated rows, and adds up the
// products of the output rows. The last product is followed by update and
// dropout.
template <class D, class Functions>
void add_products(Task task, int bank, Bank<D>& rows, Stream<Word>& bias, Stream<Product>& products,
                  Stream<Word>& keeping, Stream<Word>& stored) {
  Word begins[D::kMaxWordsOut];
  for (int j = 0; j < task.words_out; ++j) {
#pragma HLS pipeline II = 1
    begins[j] = bias.read();
    clock_cycle();
  }
  const int num_rows = padded(task.num_rows);
  const int first = task.rows + task.first_row / D::kBanks * task.words_out;
  Task all = task;
  all.first_row = 0;  // each tile reads all source rows
  Walk reads = walk_sources<D>(all, bank, task.hidden ? task.num_sources : 0);
  Walk keeps = walk_kept<D>(task, bank, num_rows, 1, 0, 1);
  int adding = parts_of(task) * task.words_out * rows_of_bank<D>(num_rows, bank);
  while (reads.left > 0 || keeps.left > 0 || adding > 0) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = rows type = inter false  // a word's next product is far away
    const bool only_adds = reads.left == 0 && keeps.left == 0;
    if (adding > 0 && (only_adds || !products.empty())) {
      const Product product = products.read();
      Word& row = rows[first + product.row * task.words_out + product.column];
      const Word sum = (product.first ? begins[product.column] : row) + product.value;
      row =
          product.last ? activated<Functions>(sum, task.how, product.vertex, product.column) : sum;
      --adding;
    } else if (keeps.left > 0 && !keeping.empty()) {
      rows[keeps.word()] = keeping.read();
      keeps.next();
    } else if (reads.left > 0 && !stored.full()) {
      stored.write(rows[reads.word()]);
      reads.next();
    }
    clock_cycle();
  }
}

// For the gradients of weights: hands out aggregated rows, and the gradients of
// the output rows, both as often as the array begins anew. Its slices take a
// word of a gradient each; rows of these that are in the same bank come
// together.
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

template <class D>
void send_rows(Task task, int bank, const Bank<D>& rows, Stream<Word>& gradients,
               Stream<Word>& kept) {
  constexpr int kBlocks = kLanes / D::kSliceRows;
  Walk aggregated = walk_kept<D>(task, bank, padded(task.num_rows), kBlocks, 0, 1);
  SlicesWalk<D> walk(task, bank, parts_of(task) * kBlocks);
  while (aggregated.left > 0 || walk.left > 0) {
#pragma HLS pipeline II = 1
    if (walk.left > 0 && (aggregated.left == 0 || !gradients.full())) {
      gradients.write(rows[task.rows + walk.place()]);
      walk.next();
    } else if (aggregated.left > 0 && (walk.left == 0 || !kept.full())) {
      kept.write(rows[aggregated.word()]);
      aggregated.next();
    }
    clock_cycle();
  }
}

// Which word of the gradients comes next on the way back: part by part, a group
// of rows after the other, word by word of all of these.
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

// On the way back: hands out the gradients of the output rows, takes those of
// the source rows, and puts them in the place of these, as gradients of what
// came before update and dropout. Where derivatives take them, it hands out
// source rows and aggregated rows as well.
template <class D, class Functions>
void replace_rows(Task task, int bank, Bank<D>& rows, Stream<Word>& returned,
                  Stream<Word>& gradients, Stream<Word>& sources, Stream<Word>& kept) {
  const int tile_rows = D::kPes * task.sums;
  const int read_rows = Functions::kGradientReadsRows ? tile_rows : 0;
  const int kept_rows = Functions::kGradientReadsRows ? task.num_rows : 0;
  const float unscaled = 1.0F / task.how.scale;
  Task all = task;
  all.first_row = 0;  // each tile takes all gradients
  GroupsWalk<D> walk(task, bank);
  Walk returns = walk_sources<D>(task, bank, tile_rows);
  Walk reads = walk_sources<D>(task, bank, read_rows);
  Walk sums = walk_kept<D>(all, bank, kept_rows, 1, task.slots - 1, task.slots);
  while (walk.left > 0 || returns.left > 0 || sums.left > 0) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = rows type = inter false
    const bool only_returns = walk.left == 0 && reads.left == 0 && sums.left == 0;
    if (returns.left > 0 && (only_returns || !returned.empty())) {
      Word& row = rows[returns.word()];
      row = before_activation<Functions>(returned.read(), row, task.how, unscaled);
      returns.next();
    } else if (walk.left > 0 && !gradients.full()) {
      gradients.write(rows[task.rows + walk.place()]);
      walk.next();
    } else if (reads.left > 0 && !sources.full()) {
      sources.write(rows[reads.word()]);
      reads.next();
    } else if (sums.left > 0 && !kept.full()) {
      kept.write(rows[sums.word()]);
      sums.next();
    }
    clock_cycle();
  }
}

// The process of a bank.
template <class D, class Functions>
void keep_rows(Task task, int bank, Bank<D>& rows, Stream<Word>& bias, Stream<Product>& products,
               Stream<Word>& keeping, Stream<Word>& stored, Stream<Word>& to_right,
               Stream<Word>& kept, Stream<Word>& returned, Stream<Word>& to_left,
               Stream<Word>& sources) {
  if (task.mode == Mode::forward) {
    add_products<D, Functions>(task, bank, rows, bias, products, keeping, stored);
  } else if (task.mode == Mode::weight_gradients) {
    send_rows<D>(task, bank, rows, to_right, kept);
  } else {
    replace_rows<D, Functions>(task, bank, rows, returned, to_left, sources, kept);
  }
}

}  // namespace gnnscale::fpga
