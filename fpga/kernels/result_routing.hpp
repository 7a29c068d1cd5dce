// Routing of the array's sums: products to the banks of their rows, gradients of weights to device
// memory, and gradients of aggregated rows to the aggregate engine.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// Returns one of the 8 ids in a word.
inline uint64_t vertex_of(const Word& ids, int number) {
  const auto low = static_cast<uint32_t>(bits_of(ids.lane[2 * number]));
  const auto high = static_cast<uint32_t>(bits_of(ids.lane[2 * number + 1]));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Returns the words of the rows' global ids, 8 in a word, on which dropout depends.
inline int words_of_ids(const Task& task) {
  return task.mode == Mode::forward && task.how.drops ? words_of(task.num_rows, 8) : 0;
}

// Reads the global ids of the rows.
inline void read_vertices(Task task, Port batch, Stream<Word>& out) {
  batch.read_request(task.vertices, words_of_ids(task));
  LOOP(words)
  for (int i = 0; i < words_of_ids(task); ++i) {
    PIPELINED(words, 1, kIn + kOut);
    out.write(batch.read());
  }
}

// Forward: a word of each of kDrainStep rows a cycle.
template <class D>
void deal_products(const Task& task, Stream<Word>& vertices, Stream<Word> (&sums)[D::kDrains],
                   Stream<Product> (&out)[D::kBanks]) {
  constexpr int kDepth = kIn + kRead + 2 * kHash + kOut;
  Word ids[D::kGatherRows / 8];
#pragma HLS array_partition variable = ids type = cyclic factor = 2
  LOOP(words)
  for (int i = 0; i < words_of_ids(task); ++i) {
    PIPELINED(words, 1, kIn + kWrite);
    ids[i] = vertices.read();
  }
  const Blocks<D> blocks(task);
  GroupCounter<D> group(blocks);
  int turn = 0, word = 0, row = 0;
  int part = 0;
  LOOP(rows)
  while (part < blocks.parts) {
    PIPELINED(rows, 1, kDepth);
    const bool last = part + 1 == blocks.parts;
    const int begin = group.begin + turn * D::kRows;
    const int end = group.begin + group.rows();
    for (int i = 0; i < D::kDrainStep; ++i) {
#pragma HLS unroll
      const int v = begin + row + i;
      Product product = {};
      product.value = sums[i].read();
      if (last && task.how.drops) {
        product.draws = draws_of(task.how.key, vertex_of(ids[v / 8], v % 8), word);
      }
      product.row = v / D::kBanks;
      product.column = word;
      product.first = part == 0;
      product.last = last;
      out[v % D::kBanks].write(product);
    }
    row += D::kDrainStep;
    if (row < min_of(D::kRows, end - begin)) continue;
    row = 0;
    if (++word < blocks.words) continue;
    word = 0;
    if (begin + D::kRows < end) {
      ++turn;
      continue;
    }
    turn = 0;
    if (group.begin + blocks.group_rows >= blocks.rows) ++part;
    group.next();
  }
}

// Backward: the gradient of one word of an aggregated row a cycle. Several partial sums of a word
// arrive one after the other, each for all rows.
inline void attach(Row& /*row*/, Stream<Word>& /*sums*/) {}
inline void attach(RowWithSum& row, Stream<Word>& sums) { row.gathered = sums.read(); }

template <class D, class RowType>
void deal_rows(const Task& task, Stream<Word>& gathered, Stream<Word>& sums, Stream<RowType>& out) {
  constexpr int kDepth = kIn + kRead + kAdd + kMultiply + kWrite + kOut;
  Word totals[D::kMaxTurns * D::kRows];
  SumWindow<D::kMaxTurns * D::kRows> window;
  const Blocks<D> blocks(task);
  GroupCounter<D> group(blocks);
  int part = 0, slot = 0, set = 0, row = 0;
  LOOP(rows)
  while (part < blocks.parts) {
    PIPELINED(rows, 1, kDepth);
#pragma HLS dependence variable = totals type = inter false  // a group has kSumWindow rows
    const Word sum = sums.read();
    window.use(row, set > 0);
    const Word total = set == 0 ? sum : totals[row] + sum;
    totals[row] = total;
    if (set + 1 == blocks.sets && group.begin + row < task.num_rows) {
      RowType token = {};
      token.value = scaled(total, task.source_scale);
      token.source = slot * task.num_rows + group.begin + row;
      if (slot + 1 == task.slots) attach(token, gathered);
      out.write(token);
    }
    if (++row < group.rows()) continue;
    row = 0;
    if (++set < blocks.sets) continue;
    set = 0;
    if (group.begin + blocks.group_rows >= blocks.rows) {
      ++part;
      slot = slot + 1 == task.slots ? 0 : slot + 1;
    }
    group.next();
  }
}

// Gradients of weights: collects the sums of all slices, a word a cycle. Each word has as many
// partial sums as were interleaved.
template <class D>
void deal_gradients(const Task& task, Stream<Word> (&sums)[D::kDrains], Stream<Word>& out) {
  constexpr int kDepth = kIn + log2_of(D::kSlices) * kAdd + kOut;
  const int words = blocks_of<D>(task) * turns_of<D>(task) * D::kSliceRows * task.words_out;
  LOOP(gradients)
  for (int i = 0; i < words; ++i) {
    PIPELINED(gradients, 1, kDepth);
    Word slices[D::kSlices];
    for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
      slices[slice] = sums[slice].read();
    }
    out.write(tree_of<D::kSlices>(slices, Sum{}));
  }
}

template <class D, class RowType>
void deal(Task task, Stream<Word>& vertices, Stream<Word>& gathered,
          Stream<Word> (&sums)[D::kDrains], Stream<Product> (&products)[D::kBanks],
          Stream<RowType>& rows, Stream<Word>& gradients) {
  if (task.mode == Mode::forward) {
    deal_products<D>(task, vertices, sums, products);
  } else if (task.mode == Mode::weight_gradients) {
    deal_gradients<D>(task, sums, gradients);
  } else {
    deal_rows<D>(task, gathered, sums[0], rows);
  }
}

// Reduces the interleaved partial sums, and writes the gradients of the weights, or adds them to
// the gradients of earlier groups. The bias comes last.
template <class D>
void write_gradients(Task task, Stream<Word>& in, Stream<Word>& bias, Port gradients) {
  if (task.mode != Mode::weight_gradients) return;
  constexpr int kTimes = kLanes / D::kSliceRows;
  constexpr int kDepth = kIn + kRead + kAdd + kOut;
  const int blocks = blocks_of<D>(task);  // block `blocks` is the bias
  const int turns = turns_of<D>(task);
  const int rows_of_slot = task.words_in * kLanes;
  Word totals[D::kSliceRows * D::kMaxWordsOut];
  SumWindow<D::kSliceRows * D::kMaxWordsOut> window;
  int block = 0, turn = 0, i = 0;
  int requested = 0;  // blocks whose previous gradients were requested
  LOOP(words)
  while (block <= blocks) {
    PIPELINED(words, 1, kDepth);
#pragma HLS dependence variable = totals type = inter false  // kSumWindow cycles between turns
    const bool asks = task.adds && requested <= min_of(block + 1, blocks);
    const int number = asks ? requested : block;
    const int row = number == blocks
                        ? task.slots * rows_of_slot
                        : weights_row(task, number / kTimes) + number % kTimes * D::kSliceRows;
    const int first = task.weights + row * task.words_out;
    const int num_words = (number == blocks ? 1 : D::kSliceRows) * task.words_out;
    if (asks) {
      gradients.read_request(first, num_words);
      ++requested;
      continue;
    }
    const bool last = turn + 1 == turns;
    if (last && i == 0) gradients.write_request(first, num_words);
    if (i < num_words) {
      const Word word = block == blocks ? bias.read() : in.read();
      window.use(i, turn > 0);
      Word old_total = filled(0.0F);
      if (turn > 0) old_total = totals[i];
      if (turn == 0 && task.adds) old_total = gradients.read();
      const Word total = old_total + word;
      totals[i] = total;
      if (last) gradients.write(total);
    }
    // A total can be added to once it has been written.
    if (++i < (last ? num_words : max_of(num_words, kSumWindow))) continue;
    i = 0;
    if (!last) {
      ++turn;
      continue;
    }
    turn = 0;
    ++block;
    gradients.write_response();
  }
}

}  // namespace gnnscale::fpga
