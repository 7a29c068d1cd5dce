"""The parts of a design with two scatter-gather PEs, as C simulation and the model have them."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.lib import wiring

from rtl.constants import GATHER_ROWS, LANES, SUM_WINDOW
from rtl.gather import Gather
from rtl.scatter import Scatter
from rtl.switch import Switch
from rtl.systolic_array import SystolicArray

#: Scatter-gather PEs: a network of one switch.
PES = 2
#: Multiply-accumulate units of the design that ``u250.cfg`` has on each die, whose array is a tile
#: of 16 x 16, and of a small engine.
TILE, SMALL = 256, 32


def gather(**options: int) -> Gather:
    """Return a gather PE."""
    return Gather(GATHER_ROWS // PES, log2_pes=PES.bit_length() - 1, **options)


def array(m: int) -> SystolicArray:
    """Return the array of ``m`` multiply-accumulate units."""
    rows, banks = m // LANES, 2 * PES
    return SystolicArray(rows, min(banks, rows), max_turns=max(banks // rows, SUM_WINDOW))


#: The parts by their names, of which that of the array takes ``m``.
NAMES = ("scatter", "switch", "gather", "array")


def part(name: str, m: int) -> wiring.Component:
    """Return a part."""
    if name == "array":
        return array(m)
    return {"scatter": Scatter, "switch": lambda: Switch(bit=0), "gather": gather}[name]()


def shared(part: wiring.Component) -> Mapping[str, wiring.Component]:
    """Return the modules that a part has several of."""
    return part.shared if isinstance(part, SystolicArray) else {}
