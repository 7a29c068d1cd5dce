// Left operands of the update engine: words of rows.
#pragma once

#include "kernels/scratch.hpp"

namespace gnnscale::fpga {

// Returns whether row `row`, with `step` rows arriving together, is at position `position` of the
// banks. Streams are indexed by `position`, constant after unrolling, instead of a value known only
// at run time.
template <class D>
bool is_at(int position, int row, int step) {
  return position / step == row % D::kBanks / step;
}

// Forward: aggregated rows from the gather PEs, which are kept for the gradients of weights.
template <class D>
void fill_aggregated(const Task& task, Stream<Word> (&gathered)[D::kPes],
                     Stream<Word> (&to_scratch)[D::kStep], Stream<Word> (&keeping)[D::kBanks],
                     Stream<Word> (&out)[D::kLefts]) {
  constexpr int kDepth = kIn + kOut;
  const int num_rows = padded(task.num_rows);
  int part = 0, row = 0;
  LOOP(rows)
  while (part < parts_of(task)) {
    PIPELINED(rows, 1, kDepth);
    const Place location = place_of(task, part);
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      if (!is_at<D>(bank, row, D::kStep)) continue;
      const Word word = gathered[bank % D::kPes].read();
      out[bank % D::kLefts].write(word);
      if (location.keeps && location.chip) keeping[bank].write(word);
      if (location.keeps && !location.chip) to_scratch[bank % D::kStep].write(word);
    }
    row += D::kStep;
    if (row < num_rows) continue;
    row = 0;
    ++part;
  }
}

// Gradients of weights: words of kept aggregated rows. The banks deliver n words a cycle next to
// the gradients, device memory one.
template <class D>
void fill_kept(const Task& task, Stream<Word>& own, Stream<Word>& from_scratch,
               Stream<Word> (&kept)[D::kBanks], Stream<Word> (&out)[D::kLefts]) {
  constexpr int kDepth = kIn + kOut;
  constexpr int kTimes = kLanes / D::kSliceRows;
  int block = 0, row = 0;
  LOOP(rows)
  while (block < blocks_of<D>(task)) {
    PIPELINED(rows, 1, kDepth);
    const Place location = place_of(task, block / kTimes);
    const bool from_banks = location.keeps && location.chip;
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      if (!from_banks || !is_at<D>(bank, row, D::kStep)) continue;
      out[bank % D::kLefts].write(kept[bank].read());
    }
    if (!from_banks) {
      Word word = filled(0.0F);
      if (location.keeps) {
        word = from_scratch.read();
      } else if (row < task.num_rows) {
        word = own.read();
      }
      out[row % D::kLefts].write(word);
    }
    row += from_banks ? D::kStep : 1;
    if (row < padded(task.num_rows)) continue;
    row = 0;
    ++block;
  }
}

// Backward: gradients of output rows, word by word of a group of rows. If derivatives need
// aggregated rows, they are attached to the array's resulting gradients.
template <class D, bool reads_rows>
void fill_gradients(const Task& task, Stream<Word> (&gradients)[D::kBanks],
                    Stream<Word>& from_scratch, Stream<Word> (&kept)[D::kBanks], Stream<Word>& sums,
                    Stream<Word> (&out)[D::kLefts]) {
  constexpr int kDepth = kIn + kOut;
  const Blocks<D> blocks(task);
  GroupCounter<D> group(blocks);
  int column = 0, row = 0;
  int remaining = blocks.num_lefts();
  int part = reads_rows ? 0 : blocks.parts, sum = 0;
  LOOP(rows)
  while (remaining > 0 || part < blocks.parts) {
    PIPELINED(rows, 1, kDepth);
    bool ready = remaining > 0;
    const int first = group.begin + row;  // a multiple of kLefts
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      if (!is_at<D>(bank, first, D::kLefts)) continue;
      ready = ready && !gradients[bank].empty() && !out[bank % D::kLefts].full();
    }
    for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
      if (!ready || !is_at<D>(bank, first, D::kLefts)) continue;
      out[bank % D::kLefts].write(gradients[bank].read());
    }
    if (ready) row += D::kLefts;
    if (ready && row == group.rows()) {
      row = 0;
      --remaining;
      if (++column == blocks.columns) {
        column = 0;
        group.next();
      }
    }
    if (part == blocks.parts) continue;
    const bool chip = place_of(task, part).chip;
    const bool skips = !is_sum(task, part);
    const bool is_ready = chip ? !kept[sum % D::kBanks].empty() : !from_scratch.empty();
    if (!skips && is_ready && !sums.full()) {
      sums.write(chip ? kept[sum % D::kBanks].read() : from_scratch.read());
      ++sum;
    }
    if (skips || sum == task.num_rows) {
      sum = 0;
      ++part;
    }
  }
}

// Fills the left blocks. Forward, rows to keep are sent to the banks by `keeping`; later they
// return by `kept`.
template <class D, bool reads_rows>
void fill_left(Task task, Stream<Word> (&gathered)[D::kPes], Stream<Word>& own,
               Stream<Word> (&to_scratch)[D::kStep], Stream<Word>& from_scratch,
               Stream<Word> (&keeping)[D::kBanks], Stream<Word> (&kept)[D::kBanks],
               Stream<Word> (&gradients)[D::kBanks], Stream<Word>& sums,
               Stream<Word> (&out)[D::kLefts]) {
  if (task.mode == Mode::forward) {
    fill_aggregated<D>(task, gathered, to_scratch, keeping, out);
  } else if (task.mode == Mode::weight_gradients) {
    fill_kept<D>(task, own, from_scratch, kept, out);
  } else {
    fill_gradients<D, reads_rows>(task, gradients, from_scratch, kept, sums, out);
  }
}

}  // namespace gnnscale::fpga
