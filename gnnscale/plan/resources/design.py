"""The sizes of a design, as ``fpga/include/gnnscale_fpga/design.hpp`` has them."""

from __future__ import annotations

from dataclasses import dataclass

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
