"""A row of the blocks that the systolic array multiplies: a memory of LUTs, and a lane of it."""

from __future__ import annotations

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import READ, WORD
from rtl.memory import Memory
from rtl.streams import delay


class BlockRow(wiring.Component):
    """``depth`` words, of which one is there READ cycles later, and lane ``lane`` of it."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        bits = (depth - 1).bit_length()
        super().__init__(
            {
                "read_address": In(bits),
                "write_address": In(bits),
                "write_data": In(WORD),
                "write_enable": In(1),
                "lane": In(4),
                "word": Out(WORD),
                "value": Out(32),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        memory = Memory(m, WORD, self.depth)
        word = delay(m, memory.read_data, READ)
        m.d.comb += [
            memory.read_address.eq(self.read_address),
            memory.write_address.eq(self.write_address),
            memory.write_data.eq(self.write_data),
            memory.write_enable.eq(self.write_enable),
            self.word.eq(word),
            self.value.eq(word.word_select(self.lane, 32)),
        ]
        return m
