from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from gnnscale.report.terminal.tables import fits


@pytest.mark.parametrize(("width", "expected"), [(20, True), (19, False)])
def test_a_table_fits_to_the_last_cell(width: int, expected: bool) -> None:
    table = Table(box=None, padding=0, pad_edge=False)
    for cell in ("0123456789", "abcdefghij"):
        table.add_column(cell, no_wrap=True)
    table.add_row("x", "y")
    assert fits(table, Console(file=io.StringIO(), width=width)) == expected
