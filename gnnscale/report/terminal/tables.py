"""Tables on terminals of any width."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

__all__ = ["fits"]

#: More columns than any terminal has.
_NO_LIMIT = 100_000


def fits(table: Table, console: Console) -> bool:
    """Return whether ``console`` is wide enough for every cell of ``table``."""
    options = console.options.update(width=_NO_LIMIT)
    return console.measure(table, options=options).maximum <= console.width
