"""A switch of the routing network (``kernels/route.hpp``): two inputs, two outputs."""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import IN, OUT, WORD
from rtl.gather import MESSAGE
from rtl.streams import Outlet, wait

DEPTH = IN + OUT


class Switch(wiring.Component):
    """A message leaves on the side that bit ``bit`` of its destination names."""

    def __init__(self, bit: int) -> None:
        self.bit = bit
        message = stream.Signature(MESSAGE)
        super().__init__(
            {
                "passes": In(16),
                "lower_in": In(message),
                "upper_in": In(message),
                "lower_out": Out(message),
                "upper_out": Out(message),
                "done": Out(1),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        inputs, outputs = (self.lower_in, self.upper_in), (self.lower_out, self.upper_out)
        outlets = [Outlet(MESSAGE, DEPTH, stage=0) for _ in range(2)]
        m.submodules.lower, m.submodules.upper = outlets
        passed = Signal(16)
        running, second_first = Signal(), Signal()
        m.d.comb += running.eq(passed != self.passes)
        messages, there, ends, uppers, leaves = [], [], [], [], []
        for number, port in enumerate(inputs):
            held, holds, message = (
                Signal(MESSAGE, reset_less=True, name=f"held_{number}"),
                Signal(name=f"holds_{number}"),
                Signal(MESSAGE, name=f"message_{number}"),
            )
            has, leave = Signal(name=f"has_{number}"), Signal(name=f"leave_{number}")
            m.d.comb += [
                port.ready.eq(running & ~holds),
                message.eq(Mux(holds, held, port.payload)),
                has.eq(holds | (port.ready & port.valid)),
            ]
            m.d.sync += [held.eq(message), holds.eq(has & ~leave)]
            messages.append(message)
            there.append(has)
            ends.append(has & message[-1])
            uppers.append(message[WORD + self.bit])
            leaves.append(leave)

        # A pass ends for both at once.
        both_end, end = Signal(), Signal()
        m.d.comb += both_end.eq(ends[0] & ends[1])
        m.d.comb += end.eq(both_end & outlets[0].room & outlets[1].room)
        m.d.sync += passed.eq(passed + end)
        from_upper, sends = [], []
        for side, outlet in enumerate(outlets):
            wants = [there[i] & ~ends[i] & (uppers[i] == side) for i in range(2)]
            both = Signal(name=f"both_{side}")
            upper, sent = Signal(name=f"from_upper_{side}"), Signal(name=f"sends_{side}")
            m.d.comb += [
                both.eq(wants[0] & wants[1]),
                upper.eq(Mux(both, second_first, wants[1])),
                sent.eq((wants[0] | wants[1]) & outlet.room),
                outlet.launch.eq(sent | end),
            ]
            chosen = Mux(Mux(both_end, side, upper), messages[1], messages[0])
            m.d.comb += outlet.value.eq(chosen)
            wiring.connect(m, outlet.out, wiring.flipped(outputs[side]))
            with m.If(both & sent):
                m.d.sync += second_first.eq(~upper)
            from_upper.append(upper)
            sends.append(sent)
        for number in range(2):
            sent = [sends[side] & (from_upper[side] == number) for side in range(2)]
            m.d.comb += leaves[number].eq(end | sent[0] | sent[1])
        runs_empty = wait(m, ~running, DEPTH)
        m.d.comb += self.done.eq(runs_empty & Cat(each.empty for each in outlets).all())
        return m
