"""A gather PE (``kernels/gather.hpp``), forward and backward, of functions that add messages."""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import ADD, GATHER_WINDOW, IN, URAM_READ, WORD, WRITE
from rtl.floats import operate
from rtl.memory import Memory
from rtl.streams import Outlet, delay, delay_valid, lanes, wait

MESSAGE = WORD + 32 + 1  # value, destination, end
DEPTH = IN + URAM_READ + ADD + WRITE


class RecentSums:
    """The sums that an operation of the last cycles writes: of a half, and a row of it."""

    def __init__(
        self, module: Module, window: int, operates: Value, half: Value, row: Value
    ) -> None:
        self._recent = []
        valid, place = operates, Cat(row, half)
        for _ in range(window - 1):
            valid, place = delay_valid(module, valid, 1), delay(module, place, 1)
            self._recent.append((valid, place))

    def has(self, half: Value, row: Value) -> Value:
        """Return whether one of them is this."""
        return Cat(valid & (place == Cat(row, half)) for valid, place in self._recent).any()


class Gather(wiring.Component):
    """``rows`` sums in each of two halves; ``log2_pes`` bits of a destination name the PE.

    A sum that was read is not read again for ``window`` cycles.
    """

    def __init__(self, rows: int, log2_pes: int, window: int = GATHER_WINDOW) -> None:
        self.rows, self.log2_pes, self.window = rows, log2_pes, window
        word = stream.Signature(WORD)
        super().__init__(
            {
                "forward": In(1),
                "passes": In(16),
                "sums": In(range(rows + 1)),
                "own": In(range(rows + 1)),
                "unclear": In(range(rows + 1)),
                "messages": In(stream.Signature(MESSAGE)),
                "gathered": Out(word),
                "even": Out(word),
                "odd": Out(word),
                "done": Out(1),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        outlets = [Outlet(WORD, DEPTH, stage=DEPTH - 1) for _ in range(3)]
        m.submodules.gathered_outlet, m.submodules.even_outlet, m.submodules.odd_outlet = outlets
        for outlet, port in zip(outlets, (self.gathered, self.even, self.odd), strict=True):
            wiring.connect(m, outlet.out, wiring.flipped(port))

        passed = Signal(16)
        cleared, leaving = Signal(range(self.rows + 1)), Signal(range(self.rows + 1))
        clears, gathers, ended, holds = Signal(), Signal(), Signal(), Signal()
        held = Signal(MESSAGE, reset_less=True)
        half = passed[0]

        # All sums are cleared first, and the pipeline of that runs empty.
        m.d.comb += clears.eq(cleared != self.unclear)
        m.d.sync += cleared.eq(cleared + clears)
        started = ~clears & ~delay_valid(m, clears, WRITE)
        some_leave = (passed != 0) & (leaving != self.sums)
        m.d.comb += gathers.eq(started & (~ended | some_leave))

        # A message is taken unless one waits.
        message = Signal(MESSAGE)
        has, ends, waits, adds, leaves = Signal(), Signal(), Signal(), Signal(), Signal()
        row = message[WORD + self.log2_pes :][: (self.rows - 1).bit_length()]
        leaving_row = leaving[: len(row)]
        m.d.comb += [
            self.messages.ready.eq(gathers & ~ended & ~holds),
            message.eq(Mux(holds, held, self.messages.payload)),
            has.eq(holds | (self.messages.ready & self.messages.valid)),
            ends.eq(has & message[-1]),
            adds.eq(has & ~message[-1] & ~waits),
        ]

        # One sum of the half that fills is read and written, and one of the other.
        added = RecentSums(m, self.window, adds, half, row)
        emptied = RecentSums(m, self.window, leaves, ~half, leaving_row)
        backward_room = Mux(leaving[0], outlets[2].room, outlets[1].room)
        room = Mux(self.forward, outlets[0].room, backward_room)
        m.d.comb += [
            waits.eq(added.has(half, row) | emptied.has(half, row)),
            leaves.eq(gathers & some_leave & room & ~added.has(~half, leaving_row)),
            outlets[0].launch.eq(leaves & self.forward),
            outlets[1].launch.eq(leaves & ~self.forward & ~leaving[0]),
            outlets[2].launch.eq(leaves & ~self.forward & leaving[0]),
        ]

        # The next pass; after the last one its sums leave.
        left, ended_now, begins = Signal.like(leaving), Signal(), Signal()
        m.d.comb += [
            left.eq(leaving + leaves),
            ended_now.eq(ended | ends),
            begins.eq(ended_now & ((passed == 0) | (left == self.sums)) & (passed != self.passes)),
        ]
        with m.If(gathers):
            m.d.sync += [
                holds.eq(has & ~adds & ~ends),
                held.eq(message),
                leaving.eq(Mux(begins, 0, left)),
                ended.eq(Mux(begins, passed + 1 == self.passes, ended_now)),
                passed.eq(passed + begins),
            ]
        runs_empty = wait(m, started & ~gathers, DEPTH)
        m.d.comb += self.done.eq(runs_empty & Cat(each.empty for each in outlets).all())

        operation = Signal(
            data.StructLayout(
                {"half": 1, "adds": 1, "leaves": 1, "row": len(row), "leaving": len(row)}
            )
        )
        m.d.comb += [
            operation.half.eq(half),
            operation.adds.eq(adds),
            operation.leaves.eq(leaves),
            operation.row.eq(row),
            operation.leaving.eq(leaving),
        ]
        word = self._sums(m, operation, message[:WORD], clears, cleared[: len(row)])
        for outlet in outlets:
            m.d.comb += outlet.value.eq(word)
        return m

    def _sums(
        self, m: Module, operation: data.View, value: Value, clears: Value, cleared: Value
    ) -> Value:
        """Read, add and write; return the sum that leaves, when its outlet takes it."""
        halves = [Memory(m, WORD, self.rows, kind) for kind in ("block", "ultra")]
        found = [delay(m, each.read_data, URAM_READ - 1) for each in halves]
        half = delay(m, operation.half, URAM_READ)
        # Own rows are copied: added to zero.
        copies = delay(m, self.forward & (operation.row < self.own), URAM_READ)
        filling = Mux(copies, 0, Mux(half, found[1], found[0]))
        leaving = Mux(half, found[0], found[1])
        values = delay(m, value, URAM_READ)
        pairs = zip(lanes(filling), lanes(values), strict=True)
        sums = Cat(operate(m, "add", *pair) for pair in pairs)
        late = data.View(operation.shape(), delay(m, operation.as_value(), URAM_READ + ADD))
        for number, memory in enumerate(halves):
            fills, filled = operation.half == number, late.half == number
            place = Mux(filled, late.row, late.leaving)
            m.d.comb += [
                memory.read_address.eq(Mux(fills, operation.row, operation.leaving)),
                memory.write_address.eq(Mux(clears, cleared, place)),
                memory.write_enable.eq(clears | Mux(filled, late.adds, late.leaves)),
                memory.write_data.eq(Mux(filled & ~clears, sums, 0)),
            ]
        # A row without messages is 0.
        complete = Cat(
            Cat(lane[:31], lane[31] & ~(self.forward & (lane[:31] == 0))) for lane in lanes(leaving)
        )
        return delay(m, complete, DEPTH - 1 - URAM_READ)
