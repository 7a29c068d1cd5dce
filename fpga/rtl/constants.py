"""The constants of the kernels: cycles of operators and memories, and sizes of a design."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1] / "include" / "gnnscale_fpga"


def _constants(header: str) -> dict[str, int]:
    text = (_ROOT / header).read_text()
    return {name: int(value) for name, value in re.findall(r"constexpr int (k\w+) = (\d+);", text)}


_OPERATORS = _constants("operators.hpp")
_SIZES = _constants("design.hpp")

ADD, MULTIPLY = _OPERATORS["kAdd"], _OPERATORS["kMultiply"]
READ, URAM_READ, WRITE = (_OPERATORS[name] for name in ("kRead", "kUramRead", "kWrite"))
IN, OUT = _OPERATORS["kIn"], _OPERATORS["kOut"]
#: From the read of a sum to the first cycle in which it can be read again: of the array, and of a
#: gather PE.
SUM_WINDOW = READ + ADD + WRITE
GATHER_WINDOW = URAM_READ + ADD + WRITE
#: Floats of a word, and its bits.
LANES = 16
WORD = 32 * LANES
#: Sums of all gather PEs, in each half.
GATHER_ROWS = _SIZES["kGatherRows"]
#: Words of the widest output row.
MAX_WORDS_OUT = _SIZES["kMaxWordsOut"]
