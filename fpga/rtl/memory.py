"""Memories of a part: the modules of ``memory.v``."""

from __future__ import annotations

from typing import Literal

from amaranth import ClockSignal, Instance, Module, Signal


class Memory:
    """A memory of ``depth`` words of ``width`` bits, with a place to read and one to write.

    What is read of LUTs is there at once, what is read of a ``block`` or an ``ultra`` (BRAM, URAM)
    a cycle later.
    """

    def __init__(
        self,
        module: Module,
        width: int,
        depth: int,
        kind: Literal["lut", "block", "ultra"] = "lut",
    ) -> None:
        bits = max((depth - 1).bit_length(), 1)
        self.read_address, self.write_address = Signal(bits), Signal(bits)
        self.read_data, self.write_data = Signal(width), Signal(width)
        self.write_enable = Signal()
        module.submodules += Instance(
            "lut_memory" if kind == "lut" else "block_memory",
            **({} if kind == "lut" else {"p_STYLE": kind}),
            p_WIDTH=width,
            p_DEPTH=depth,
            p_BITS=bits,
            i_clk=ClockSignal(),
            i_read_address=self.read_address,
            o_read_data=self.read_data,
            i_write_address=self.write_address,
            i_write_data=self.write_data,
            i_write_enable=self.write_enable,
        )
