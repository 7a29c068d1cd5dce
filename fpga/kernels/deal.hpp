// Where the sums of the array go: products to the banks of their rows, gradients
// of weights to device memory, and gradients of aggregated rows to the aggregate
// engine.
#pragma once

#include "kernels/multiply.hpp"

namespace gnnscale::fpga {

// One of the 8 ids in a word.
inline uint64_t vertex_of(const Word& ids, int number) {
  const auto low = static_cast<uint32_t>(bits_of(ids.lane[2 * number]));
  const auto high = static_cast<uint32_t>(bits_of(ids.lane[2 * number + 1]));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Words of the rows' global ids, 8 in a word, which dropout depends on.
inline int words_of_ids(const Task& task) {
  return task.mode == Mode::forward && task.how.drops ? words_of(task.num_rows, 8) : 0;
}

// Reads the global ids of the rows.
inline void read_vertices(Task task, const Word* batch, Stream<Word>& out) {
words:
  for (int i = 0; i < words_of_ids(task); ++i) {
#pragma HLS pipeline II = 1
    out.write(load(batch, task.vertices + i, Count::other_words));
    clock_cycle();
  }
}

// Forward: a word of each of n rows in a cycle.
template <class D>
void deal_products(const Task& task, Stream<Word>& vertices, Blocks<Sums<D>>& sums,
                   Stream<Product> (&out)[D::kBanks]) {
  constexpr int kStep = min_of(D::kPes, D::kRows);
  Word ids[D::kGatherRows / 8];
  for (int i = 0; i < words_of_ids(task); ++i) {
#pragma HLS pipeline II = 1
    ids[i] = vertices.read();
    clock_cycle();
  }
  const int turns = turns_of<D>(task);
  const int num_rows = padded(task.num_rows);
  for (int part = 0; part < parts_of(task); ++part) {
    const bool last = part + 1 == parts_of(task);
    for (int group = 0; group < num_rows; group += turns * D::kRows) {
      ReadLock<Sums<D>> block(sums);
      for (int turn = 0; turn < turns; ++turn) {
        const int begin = group + turn * D::kRows;
        const int end = min_of(begin + D::kRows, num_rows);
        for (int j = 0; j < task.words_out; ++j) {
        rows:
          for (int row = begin; row < end; row += kStep) {
#pragma HLS pipeline II = 1
            for (int i = 0; i < kStep; ++i) {
#pragma HLS unroll
              const int v = row + i;
              Product product;
              product.value = block[v - begin][turn * task.words_out + j];
              product.vertex = last && task.how.drops ? vertex_of(ids[v / 8], v % 8) : 0;
              product.row = v / D::kBanks;
              product.column = j;
              product.first = part == 0;
              product.last = last;
              out[v % D::kBanks].write(product);
            }
            clock_cycle();
          }
        }
      }
    }
  }
}

// On the way back: the gradient of a word of an aggregated row in a cycle.
inline void attach(Row& /*row*/, Stream<Word>& /*sums*/) {}
inline void attach(RowWithSum& row, Stream<Word>& sums) { row.gathered = sums.read(); }

template <class D, class RowType>
void deal_rows(const Task& task, Stream<Word>& gathered, Blocks<Sums<D>>& sums,
               Stream<RowType>& out) {
  const int group_rows = turns_of<D>(task) * D::kRows;
  const int sets = sets_of<D>(task);
  for (int part = 0; part < parts_of(task); ++part) {
    const int slot = part % task.slots;
    for (int group = 0; group < padded(task.num_rows); group += group_rows) {
      ReadLock<Sums<D>> block(sums);
    rows:
      for (int i = 0; i < min_of(group_rows, task.num_rows - group); ++i) {
#pragma HLS pipeline II = 1
        RowType row = {};
        row.value = block[i % D::kRows][i / D::kRows * sets];
        for (int set = 1; set < D::kAddLatency; ++set) {
#pragma HLS unroll
          if (set >= sets) continue;
          row.value = row.value + block[i % D::kRows][i / D::kRows * sets + set];
        }
        row.source = slot * task.num_rows + group + i;
        if (slot + 1 == task.slots) attach(row, gathered);
        out.write(row);
        clock_cycle();
      }
    }
  }
}

// For the gradients of weights: the sums of all slices, a word in a cycle. There
// are several of each word, as many as took turns.
template <class D>
void deal_gradients(const Task& task, Blocks<Sums<D>>& sums, Stream<Word>& out) {
  const int turns = min_of(turns_of<D>(task), padded(task.num_rows) / D::kSlices);
  for (int number = 0; number < blocks_of<D>(task); ++number) {
    ReadLock<Sums<D>> block(sums);
    for (int turn = 0; turn < turns; ++turn) {
      for (int row = 0; row < D::kSliceRows; ++row) {
      words:
        for (int j = 0; j < task.words_out; ++j) {
#pragma HLS pipeline II = 1
          Word sum = filled(0.0F);
          for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
            sum = sum + block[slice * D::kSliceRows + row][turn * task.words_out + j];
          }
          out.write(sum);
          clock_cycle();
        }
      }
    }
  }
}

template <class D, class RowType>
void deal(Task task, Stream<Word>& vertices, Stream<Word>& gathered, Blocks<Sums<D>>& sums,
          Stream<Product> (&products)[D::kBanks], Stream<RowType>& rows, Stream<Word>& gradients) {
  if (task.mode == Mode::forward) {
    deal_products<D>(task, vertices, sums, products);
  } else if (task.mode == Mode::weight_gradients) {
    deal_gradients<D>(task, sums, gradients);
  } else {
    deal_rows<D>(task, gathered, sums, rows);
  }
}

// Writes rows of the gradients, or adds them to those of the groups before.
template <class D>
void write_words(const Task& task, int first_word, int num_words,
                 Word (&words)[D::kSliceRows * D::kMaxWordsOut], Word* gradients) {
  for (int i = 0; task.adds && i < num_words; ++i) {
#pragma HLS pipeline II = 1
    words[i] = words[i] + load(gradients, first_word + i, Count::gradient_words);
    clock_cycle();
  }
  for (int i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    store(gradients, first_word + i, words[i], Count::gradient_words);
    clock_cycle();
  }
}

// Adds up the sums that took turns, and writes the gradients of the weights: the
// bias comes last.
template <class D>
void write_gradients(Task task, Stream<Word>& in, Stream<Word>& bias, Word* gradients) {
  if (task.mode != Mode::weight_gradients) return;
  constexpr int kBlocks = kLanes / D::kSliceRows;
  const int turns = min_of(turns_of<D>(task), padded(task.num_rows) / D::kSlices);
  const int num_words = D::kSliceRows * task.words_out;
  const int rows_of_slot = task.words_in * kLanes;
  Word words[D::kSliceRows * D::kMaxWordsOut];
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    for (int turn = 0; turn < turns; ++turn) {
      for (int i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
        const Word word = in.read();
        words[i] = turn == 0 ? word : words[i] + word;
        clock_cycle();
      }
      if (num_words < D::kAddLatency) clock_cycle(D::kAddLatency - num_words);
    }
    // Parts come slot by slot of each column; weights lie column by column of a slot.
    const int part = block / kBlocks;
    const int row = part % task.slots * rows_of_slot + part / task.slots * kLanes +
                    block % kBlocks * D::kSliceRows;
    write_words<D>(task, task.weights + row * task.words_out, num_words, words, gradients);
  }
  for (int j = 0; j < task.words_out; ++j) {
    words[j] = bias.read();
    clock_cycle();
  }
  write_words<D>(task, task.weights + task.slots * rows_of_slot * task.words_out, task.words_out,
                 words, gradients);
}

}  // namespace gnnscale::fpga
