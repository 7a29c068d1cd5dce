// Right operands of the update engine: words of weights, or of gradients.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// Reads the weights of a stage, sixteen rows after the other, in the order of the rows' parts. Each
// weight is read once. Forward, the bias comes first.
template <class D>
void fill_weights(const Task& task, Port weights, Stream<Word> (&bias)[D::kBanks],
                  Stream<Word>& out) {
  constexpr int kDepth = kIn + kOut;
  constexpr int kAhead = 4;  // pieces requested ahead of reading
  const int rows_of_slot = task.words_in * kLanes;
  const int parts = parts_of(task);
  const int begin = task.mode == Mode::forward ? -1 : 0;  // piece -1 is the bias
  int requested = begin, piece = begin, word = 0;
  LOOP(words)
  while (piece < parts) {
    PIPELINED(words, 1, kDepth);
    if (requested < parts && requested < piece + kAhead) {
      const int row = requested < 0 ? task.slots * rows_of_slot : weights_row(task, requested);
      weights.read_request(task.weights + row * task.words_out,
                           requested < 0 ? task.words_out : kLanes * task.words_out);
      ++requested;
      continue;
    }
    const Word value = weights.read();
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      if (piece < 0) bias[bank].write(value);
    }
    if (piece >= 0) out.write(value);
    if (++word < (piece < 0 ? task.words_out : kLanes * task.words_out)) continue;
    word = 0;
    ++piece;
  }
}

// Gradients of weights: sends the gradients of the output rows, a word of each slice a cycle. On
// the first pass over them it also accumulates their sum, the gradient of the bias, interleaved
// over as many partial sums as the weights.
template <class D>
void fill_rows(const Task& task, Stream<Word> (&gradients)[D::kBanks], Stream<Word>& bias,
               Stream<Word> (&out)[D::kSlices]) {
  constexpr int kDepth = kIn + log2_of(D::kSlices) * kAdd + kRead + kAdd + kWrite;
  constexpr int kInterval = max_of(1, D::kSlices / D::kBanks);  // a bank delivers a word a cycle
  Word sums[sums_of_row<D>()];
#pragma HLS bind_storage variable = sums type = ram_2p impl = lutram
  SumWindow<sums_of_row<D>()> window;
  const int steps = padded(task.num_rows) / D::kSlices;
  const int turns = turns_of<D>(task);
  int block = 0, step = 0, turn = 0, word = 0;
  LOOP(words)
  while (block < blocks_of<D>(task)) {
    PIPELINED(words, kInterval, kDepth);
#pragma HLS dependence variable = sums type = inter false  // kSumWindow of them are interleaved
    Word slices[D::kSlices];
    for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
      slices[slice] = gradients[(step * D::kSlices + slice) % D::kBanks].read();
      out[slice].write(slices[slice]);
    }
    const Word sum = tree_of<D::kSlices>(slices, Sum{});
    const int at = turn * task.words_out + word;
    if (block == 0) window.use(at, step >= turns);
    if (block == 0) sums[at] = step < turns ? sum : sums[at] + sum;
    if (++word < task.words_out) continue;
    word = 0;
    turn = turn + 1 == turns ? 0 : turn + 1;
    if (++step < steps) continue;
    step = turn = 0;
    ++block;
  }
  LOOP(totals)
  for (int i = 0; i < turns * task.words_out; ++i) {
    PIPELINED(totals, 1, kRead + kOut);
    bias.write(sums[i]);
  }
}

// Fills the right blocks.
template <class D>
void fill_right(Task task, Port weights, Stream<Word> (&gradients)[D::kBanks],
                Stream<Word> (&bias)[D::kBanks], Stream<Word>& bias_gradient,
                Stream<Word> (&out)[D::kSlices]) {
  if (task.mode == Mode::weight_gradients) {
    fill_rows<D>(task, gradients, bias_gradient, out);
  } else {
    fill_weights<D>(task, weights, bias, out[0]);
  }
}

}  // namespace gnnscale::fpga
