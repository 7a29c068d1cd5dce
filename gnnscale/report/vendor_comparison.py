"""``gnnscale generate report=DIR``: a table, ``comparison.json`` and ``comparison.html``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnscale.fpga_design.vendor import Comparison, Figure
from gnnscale.report.formatting import ABSENT, count
from gnnscale.report.fpga_design import RESOURCES
from gnnscale.report.page.document import cell, document, section, table

_HEADS = ("", "estimated", "Vitis HLS", "routed", "routed / estimated")


def describe(comparison: Comparison) -> dict[str, Any]:
    """Return design, report files and figures as plain values for JSON; None: not reported."""
    return {
        "design": comparison.design.plain(),
        "files": [str(file) for file in comparison.files],
        "figures": [{**asdict(figure), "ratio": _ratio(figure)} for figure in comparison.figures],
    }


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print estimated and reported figures as a table, and the files of the reports."""
    figures_table = Table(title=Text(_title(comparison)))
    for number, head in enumerate(_HEADS):
        figures_table.add_column(head, justify="left" if number == 0 else "right")
    for figure in comparison.figures:
        figures_table.add_row(*_cells(figure))
    console.print(figures_table)
    for file in comparison.files:
        console.print(f"read: {file}", highlight=False, markup=False, soft_wrap=True)


def page(comparison: Comparison) -> str:
    """Return the text of ``comparison.html``: estimated and reported figures, and report files."""
    rows = [
        [cell(text, left=number == 0) for number, text in enumerate(_cells(figure))]
        for figure in comparison.figures
    ]
    files = "".join(table([], [[cell(str(file), long=True)]]) for file in comparison.files)
    note = "Estimates are by a model of the parts; the other columns are of the vendor's reports."
    parts = [section("Figures", table(_HEADS, rows)), section("Reports", files)]
    return document(_title(comparison), note, parts)


def _title(comparison: Comparison) -> str:
    design = comparison.design
    return f"({design.n}, {design.m}) on the {design.board}: estimated, and by the vendor's tools"


def _cells(figure: Figure) -> list[str]:
    ratio = _ratio(figure)
    values = (figure.estimated, figure.synthesized, figure.routed)
    return [
        f"{RESOURCES.get(figure.name, figure.name)}, {figure.unit}",
        *(ABSENT if value is None else count(round(value)) for value in values),
        ABSENT if ratio is None else f"{ratio:.2f}",
    ]


def _ratio(figure: Figure) -> float | None:
    if figure.routed is None or not figure.estimated:
        return None
    return figure.routed / figure.estimated
