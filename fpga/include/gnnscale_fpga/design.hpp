// The sizes of one compute unit. Everything else is a template over them.
#pragma once

#include "gnnscale_fpga/operators.hpp"
#include "gnnscale_fpga/word.hpp"

// Words of a compute unit's row memory. A board with less URAM has fewer.
#ifndef GNNSCALE_ROW_WORDS
#define GNNSCALE_ROW_WORDS 98304
#endif

namespace gnnscale::fpga {

// Compute unit with n scatter-gather PEs and m multiply-accumulate units, as in HitGNN, section
// V-C.
template <int n, int m>
struct Design {
  static_assert(n == 1 || n == 2 || n == 4 || n == 8 || n == 16, "n: a power of two up to 16");
  static_assert(m >= 16 && m <= 2048 && (m & (m - 1)) == 0, "m: a power of two, 16 to 2048");

  static constexpr int kPes = n;
  static constexpr int kMultipliers = m;

  // The systolic array: rows of 16 multiply-accumulate units. For the gradients of weights it is
  // split into slices of up to 16 rows, each with its own vertices.
  static constexpr int kRows = m / kLanes;
  static constexpr int kSlices = kRows > kLanes ? kRows / kLanes : 1;
  static constexpr int kSliceRows = kRows / kSlices;

  // Banks of rows. A bank reads or accumulates one word a cycle; with twice as many banks as PEs,
  // products are accumulated while rows are read.
  static constexpr int kBanks = 2 * n;

  // On-chip memory, in words of 64 bytes. The 320 URAM blocks of a U250 die are used in groups of
  // 8, 4,096 words deep: rows take 192 blocks, half of the sums 32 and edges 40, in total 82.5 %.
  static constexpr int kRowWords = GNNSCALE_ROW_WORDS;  // output and aggregated rows of all stages
  static constexpr int kGatherRows = 16384;             // sums of all gather PEs, in each half
  static constexpr int kEdgeWords = 20480;              // words of 8 edges, read once if they fit

  static constexpr int kMaxWordsOut = 32;  // widest output row of a layer: 512 floats
  static_assert(kRowWords % 16384 == 0, "row words: a multiple of 16,384, whole blocks of URAM");
  static constexpr int kMaxStages = 16;  // products of a model

  // Words of rows that enter the array together.
  static constexpr int kLefts = min_of(min_of(kBanks, kRows), kLanes);
  // Aggregated rows that enter the array together, and sums that leave it together: one row word
  // for each sixteen rows of the array, which matches its throughput.
  static constexpr int kStep = min_of(kPes, kRows);
  static constexpr int kDrainStep = min_of(kPes, max_of(kRows / kLanes, 1));
  static constexpr int kDrains = max_of(kDrainStep, kSlices);

  // Rows interleaved on a row of the array if an output row is too narrow to hide the latency of
  // its sums.
  static constexpr int kMaxTurns = max_of(kBanks / kRows, kSumWindow);
};

}  // namespace gnnscale::fpga
