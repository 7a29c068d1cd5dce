// Cycles of operators and memories. Pragmas request them from Vitis HLS, and C simulation charges
// them. None was ever synthesized.
#pragma once

namespace gnnscale::fpga {

// Float operators. Vitis HLS uses an adder of seven stages and a multiplier of four for 300 MHz on
// UltraScale+; all other values are assumed.
constexpr int kAdd = 7;
constexpr int kMultiply = 4;
constexpr int kCompare = 2;
constexpr int kDivide = 16;
constexpr int kExponential = 16;
constexpr int kLogarithm = 16;
constexpr int kHash = 16;  // mixes 64 bits, by two products

// On-chip memory. Chained URAM blocks have a register between them.
constexpr int kRead = 1;
constexpr int kUramRead = 3;
constexpr int kWrite = 1;

// A FIFO at either end of a pipeline.
constexpr int kIn = 1;
constexpr int kOut = 1;

// Cycles from a read of a sum to its next possible read: in the array, and in a gather PE, half of
// whose sums are in URAM.
constexpr int kSumWindow = kRead + kAdd + kWrite;
constexpr int kGatherWindow = kUramRead + kAdd + kWrite;

}  // namespace gnnscale::fpga
