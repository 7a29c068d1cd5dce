"""``*_kernel_util_routed.rpt``: what placed and routed compute units take (UG1393)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from gnnscale.core import ConfigError
from gnnscale.options.file import read_regular
from gnnscale.plan.resources import Resources

_MAX_BYTES = 16 << 20
_MAX_AMOUNT = 1e12
#: Columns of the table, and the resource that each is.
_COLUMNS = {
    "LUT": "luts",
    "REG": "registers",
    "DSP": "dsps",
    "BRAM": "brams",
    "URAM": "urams",
}
#: A number, and its part of what the platform leaves: ``120401 [ 13.83%]``.
_CELL = re.compile(r"(\d+(?:\.\d+)?)(?:\s*\[\s*[\d.]+%\])?")


def read_utilization(file: Path, kernel: str) -> dict[str, Resources]:
    """Return what each compute unit of ``kernel`` takes, by its name.

    Raises:
        ConfigError: there is no such table, or no compute unit of the kernel in it.
    """
    text = read_regular(file, limit=_MAX_BYTES).decode(errors="replace")
    heads = next(
        (row for row in _rows(text) if row[0] == "Name" and set(_COLUMNS) <= set(row)), None
    )
    if heads is None:
        raise ConfigError(
            f"{file}: no table of {', '.join(_COLUMNS)}, is it kernel_util_routed.rpt of Vitis?"
        )
    units = re.compile(rf"{re.escape(kernel)}_\d+")
    found = {
        row[0]: _resources(row, heads, file)
        for row in _rows(text)
        if len(row) == len(heads) and units.fullmatch(row[0])
    }
    if not found:
        raise ConfigError(f"{file}: no compute unit of {kernel}; it is of another design")
    return found


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a table."""
    for line in StringIO(text):
        if line.lstrip().startswith("|"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def _resources(row: list[str], heads: list[str], file: Path) -> Resources:
    values = {}
    for column, name in _COLUMNS.items():
        cell = row[heads.index(column)]
        match = _CELL.fullmatch(cell)
        value = -1.0 if match is None else float(match[1])
        if not 0 <= value < _MAX_AMOUNT:
            raise ConfigError(f"{file}: {row[0]}: {column}={cell[:40]!r}: must be a number")
        values[name] = value
    return Resources(**values)
