"""The sizes of a design, as ``fpga/include/gnnscale_fpga/design.hpp`` has them."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.planner.fpga_board import Resources

#: Floats of a word.
LANES = 16

#: Cycles of operators and memories (``operators.hpp``).
ADD, MULTIPLY, READ, URAM_READ = 7, 4, 1, 3
SUM_WINDOW, GATHER_WINDOW = READ + ADD + 1, URAM_READ + ADD + 1


@dataclass(frozen=True, kw_only=True)
class DesignSize:
    """n scatter-gather PEs, m multiply-accumulate units, and words of 512 bits on the chip."""

    n: int
    m: int
    row_words: int = 98304
    gather_rows: int = 16384
    edge_words: int = 20480
    max_words_out: int = 32

    @property
    def banks(self) -> int:
        """Of rows."""
        return 2 * self.n

    @property
    def rows(self) -> int:
        """Of the array."""
        return self.m // LANES

    @property
    def slices(self) -> int:
        """Of the array, for the gradients of weights."""
        return max(self.rows // LANES, 1)

    @property
    def lefts(self) -> int:
        """Words of rows that go to the array together."""
        return min(self.banks, self.rows, LANES)

    @property
    def step(self) -> int:
        """Aggregated rows that go to the array together."""
        return min(self.n, self.rows)

    @property
    def drain_step(self) -> int:
        """Rows whose sums leave the array together."""
        return min(self.n, max(self.rows // LANES, 1))

    @property
    def drains(self) -> int:
        """Streams of sums that come from the array."""
        return max(self.drain_step, self.slices)

    @property
    def max_turns(self) -> int:
        """Rows that take turns on a row of the array."""
        return max(self.banks // self.rows, SUM_WINDOW)

    @property
    def sums_of_row(self) -> int:
        """Of the array, in each half."""
        return max(self.max_words_out, 2 * self.max_turns)

    @property
    def routing_stages(self) -> int:
        """Of n / 2 switches each."""
        return self.n.bit_length() - 1


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Operators of float32, but for the last two."""

    name: str
    add: Resources
    multiply: Resources
    compare: Resources
    divide: Resources
    exponential: Resources
    logarithm: Resources
    multiply_64: Resources  #: the lower half of a product of integers of 64 bits
    divide_integers: Resources  #: of 32 bits, a bit a cycle, outside of loops
    #: Whether results that a stream does not take wait in a memory after the pipeline, not in its
    #: stages.
    holds_in_memory: bool = False
    #: Whether the last bits of a deep memory share blocks of URAM.
    folds_memories: bool = False


#: What the reports of Vitis HLS print for UltraScale+ at 300 MHz, in the forms that the kernels ask
#: for (``bind_op``); the Floating-Point Operator guide (PG060) has the same DSP slices. Neither it
#: nor Vivado ever ran here.
VITIS_HLS = Tool(
    name="Vitis HLS",
    add=Resources(luts=198, registers=318, dsps=2),
    multiply=Resources(luts=78, registers=143, dsps=3),
    compare=Resources(luts=66, registers=66),
    divide=Resources(luts=802, registers=761),
    exponential=Resources(luts=905, registers=324, dsps=7),
    logarithm=Resources(luts=754, registers=411, dsps=13),
    multiply_64=Resources(luts=64, registers=160, dsps=10),
    divide_integers=Resources(luts=238, registers=394),
)
