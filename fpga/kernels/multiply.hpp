// The update engine's systolic array: m multiply-accumulate units, kRows rows of 16. It multiplies
// blocks of matrices (HitGNN, section V-C): one step a cycle, in which each row multiplies one
// value with a word of 16.
//
// One array computes the products with the weights and both gradients. Its process double-buffers
// the blocks: while one block is multiplied, the next one is filled, and the sums of the previous
// one leave. All of this is one pipelined loop, so that no block waits for the pipeline to drain.
//
// forward   sums[row][turn, j]  += left[turn, row].lane[i] * right[i][j]
// weights   sums[row][turn, j]  += left[i, slice].lane[row] * right[i, slice][j]
// backward  sums[row][turn, i]  += left[turn, row].lane[i] * right[.][column].lane[i]
#pragma once

#include "kernels/array.hpp"

namespace gnnscale::fpga {

template <class D>
void multiply(Task task, Stream<Word> (&lefts)[D::kLefts], Stream<Word> (&rights)[D::kSlices],
              Stream<Word> (&out)[D::kDrains]) {
  // A register in each row that a word passes, and the multiply-accumulate unit.
  constexpr int kDepth = kIn + kRead + D::kSliceRows + kMultiply + kRead + kAdd + kWrite + kOut;
#ifdef __VITIS_HLS__
  Left<D> left;
  Right<D> right;
  Sums<D> sums;
#pragma HLS array_partition variable = left type = complete dim = 3
#pragma HLS array_partition variable = right type = complete dim = 2
#pragma HLS array_partition variable = sums type = complete dim = 1
#pragma HLS array_partition variable = sums type = complete dim = 2
#pragma HLS bind_storage variable = left type = ram_2p impl = lutram
#pragma HLS bind_storage variable = right type = ram_2p impl = lutram
#pragma HLS bind_storage variable = sums type = ram_2p impl = lutram
#else
  struct Memory {
    Left<D> left;
    Right<D> right;
    Sums<D> sums;
  };
  auto& [left, right, sums] = csim::Simulation::current().local<Memory>();
#endif
  LeftFiller<D> left_filler(task);
  RightFiller<D> right_filler(task);
  Stepper<D> stepper(task);
  Drain<D> drain(task);
  Halves left_halves, right_halves, sum_halves;
  SumWindow<2 * sums_of_row<D>()> window;
  LOOP(steps)
  while (!drain.done()) {
    PIPELINED(steps, 1, kDepth);
// A sum is read again at least kSumWindow cycles later, since that many rows are interleaved.
#pragma HLS dependence variable = sums type = inter false
#pragma HLS dependence variable = left type = inter false  // reads and writes use different halves
#pragma HLS dependence variable = right type = inter false
    // The leaving sums and the accumulating sums are in different halves.
    const bool ready = sum_halves.is_ready();
    bool drains = ready && drain.settles == 0;
    if (ready && drain.settles > 0) --drain.settles;
    for (int i = 0; i < D::kDrains; ++i) {
#pragma HLS unroll
      drains = drains && (i >= drain.num_streams() || !out[i].full());
    }
    bool adds = !stepper.done() && left_halves.is_ready() && sum_halves.has_room();
    adds = adds && (stepper.blocks.transposes || right_halves.is_ready());
    for (int i = 0; i < D::kSlices; ++i) {
#pragma HLS unroll
      adds = adds && (!stepper.blocks.transposes || !rights[i].empty());
    }

    Word words[D::kSlices] = {};
    float values[D::kRows] = {};
    if (adds) {
      Word rows[D::kRows];  // rows of the left block
      const int left_index =
          stepper.blocks.transposes ? stepper.lane * D::kSlices / D::kRows : stepper.turn;
      for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
        rows[row] = left[left_halves.uses][left_index][row];
      }
      for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
        const int slice = row / D::kSliceRows;
        const int lane = stepper.blocks.lane_of(stepper.part) + row % D::kSliceRows;
        values[row] = stepper.blocks.transposes
                          ? rows[(stepper.lane * D::kSlices + slice) % D::kRows].lane[lane % kLanes]
                          : rows[row].lane[stepper.lane];
      }
      Word weights[kLanes];  // rows of the right block
      for (int row = 0; row < kLanes; ++row) {
#pragma HLS unroll
        if (!stepper.backward && row != stepper.lane) continue;
        weights[row] =
            right[right_halves.uses][row][stepper.backward ? stepper.column : stepper.word];
      }
      for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
        if (stepper.blocks.transposes) {
          words[slice] = rights[slice].read();
        } else if (!stepper.backward) {
          words[slice] = weights[stepper.lane];
        }
        for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
          if (stepper.backward) words[slice].lane[lane] = weights[lane].lane[stepper.lane];
        }
      }
      count(Count::multiplying);
    }

    // Each memory of sums has one read address and one write address.
    const int added = sum_halves.fills, drained = sum_halves.uses;
    const int sum = stepper.sum();
    const bool begins = stepper.begins();
    if (adds) window.use(added * sums_of_row<D>() + sum, !begins);
    Word leaving[D::kDrains];
    for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
      Word old_sum = {};
      for (int half = 0; half < 2; ++half) {
#pragma HLS unroll
        const bool adds_row = adds && half == added;
        const bool drains_row = drains && half == drained && drain.takes(row);
        if (!adds_row && !drains_row) continue;
        const Word stored_sum = sums[half][row][adds_row ? sum : drain.sum()];
        if (adds_row) old_sum = stored_sum;
        if (drains_row) leaving[drain.stream(row)] = stored_sum;
      }
      if (!adds) continue;
      Word after;
      for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
        const float product = values[row] * words[row / D::kSliceRows].lane[lane];
#pragma HLS bind_op variable = product op = fmul impl = maxdsp latency = kMultiply
        const float total = (begins ? 0.0F : old_sum.lane[lane]) + product;
#pragma HLS bind_op variable = total op = fadd impl = fulldsp latency = kAdd
        after.lane[lane] = total;
      }
      for (int half = 0; half < 2; ++half) {
#pragma HLS unroll
        if (half == added) sums[half][row][sum] = after;
      }
    }
    if (drains) {
      for (int i = 0; i < D::kDrains; ++i) {
#pragma HLS unroll
        if (i < drain.num_streams()) out[i].write(leaving[i]);
      }
      drain.next(sum_halves);
    }
    left_filler.step(lefts, left, left_halves);
    right_filler.step(rights[0], right, right_halves);
    if (adds) stepper.next(left_halves, right_halves, sum_halves);
  }
}

}  // namespace gnnscale::fpga
