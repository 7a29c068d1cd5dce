"""A scatter PE (``kernels/scatter.hpp``), of functions that weight rows."""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import IN, MULTIPLY, OUT, WORD
from rtl.floats import operate
from rtl.gather import MESSAGE
from rtl.streams import Outlet, delay, lanes, wait

EDGE = 32 + 32 + 32 + 1  # source, destination, weight, end
ROW = WORD + 32  # value, source
DEPTH = IN + MULTIPLY + OUT
ONE = 0x3F800000  # 1.0


class Scatter(wiring.Component):
    """A message for each edge, of the row that is held."""

    def __init__(self) -> None:
        super().__init__(
            {
                "forward": In(1),
                "passes": In(16),
                "own": In(32),
                "edges": In(stream.Signature(EDGE)),
                "rows": In(stream.Signature(ROW)),
                "messages": Out(stream.Signature(MESSAGE)),
                "done": Out(1),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        m.submodules.outlet = outlet = Outlet(MESSAGE, DEPTH, stage=MULTIPLY)
        wiring.connect(m, outlet.out, wiring.flipped(self.messages))
        passed = Signal(16)
        running, waits, there, needs_row, sends, held_one = (Signal() for _ in range(6))
        edge, waiting = Signal(EDGE), Signal(EDGE, reset_less=True)
        row, held = Signal(ROW), Signal(ROW, reset_less=True)
        source, destination, weight, end = edge[:32], edge[32:64], edge[64:96], edge[96]
        m.d.comb += [
            running.eq(passed != self.passes),
            self.edges.ready.eq(running & ~waits),
            edge.eq(Mux(waits, waiting, self.edges.payload)),
            there.eq(waits | (self.edges.ready & self.edges.valid)),
            needs_row.eq(there & ~end & ~(held_one & (held[WORD:] == source))),
            self.rows.ready.eq(needs_row),
            row.eq(Mux(needs_row, self.rows.payload, held)),
            sends.eq(there & (~needs_row | self.rows.valid) & outlet.room),
            outlet.launch.eq(sends),
        ]
        m.d.sync += [
            waits.eq(there & ~sends),
            waiting.eq(edge),
            passed.eq(passed + (sends & end)),
        ]
        with m.If(needs_row & self.rows.valid):
            m.d.sync += [held.eq(self.rows.payload), held_one.eq(1)]
        with m.If(sends & end):
            m.d.sync += held_one.eq(0)

        # Own rows are copied.
        own = Mux(self.forward, destination, row[WORD:]) < self.own
        factor = Mux(own, Const(ONE, 32), weight)
        products = Cat(operate(m, "multiply", lane, factor) for lane in lanes(row[:WORD]))
        passed_on = delay(m, Cat(destination, end), MULTIPLY)
        m.d.comb += outlet.value.eq(Cat(products, passed_on))
        m.d.comb += self.done.eq(wait(m, ~running, DEPTH) & outlet.empty)
        return m
