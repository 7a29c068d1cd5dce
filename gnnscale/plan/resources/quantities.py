"""The resources of an FPGA."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Resources:
    """How much of each there is, or is taken.

    Attributes:
        luts: look-up tables of six inputs, those used as memory included.
        registers: of a bit.
        dsps: DSP slices.
        brams: blocks of 36 Kbit.
        urams: blocks of 288 Kbit.
    """

    luts: float = 0
    registers: float = 0
    dsps: float = 0
    brams: float = 0
    urams: float = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(**{each: getattr(self, each) + getattr(other, each) for each in NAMES})

    def __mul__(self, count: float) -> Resources:
        return Resources(**{each: getattr(self, each) * count for each in NAMES})

    __rmul__ = __mul__


#: Their names, in this order.
NAMES = tuple(each.name for each in fields(Resources))


def total(parts: Iterable[Resources]) -> Resources:
    """Return the sum of ``parts``."""
    return sum(parts, Resources())
