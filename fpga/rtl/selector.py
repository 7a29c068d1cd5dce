"""One of several floats."""

from __future__ import annotations

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Selector(wiring.Component):
    """Chooses float ``number`` of ``count``."""

    def __init__(self, count: int) -> None:
        self.count = count
        bits = max((count - 1).bit_length(), 1)
        super().__init__({"floats": In(32 * count), "number": In(bits), "chosen": Out(32)})

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        m.d.comb += self.chosen.eq(self.floats.word_select(self.number, 32))
        return m
