"""``*_timing_summary_routed.rpt``: whether a routed design keeps its clock (UG906)."""

from __future__ import annotations

import re
from pathlib import Path

from gnnscale.core import ConfigError
from gnnscale.options.file import read_regular

_MAX_BYTES = 256 << 20
_TITLE = re.compile(rb"^[ \t]*\| Design Timing Summary[ \t\r]*$", re.MULTILINE)
#: Lines and bytes from the title to the figures, at most.
_REACH, _REACH_BYTES = 12, 16 << 10


def read_slack(file: Path) -> float:
    """Return the worst negative slack in nanoseconds: what is left of the clock's period.

    Raises:
        ConfigError: there is no such summary.
    """
    content = read_regular(file, limit=_MAX_BYTES)
    title = _TITLE.search(content)
    if title is not None:
        after = content[title.start() : title.start() + _REACH_BYTES]
        lines = after.decode(errors="replace").splitlines()
        for at in range(min(_REACH, len(lines) - 2)):
            if lines[at].split()[:1] == ["WNS(ns)"]:
                return _slack(lines[at + 2], file)
    raise ConfigError(f"{file}: no design timing summary, is it timing_summary_routed.rpt?")


def _slack(line: str, file: Path) -> float:
    first = line.split()[0] if line.split() else ""
    try:
        value = float(first)
    except ValueError:
        value = float("nan")
    if not -1e6 < value < 1e6:
        raise ConfigError(f"{file}: WNS(ns)={first[:40]!r}: must be a number of nanoseconds")
    return value
