// The processes of the two engines, and the streams between them: the dataflow region of a compute
// unit. Each engine exists once; forward, backward and the gradients of weights are passes of the
// region.
#pragma once

#include "kernels/fill_left.hpp"
#include "kernels/fill_right.hpp"
#include "kernels/gather.hpp"
#include "kernels/multiply.hpp"
#include "kernels/read.hpp"
#include "kernels/result_routing.hpp"
#include "kernels/route.hpp"
#include "kernels/rows.hpp"
#include "kernels/scatter.hpp"

namespace gnnscale::fpga {

// On-chip memory that outlives a pass: rows, and sums of the gather PEs.
template <class D>
using Rows = Word[D::kBanks][D::kRowWords / D::kBanks];
template <class D>
using GatherSums = HalfOfSums<D>[D::kPes];

// FIFOs in front of PEs decouple the PEs' progress.
constexpr int kFifo = 32;
constexpr int kSwitchFifo = 8;
constexpr int kBankFifo = 4;

// Runs a pass of the two engines. Streams lead from the aggregate engine to the update engine, and
// in the backward pass from the update engine to the aggregate engine.
template <class D, class Functions>
void run_engines(Task task, Port batch, Port port_of_edges, Port features, Port weights,
                 Port port_of_gradients, Port scratch, Rows<D>& chip_rows,
                 GatherSums<D>& first_sums, GatherSums<D>& second_sums) {
#pragma HLS dataflow
  using RowType = RowOf<Functions>;
  using MessageType = MessageOf<Functions>;
  constexpr bool kReadsRows = Functions::kGradientReadsRows;
  constexpr int kStages = log2_of(D::kPes);
  STREAMS(Edge, edges, D::kPes, kFifo);
  STREAMS(Need, needs, D::kPes, kFifo);
  STREAM(RowType, rows, 2);
  STREAMS(RowType, duplicated, D::kPes, 4);
  STREAMS(RowType, selected, D::kPes, kFifo);
  STREAM_STAGES(MessageType, messages, kStages + 1, D::kPes, kSwitchFifo);
  STREAMS(Word, gathered, D::kPes, 2);
  STREAM(Word, own, 2);
  STREAMS(Word, to_scratch, D::kStep, 4);
  STREAM(Word, from_scratch, 4);
  STREAMS(Word, lefts, D::kLefts, kBankFifo);
  STREAMS(Word, rights, D::kSlices, kBankFifo);
  STREAMS(Word, drained, D::kDrains, 2);
  STREAM(Word, vertices, 4);
  STREAMS(Product, products, D::kBanks, kBankFifo);
  STREAM(RowType, gradients, 2);
  STREAM(Word, weight_gradients, 2);
  STREAM(Word, bias_gradient, 2);
  STREAMS(Word, bias, D::kBanks, 2);
  STREAMS(Word, stored, D::kBanks, kBankFifo);
  STREAMS(Word, keeping, D::kBanks, kBankFifo);
  STREAMS(Word, kept, D::kBanks, kBankFifo);
  STREAMS(Word, to_left, D::kBanks, kBankFifo);
  STREAMS(Word, to_right, D::kBanks, kBankFifo);
  STREAMS(Word, returned, D::kBanks, kBankFifo);
  STREAMS(Word, sources, D::kBanks, kBankFifo);
  STREAM(Word, kept_sums, 2);
  DATAFLOW(region);
  PROCESS(region, "read_edges", -1, read_edges<D>, task, port_of_edges, edges, needs);
  PROCESS(region, "read_rows", -1, (read_rows<D, RowType>), task, features, stored, rows, own);
  PROCESS(region, "duplicate", -1, (duplicate<D, RowType>), task, rows, gradients, duplicated);
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
#pragma HLS dataflow
    PROCESS(region, "select", pe, select<RowType>, task, needs[pe], duplicated[pe], selected[pe]);
    PROCESS(region, "scatter", pe, scatter<Functions>, task, edges[pe], selected[pe],
            messages[0][pe]);
  }
  for (int i = 0; i < kStages; ++i) {
#pragma HLS unroll
#pragma HLS dataflow
    PROCESS(region, "route", i, (route<D, MessageType>), task, 1 << i, messages[i],
            messages[i + 1]);
  }
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
#pragma HLS dataflow
    PROCESS(region, "gather", pe, (gather<D, Functions>), task, first_sums[pe], second_sums[pe],
            messages[kStages][pe], sources[pe], sources[D::kPes + pe], gathered[pe], returned[pe],
            returned[D::kPes + pe]);
  }
  PROCESS(region, "move_scratch", -1, (move_scratch<D, kReadsRows>), task, scratch, to_scratch,
          from_scratch);
  PROCESS(region, "fill_left", -1, (fill_left<D, kReadsRows>), task, gathered, own, to_scratch,
          from_scratch, keeping, kept, to_left, kept_sums, lefts);
  PROCESS(region, "fill_right", -1, fill_right<D>, task, weights, to_right, bias, bias_gradient,
          rights);
  PROCESS(region, "multiply", -1, multiply<D>, task, lefts, rights, drained);
  PROCESS(region, "read_vertices", -1, read_vertices, task, batch, vertices);
  PROCESS(region, "deal", -1, (deal<D, RowType>), task, vertices, kept_sums, drained, products,
          gradients, weight_gradients);
  PROCESS(region, "write_gradients", -1, write_gradients<D>, task, weight_gradients, bias_gradient,
          port_of_gradients);
  for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
#pragma HLS dataflow
    PROCESS(region, "keep_rows", bank, (keep_rows<D, Functions>), task, bank, chip_rows[bank],
            bias[bank], products[bank], keeping[bank], stored[bank], to_right[bank], kept[bank],
            returned[bank], to_left[bank], sources[bank]);
  }
  RUN(region);
}

}  // namespace gnnscale::fpga
