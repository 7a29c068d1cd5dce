// What the update engine multiplies: blocks of rows to its left, of weights or
// gradients to its right. While the array takes one block, the next is filled.
#pragma once

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// A word of each row of the array, for all that take turns. For the gradients
// of weights, a word of sixteen rows.
template <class D>
constexpr int left_words() {
  return D::kMaxTurns * D::kRows > kLanes ? D::kMaxTurns * D::kRows : kLanes;
}
template <class D>
using Left = Word[left_words<D>()];

// Sixteen rows of the weights, or sixteen rows of gradients.
template <class D>
using Right = Word[kLanes][D::kMaxWordsOut];

// Rows that take turns on a row of the array, so that sums are ready when they
// are added to again. On the way back each row is a word wide.
template <class D>
int turns_of(const Task& task) {
  if (task.mode == Mode::backward) {
    return min_of(D::kMaxTurns, words_of(padded(task.num_rows), D::kRows));
  }
  return task.words_out >= D::kAddLatency ? 1 : words_of(D::kAddLatency, task.words_out);
}

// Where there are too few rows to take turns on the way back, there are several
// sums of each word instead.
template <class D>
int sets_of(const Task& task) {
  return task.mode == Mode::backward ? words_of(D::kAddLatency, turns_of<D>(task)) : 1;
}

// Blocks of rows of the weights whose gradients are made at a time.
template <class D>
int blocks_of(const Task& task) {
  return parts_of(task) * (kLanes / D::kSliceRows);
}

// Whether a part of the aggregated rows is kept, in the banks of rows or in
// `scratch`. Own rows of the input are not, since they can be read again.
struct Place {
  bool keeps;
  bool chip;
  int word;  // in `scratch`, of the first row
};
inline Place place_of(const Task& task, int part) {
  const bool again = task.slots > 1 && !task.hidden;
  const int number = again ? part / task.slots : part;
  const int before = (number - task.kept.parts) * padded(task.stage_rows);
  return {!again || part % task.slots == task.slots - 1, number < task.kept.parts,
          task.kept.outside + before};
}

// Forward: aggregated rows from the gather PEs, which are kept on the way.
template <class D>
void fill_aggregated(const Task& task, Stream<Word> (&gathered)[D::kPes], Word* scratch,
                     Stream<Word> (&keeping)[D::kBanks], Blocks<Left<D>>& out) {
  constexpr int kStep = min_of(D::kPes, D::kRows);
  const int group = turns_of<D>(task) * D::kRows;
  const int num_rows = padded(task.num_rows);
  for (int part = 0; part < parts_of(task); ++part) {
    const Place place = place_of(task, part);
    for (int begin = 0; begin < num_rows; begin += group) {
      WriteLock<Left<D>> block(out);
    rows:
      for (int row = begin; row < min_of(begin + group, num_rows); row += kStep) {
#pragma HLS pipeline II = 1
        Word words[kStep];
        for (int i = 0; i < kStep; ++i) {
#pragma HLS unroll
          words[i] = gathered[(row + i) % D::kPes].read();
          block[row - begin + i] = words[i];
          if (place.keeps && place.chip) keeping[(row + i) % D::kBanks].write(words[i]);
        }
        // Device memory takes a word a cycle.
        for (int i = 0; i < kStep && place.keeps && !place.chip; ++i) {
          store(scratch, place.word + task.first_row + row + i, words[i], Count::scratch_words);
          if (i + 1 < kStep) clock_cycle();
        }
        clock_cycle();
      }
    }
  }
}

// For the gradients of weights: a word of sixteen aggregated rows, from where
// they were kept.
template <class D>
void fill_kept(const Task& task, Stream<Word>& own, const Word* scratch,
               Stream<Word> (&kept)[D::kBanks], Blocks<Left<D>>& out) {
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    const Place place = place_of(task, block / (kLanes / D::kSliceRows));
    for (int begin = 0; begin < padded(task.num_rows); begin += kLanes) {
      WriteLock<Left<D>> words(out);
    rows:
      for (int i = 0; i < kLanes; ++i) {
#pragma HLS pipeline II = 1
        const int row = begin + i;
        if (!place.keeps) {
          words[i] = row < task.num_rows ? own.read() : filled(0.0F);
        } else if (place.chip) {
          words[i] = kept[row % D::kBanks].read();
        } else {
          words[i] = load(scratch, place.word + row, Count::scratch_words);
        }
        // The banks give n words a cycle beside the gradients.
        if (!place.keeps || !place.chip || (i + 1) % D::kPes == 0) clock_cycle();
      }
    }
  }
}

// On the way back, what a derivative takes: aggregated rows from `begin` to
// `end`, on their way to the gradients that the array makes of them.
template <class D>
void send_kept(const Place& place, int begin, int end, const Word* scratch,
               Stream<Word> (&kept)[D::kBanks], Stream<Word>& out) {
rows:
  for (int row = begin; row < end; ++row) {
#pragma HLS pipeline II = 1
    out.write(place.chip ? kept[row % D::kBanks].read()
                         : load(scratch, place.word + row, Count::scratch_words));
    clock_cycle();
  }
}

// On the way back: gradients of output rows, word by word of a group of rows.
template <class D, bool reads_rows>
void fill_gradients(const Task& task, Stream<Word> (&gradients)[D::kBanks], const Word* scratch,
                    Stream<Word> (&kept)[D::kBanks], Stream<Word>& sums, Blocks<Left<D>>& out) {
  constexpr int kStep = min_of(D::kBanks, D::kRows);
  const int group = turns_of<D>(task) * D::kRows;
  const int num_rows = padded(task.num_rows);
  for (int part = 0; part < parts_of(task); ++part) {
    for (int begin = 0; begin < num_rows; begin += group) {
      const int end = min_of(begin + group, num_rows);
      for (int j = 0; j < task.words_out; ++j) {
        WriteLock<Left<D>> block(out);
      rows:
        for (int row = begin; row < end; row += kStep) {
#pragma HLS pipeline II = 1
          for (int i = 0; i < kStep && row + i < end; ++i) {
#pragma HLS unroll
            block[row - begin + i] = gradients[(row + i) % D::kBanks].read();
          }
          clock_cycle();
        }
      }
      if (reads_rows && part % task.slots == task.slots - 1) {
        send_kept<D>(place_of(task, part), begin, min_of(end, task.num_rows), scratch, kept, sums);
      }
    }
  }
}

// Fills the blocks to the left. What it hands to the banks forward, in `keeping`,
// it takes from them in `kept`.
template <class D, bool reads_rows>
void fill_left(Task task, Stream<Word> (&gathered)[D::kPes], Stream<Word>& own, Word* scratch,
               Stream<Word> (&keeping)[D::kBanks], Stream<Word> (&kept)[D::kBanks],
               Stream<Word> (&gradients)[D::kBanks], Stream<Word>& sums, Blocks<Left<D>>& out) {
  if (task.mode == Mode::forward) {
    fill_aggregated<D>(task, gathered, scratch, keeping, out);
  } else if (task.mode == Mode::weight_gradients) {
    fill_kept<D>(task, own, scratch, kept, out);
  } else {
    fill_gradients<D, reads_rows>(task, gradients, scratch, kept, sums, out);
  }
}

// Reads the weights of a stage, sixteen rows after the other: those of each
// part of the rows. Each is read once. Forward, the bias comes before them.
template <class D>
void fill_weights(const Task& task, const Word* weights, Stream<Word> (&bias)[D::kBanks],
                  Blocks<Right<D>>& out) {
  const int rows_of_slot = task.words_in * kLanes;
  const int end = task.weights + task.slots * rows_of_slot * task.words_out;
  for (int j = 0; task.mode == Mode::forward && j < task.words_out; ++j) {
#pragma HLS pipeline II = 1
    const Word word = load(weights, end + j, Count::weight_words);
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      bias[bank].write(word);
    }
    clock_cycle();
  }
  for (int part = 0; part < parts_of(task); ++part) {
    const int row = part % task.slots * rows_of_slot + part / task.slots * kLanes;
    WriteLock<Right<D>> block(out);
  words:
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < task.words_out; ++j) {
#pragma HLS pipeline II = 1
        block[i][j] =
            load(weights, task.weights + (row + i) * task.words_out + j, Count::weight_words);
        clock_cycle();
      }
    }
  }
}

// For the gradients of weights: the gradients of sixteen output rows. Their
// sum, the gradient of the bias, is made as they pass for the first time.
template <class D>
void fill_rows(const Task& task, Stream<Word> (&gradients)[D::kBanks], Stream<Word>& bias,
               Blocks<Right<D>>& out) {
  Word sums[D::kAddLatency][D::kMaxWordsOut];
  const int steps = padded(task.num_rows) / D::kSlices;
  const int turns = min_of(turns_of<D>(task), steps);
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    for (int begin = 0; begin < steps; begin += kLanes / D::kSlices) {
      WriteLock<Right<D>> rows(out);
      for (int i = 0; i < kLanes / D::kSlices; ++i) {
      words:
        for (int j = 0; j < task.words_out; ++j) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter false  // kAddLatency of them take turns
          Word sum = filled(0.0F);
          for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
            const int row = i * D::kSlices + slice;
            const int bank = (begin * D::kSlices + row) % D::kBanks;
            rows[row][j] = gradients[bank].read();
            sum = sum + rows[row][j];
          }
          const int step = begin + i;
          Word& total = sums[step % turns][j];
          if (block == 0) total = step < turns ? sum : total + sum;
          clock_cycle();
        }
      }
    }
  }
  for (int j = 0; j < task.words_out; ++j) {
    Word total = sums[0][j];
    for (int turn = 1; turn < turns; ++turn) total = total + sums[turn][j];
    bias.write(total);
    clock_cycle(turns);
  }
}

// Fills the blocks to the right.
template <class D>
void fill_right(Task task, const Word* weights, Stream<Word> (&gradients)[D::kBanks],
                Stream<Word> (&bias)[D::kBanks], Stream<Word>& bias_gradient,
                Blocks<Right<D>>& out) {
  if (task.mode == Mode::weight_gradients) {
    fill_rows<D>(task, gradients, bias_gradient, out);
  } else {
    fill_weights<D>(task, weights, bias, out);
  }
}

}  // namespace gnnscale::fpga
