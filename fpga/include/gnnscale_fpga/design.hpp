// The sizes of one compute unit. Everything else is a template over them.
#pragma once

#include "gnnscale_fpga/operators.hpp"
#include "gnnscale_fpga/word.hpp"

// Words of a compute unit's memory of rows. A board with less URAM has fewer.
#ifndef GNNSCALE_ROW_WORDS
#define GNNSCALE_ROW_WORDS 98304
#endif

namespace gnnscale::fpga {

// n and m as in HitGNN, section V-C: scatter-gather PEs, and
// multiply-accumulate units.
template <int n, int m>
struct Design {
  static_assert(n == 1 || n == 2 || n == 4 || n == 8 || n == 16, "n: a power of two up to 16");
  static_assert(m >= 16 && m <= 2048 && (m & (m - 1)) == 0, "m: a power of two, 16 to 2048");

  static constexpr int kPes = n;
  static constexpr int kMultipliers = m;

  // The systolic array: rows of 16 multiply-accumulate units. For the gradients
  // of weights it is cut into slices of up to 16 rows, each with vertices of
  // its own.
  static constexpr int kRows = m / kLanes;
  static constexpr int kSlices = kRows > kLanes ? kRows / kLanes : 1;
  static constexpr int kSliceRows = kRows / kSlices;

  // Banks of rows. One bank reads or adds to a word in a cycle, so there
  // are twice as many as PEs: products are added while rows are read.
  static constexpr int kBanks = 2 * n;

  // On-chip memory, in words of 64 bytes. Of the 320 blocks of URAM of a U250's die, 8 side by
  // side and 4,096 words deep, rows take 192, half of the sums 32 and edges 40: 82.5 %.
  static constexpr int kRowWords = GNNSCALE_ROW_WORDS;  // output and aggregated rows, all stages
  static constexpr int kGatherRows = 16384;             // sums of all gather PEs, in each half
  static constexpr int kEdgeWords = 20480;              // words of 8 edges, read once if they fit

  static constexpr int kMaxWordsOut = 32;  // widest output row of a layer: 512 floats
  static_assert(kRowWords % 16384 == 0, "row words: a multiple of 16,384, whole blocks of URAM");
  static constexpr int kMaxStages = 16;  // products of a model

  // Words of rows that go to the array together.
  static constexpr int kLefts = min_of(min_of(kBanks, kRows), kLanes);
  // Aggregated rows that come to it together, and sums that leave it together: a word of a row for
  // each sixteen rows of the array, which is as many as it makes.
  static constexpr int kStep = min_of(kPes, kRows);
  static constexpr int kDrainStep = min_of(kPes, max_of(kRows / kLanes, 1));
  static constexpr int kDrains = max_of(kDrainStep, kSlices);

  // Rows that take turns on a row of the array if an output row is so narrow
  // that its sums would not be ready.
  static constexpr int kMaxTurns = max_of(kBanks / kRows, kSumWindow);
};

}  // namespace gnnscale::fpga
