// Cycles of operators and memories. Pragmas ask Vitis HLS for them, and C
// simulation charges them. None was ever synthesized.
#pragma once

namespace gnnscale::fpga {

// Of floats. An adder of seven stages and a multiplier of four are what Vitis
// HLS takes for 300 MHz on UltraScale+; the others are assumed.
constexpr int kAdd = 7;
constexpr int kMultiply = 4;
constexpr int kCompare = 2;
constexpr int kDivide = 16;
constexpr int kExponential = 16;
constexpr int kLogarithm = 16;
constexpr int kHash = 16;  // mixes 64 bits, by two products

// Of memory on the chip. Blocks of URAM in a chain have a register between them.
constexpr int kRead = 1;
constexpr int kUramRead = 3;
constexpr int kWrite = 1;

// A FIFO on either side of a pipeline.
constexpr int kIn = 1;
constexpr int kOut = 1;

// From the read of a sum to the first cycle in which it can be read again: of the array, and of a
// gather PE, half of whose sums are in URAM.
constexpr int kSumWindow = kRead + kAdd + kWrite;
constexpr int kGatherWindow = kUramRead + kAdd + kWrite;

}  // namespace gnnscale::fpga
