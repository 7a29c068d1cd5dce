"""Sizes of a design, as in ``fpga/include/gnnscale_fpga/design.hpp``, and operators of a tool."""

from dataclasses import dataclass

from gnnscale.planner.fpga_board import Resources

#: Floats of a word.
LANES = 16

#: Latency in cycles of operators and memories (``operators.hpp``).
ADD, MULTIPLY, READ, URAM_READ = 7, 4, 1, 3
SUM_WINDOW, GATHER_WINDOW = READ + ADD + 1, URAM_READ + ADD + 1


@dataclass(frozen=True, kw_only=True)
class DesignSize:
    """Size of a compute unit: PEs, multipliers and on-chip memory.

    It has n scatter-gather PEs, m multiply-accumulate units, and memories in 512-bit words.
    """

    n: int
    m: int
    row_words: int = 98304
    gather_rows: int = 16384
    edge_words: int = 20480
    max_words_out: int = 32

    @property
    def banks(self) -> int:
        """Number of banks of the memory of feature rows: two for each scatter-gather PE."""
        return 2 * self.n

    @property
    def rows(self) -> int:
        """Number of rows, of 16 units each, of the multiply-accumulate array."""
        return self.m // LANES

    @property
    def slices(self) -> int:
        """Number of slices of up to 16 array rows, between which weight gradients are divided."""
        return max(self.rows // LANES, 1)

    @property
    def lefts(self) -> int:
        """Number of feature rows of which a 512-bit word enters the array in one cycle."""
        return min(self.banks, self.rows, LANES)

    @property
    def step(self) -> int:
        """Number of aggregated rows of which a 512-bit word enters the array in one cycle."""
        return min(self.n, self.rows)

    @property
    def drain_step(self) -> int:
        """Number of output rows of which a 512-bit word leaves the array in one cycle."""
        return min(self.n, max(self.rows // LANES, 1))

    @property
    def drains(self) -> int:
        """Number of streams of sums out of the array, for output rows or for slices."""
        return max(self.drain_step, self.slices)

    @property
    def max_turns(self) -> int:
        """Maximum feature rows interleaved on an array row, which hides the adders' latency."""
        return max(self.banks // self.rows, SUM_WINDOW)

    @property
    def sums_of_row(self) -> int:
        """Number of 512-bit words of sums in each half of an array row's double buffer."""
        return max(self.max_words_out, 2 * self.max_turns)

    @property
    def routing_stages(self) -> int:
        """Number of stages, of n / 2 switches, that route messages to gather PEs: log2(n)."""
        return self.n.bit_length() - 1


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Resources of each operator as a synthesis tool builds it: float32 unless stated otherwise."""

    name: str
    add: Resources
    multiply: Resources
    compare: Resources
    divide: Resources
    exponential: Resources
    logarithm: Resources
    multiply_64: Resources  #: lower half of a 64-bit integer product
    divide_integers: Resources  #: 32-bit integers, one bit per cycle, outside of loops
    #: Whether stalled results wait in a memory behind the pipeline, instead of its stages.
    holds_in_memory: bool = False
    folds_memories: bool = False  #: Whether the last columns of deep memories share URAM blocks


#: Values from Vitis HLS reports for UltraScale+ at 300 MHz, with the operator forms of the kernels
#: (``bind_op``). The Floating-Point Operator guide (PG060) confirms the DSP slices. Neither Vitis
#: HLS nor Vivado was run for this project.
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
