"""What the parts have in common: delays, and the way of results to a stream."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import LANES
from rtl.memory import Memory


def delay(module: Module, value: Value, cycles: int) -> Value:
    """Return ``value`` as it was ``cycles`` cycles ago."""
    for _ in range(cycles):
        register = Signal(len(value), reset_less=True)
        module.d.sync += register.eq(value)
        value = register
    return value


def delay_valid(module: Module, valid: Value, cycles: int) -> Value:
    """Return a bit as it was ``cycles`` cycles ago; 0 after a reset."""
    for _ in range(cycles):
        register = Signal()
        module.d.sync += register.eq(valid)
        valid = register
    return valid


def lanes(word: Value) -> list[Value]:
    """Return the floats of a word."""
    return [word.word_select(lane, 32) for lane in range(LANES)]


def wait(module: Module, ended: Value, cycles: int) -> Value:
    """Return whether ``ended`` has held for ``cycles`` cycles, in which a pipeline runs empty."""
    count = Signal(range(cycles + 1))
    with module.If(ended & (count != cycles)):
        module.d.sync += count.eq(count + 1)
    return count == cycles


class Outlet(wiring.Component):
    """The end of a pipeline of ``depth`` stages, in front of a stream.

    A result is launched, and stands in ``value`` ``stage`` cycles later. The stream gets it
    ``depth - 1`` cycles after the launch. What it does not take is held, as in the stages of a
    flushable pipeline: ``room`` is whether one more may be launched. With a FIFO of f elements
    after it, f + depth - 1 are on their way at most, which is what C simulation counts.
    """

    def __init__(self, width: int, depth: int, stage: int) -> None:
        self.capacity, self.stage = depth - 1, stage
        super().__init__(
            {
                "launch": In(1),
                "value": In(width),
                "room": Out(1),
                "empty": Out(1),
                "out": Out(stream.Signature(width)),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        flying, leaves = Signal(range(self.capacity + 1)), Signal()
        m.d.comb += [
            leaves.eq(self.out.valid & self.out.ready),
            self.room.eq((flying != self.capacity) | leaves),
            self.empty.eq(flying == 0),
        ]
        m.d.sync += flying.eq(flying + self.launch - leaves)
        if self.capacity == 1:
            self._hold_one(m, flying)
        else:
            self._hold(m)
        return m

    def _hold_one(self, m: Module, flying: Value) -> None:
        held = Signal(len(self.value), reset_less=True)
        with m.If(self.launch):
            m.d.sync += held.eq(self.value)
        m.d.comb += [self.out.valid.eq(flying), self.out.payload.eq(held)]

    def _hold(self, m: Module) -> None:
        """Delay the results, and hold those that the stream does not take at once."""
        arrives = delay_valid(m, self.launch, self.capacity)
        value = delay(m, self.value, self.capacity - self.stage)
        memory = Memory(m, len(value), self.capacity)
        held, first, last = (Signal(range(self.capacity + 1)) for _ in range(3))
        waits, holds, fetches = Signal(), Signal(), Signal()
        m.d.comb += [
            waits.eq(held != 0),
            self.out.valid.eq(arrives | waits),
            self.out.payload.eq(Mux(waits, memory.read_data, value)),
            holds.eq(arrives & (waits | ~self.out.ready)),
            fetches.eq(waits & self.out.ready),
            memory.read_address.eq(first),
            memory.write_address.eq(last),
            memory.write_data.eq(value),
            memory.write_enable.eq(holds),
        ]
        m.d.sync += held.eq(held + holds - fetches)
        with m.If(holds):
            m.d.sync += last.eq(Mux(last == self.capacity - 1, 0, last + 1))
        with m.If(fetches):
            m.d.sync += first.eq(Mux(first == self.capacity - 1, 0, first + 1))
