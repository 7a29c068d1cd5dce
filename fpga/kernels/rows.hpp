// The row memory: output rows of all stages, and aggregated rows, which the gradients of weights
// need. Row v of a stage is in bank v modulo kBanks. Each bank belongs to one process, which reads
// one word and writes one word a cycle, as dual-ported memory allows.
#pragma once

#include "gnnscale_fpga/dropout.hpp"
#include "kernels/row_order.hpp"

namespace gnnscale::fpga {

template <class D>
using Bank = Word[D::kRowWords / D::kBanks];

template <class Functions>
Word activated(const Word& product, const Activation& how, const Draws& draws) {
  Word out = product;
  if (how.activates) {
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      out.lane[i] = Functions::update(product.lane[i]);
    }
  }
  return how.drops ? dropped(out, draws, how.drop) : out;
}

// Returns the gradient before update and dropout, given the row's gradient.
template <class Functions>
Word before_activation(const Word& gradient, const Word& row, const Activation& how) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float value = row.lane[i];
    const bool open = !how.drops || value != 0;  // dropped values are 0
    const float passed =
        how.activates ? Functions::update_gradient(value, gradient.lane[i]) : gradient.lane[i];
    out.lane[i] = open ? passed : 0.0F;
  }
  return out;
}

// Forward: sends source rows, keeps aggregated rows, and accumulates the products of the output
// rows. The last product is followed by update and dropout.
template <class D, class Functions>
void add_products(Task task, int bank, Bank<D>& rows, Stream<Word>& bias, Stream<Product>& products,
                  Stream<Word>& keeping, Stream<Word>& stored) {
  constexpr int kDepth = kIn + kUramRead + kAdd + 2 * kCompare + kWrite;
  Word begins[D::kMaxWordsOut];
#pragma HLS bind_storage variable = begins type = ram_2p impl = lutram
  LOOP(bias_words)
  for (int j = 0; j < task.words_out; ++j) {
    PIPELINED(bias_words, 1, kIn + kWrite);
    begins[j] = bias.read();
  }
  const int num_rows = padded(task.num_rows);
  const int first = task.rows + task.first_row / D::kBanks * task.words_out;
  Task all = task;
  all.first_row = 0;  // each tile reads all source rows
  Walk reads = walk_sources<D>(all, bank, task.hidden ? task.num_sources : 0);
  Walk keeps = walk_kept<D>(task, bank, num_rows, 1, 0, 1);
  int adding = parts_of(task) * task.words_out * rows_of_bank<D>(num_rows, bank);
  LOOP(turns)
  while (reads.left > 0 || keeps.left > 0 || adding > 0) {
    PIPELINED(turns, 1, kDepth);
// The next product of a word arrives a block of the array later.
#pragma HLS dependence variable = rows type = inter false
    const bool only_adds = reads.left == 0 && keeps.left == 0;
    const bool adds = adding > 0 && (only_adds || !products.empty());
    const bool keeps_one = !adds && keeps.left > 0 && !keeping.empty();
    const bool sends = !adds && !keeps_one && reads.left > 0 && !stored.full();
    Product product = {};
    if (adds) product = products.read();
    const int word = first + product.row * task.words_out + product.column;
    Word stored_word = {};
    if (adds || sends) stored_word = rows[adds ? word : reads.word()];
    Word next = {};
    if (adds) {
      const Word sum = (product.first ? begins[product.column] : stored_word) + product.value;
      next = product.last ? activated<Functions>(sum, task.how, product.draws) : sum;
      --adding;
    } else if (keeps_one) {
      next = keeping.read();
    }
    if (adds || keeps_one) rows[adds ? word : keeps.word()] = next;
    if (keeps_one) keeps.next();
    if (sends) {
      stored.write(stored_word);
      reads.next();
    }
  }
}

// Gradients of weights: sends aggregated rows, and the gradients of the output rows, once for each
// restart of the array.
template <class D>
void send_rows(Task task, int bank, const Bank<D>& rows, Stream<Word>& gradients,
               Stream<Word>& kept) {
  constexpr int kDepth = kUramRead + kOut;
  constexpr int kTimes = kLanes / D::kSliceRows;
  Walk aggregated = walk_kept<D>(task, bank, padded(task.num_rows), kTimes, 0, 1);
  SlicesWalk<D> walk(task, bank, parts_of(task) * kTimes);
  LOOP(turns)
  while (aggregated.left > 0 || walk.left > 0) {
    PIPELINED(turns, 1, kDepth);
    const bool sends = walk.left > 0 && (aggregated.left == 0 || !gradients.full());
    const bool keeps = !sends && aggregated.left > 0 && (walk.left == 0 || !kept.full());
    if (!sends && !keeps) continue;
    const Word row = rows[sends ? task.rows + walk.place() : aggregated.word()];
    if (sends) {
      gradients.write(row);
      walk.next();
    } else {
      kept.write(row);
      aggregated.next();
    }
  }
}

// Backward: sends the gradients of the output rows, receives the gradients of the source rows, and
// stores them in place of the source rows, as gradients before update and dropout. If derivatives
// need them, it also sends source rows and aggregated rows.
template <class D, class Functions>
void replace_rows(Task task, int bank, Bank<D>& rows, Stream<Word>& returned,
                  Stream<Word>& gradients, Stream<Word>& sources, Stream<Word>& kept) {
  constexpr int kSources = Functions::kGradientReadsRows ? kMultiply : 0;  // are scaled
  constexpr int kDepth = kIn + kUramRead + kSources + kCompare + kWrite;
  const int tile_rows = D::kPes * task.sums;
  const int read_rows = Functions::kGradientReadsRows ? tile_rows : 0;
  const int kept_rows = Functions::kGradientReadsRows ? task.num_rows : 0;
  Task all = task;
  all.first_row = 0;  // each tile takes all gradients
  GroupsWalk<D> walk(task, bank);
  Walk returns = walk_sources<D>(task, bank, tile_rows);
  Walk reads = walk_sources<D>(task, bank, read_rows);
  Walk sums = walk_kept<D>(all, bank, kept_rows, 1, task.slots - 1, task.slots);
  LOOP(turns)
  while (walk.left > 0 || returns.left > 0 || sums.left > 0) {
    PIPELINED(turns, 1, kDepth);
#pragma HLS dependence variable = rows type = inter false  // a row returns after it was read
    const bool only_returns = walk.left == 0 && reads.left == 0 && sums.left == 0;
    const bool takes = returns.left > 0 && (only_returns || !returned.empty());
    const bool sends = !takes && walk.left > 0 && !gradients.full();
    const bool sends_source = !takes && !sends && reads.left > 0 && !sources.full();
    const bool sends_sum = !takes && !sends && !sends_source && sums.left > 0 && !kept.full();
    if (!takes && !sends && !sends_source && !sends_sum) continue;
    const int word = takes          ? returns.word()
                     : sends        ? task.rows + walk.place()
                     : sends_source ? reads.word()
                                    : sums.word();
    const Word row = rows[word];
    if (takes) {
      rows[word] = before_activation<Functions>(returned.read(), row, task.how);
      returns.next();
    } else if (sends) {
      gradients.write(row);
      walk.next();
    } else if (sends_source) {
      if constexpr (Functions::kGradientReadsRows) sources.write(scaled(row, task.source_scale));
      reads.next();
    } else {
      kept.write(row);
      sums.next();
    }
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
