"""The page and the document of all tables."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.paper_tables import independence
from benchmarks.paper_tables.plots import scatter
from benchmarks.paper_tables.rows import Table
from benchmarks.paper_tables.sensitivity import Effect
from gnnscale.report.page.document import cell, document, heading, section
from gnnscale.report.page.document import table as html_table

_NOTE = (
    "Every predicted figure is simulated, by equations and stated rates; none was measured on "
    "hardware. Published figures are the papers'."
)
_MEAN_HEADS = ("table or figure", "figures", "mean absolute error")
_COUNT_HEADS = ("table or figure", "figures", "independent", "the rest follow from")
_ROW_HEADS = ("", "published", "predicted", "", "error", "")
_SCATTERED = 8
_HYSCALE_CELLS = "the ten cells of HyScale-GNN's Table VI, in its order"
#: Cells of a table as text.
Cells = list[list[str]]


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def error(value: float | None) -> str:
    """Return an error in percent; one below 1 % has two decimals, so that it is not called 0."""
    if value is None:
        return "-"
    return f"{value:+.{2 if 0 < abs(value) < 0.01 else 0}%}".replace("%", " %")


def mean_errors(tables: Sequence[Table]) -> Iterator[tuple[str, str, float]]:
    for each in tables:
        if each.mean_error is not None:
            yield each.name, f"{known(each)}", each.mean_error


def known(table: Table) -> int:
    return sum(row.error is not None for row in table.rows)


def counted(tables: Sequence[Table]) -> Cells:
    found = independence.counts(tables)
    return [[each.table, f"{each.figures}", f"{each.independent}", each.rest] for each in found]


def cells_of(table: Table) -> Cells:
    rows = []
    for row in table.rows:
        values = (figure(row.published), figure(row.predicted))
        rows.append([row.cell, *values, row.unit, error(row.error), row.note])
    return rows


def effect_cells(effects: Sequence[Effect]) -> Cells:
    return [
        [each.what, *map(error, each.hyscale), f"{each.mean:.0%}", f"{each.hitgnn:.0%}"]
        for each in effects
    ]


def page(tables: Sequence[Table], effects: Sequence[Effect]) -> str:
    means = [[name, count, error(mean)[1:]] for name, count, mean in mean_errors(tables)]
    parts = [section("Mean errors", _html(_MEAN_HEADS, means))]
    notes = "".join(f"<p>{escape(note)}</p>" for note in independence.notes())
    counts = _html(_COUNT_HEADS, counted(tables), left=(0, 3))
    parts.append(section("What these figures do not show", counts + notes))
    parts += [section(each.name, _content(each)) for each in tables]
    numbers = [str(number + 1) for number in range(len(effects[0].hyscale))]
    heads = ["one assumption changed", *numbers, "mean", "HitGNN, mean"]
    said = f"<p>Errors of {_HYSCALE_CELLS}; and the mean of HitGNN's 24.</p>"
    moved = said + _html(heads, effect_cells(effects))
    parts.append(section("Which assumption moves which cell", moved))
    title = "The papers' tables and figures, predicted"
    return document(title, heading(title, _NOTE) + "".join(parts))


def _html(heads: Sequence[str], rows: Cells, left: Sequence[int] = (0,)) -> str:
    cells = [[cell(text, is_text=index in left) for index, text in enumerate(row)] for row in rows]
    return html_table([*heads], cells)


def _content(each: Table) -> str:
    parts = list(each.plots)
    if known(each) >= _SCATTERED:
        parts.append(scatter(each))
    parts += [
        f"<p>{'holds' if c.holds else 'does not hold'}: {escape(c.what)}</p>" for c in each.claims
    ]
    parts.append(_html(_ROW_HEADS, cells_of(each), left=(0, 3, 5)))
    if each.mean_error is not None:
        parts.append(f"<p>Mean absolute error {each.mean_error:.1%}.</p>")
    parts += [f'<p class="soft">{escape(each)}</p>' for each in each.assumptions]
    return "".join(parts)


def markdown(tables: Sequence[Table], effects: Sequence[Effect]) -> str:
    """Return ``docs/paper-results.md``."""
    means = [[name, count, f"{mean:.1%}"] for name, count, mean in mean_errors(tables)]
    lines = [
        "# The papers' tables and figures, predicted",
        "",
        "`python scripts/benchmarks/paper_tables --docs` writes this page, and one with plots, "
        "`outputs/reproduced.html`. " + _NOTE,
        "",
        *_table(_MEAN_HEADS, means),
    ]
    lines += ["", "## What these figures do not show", "", *_table(_COUNT_HEADS, counted(tables))]
    lines += ["", *(f"- {note}" for note in independence.notes())]
    first: dict[str, str] = {}  # the table in which an assumption is written
    for each in tables:
        lines += ["", f"## {each.name}", ""]
        lines += [f"- {'Holds' if c.holds else 'Does not hold'}: {c.what}." for c in each.claims]
        if each.claims:
            lines.append("")
        lines += [*_curves(each)] or [*_table(_ROW_HEADS, cells_of(each))]
        if each.assumptions:
            lines += ["", *(f"- {each}" for each in _new(each, first))]
    lines += ["", "## Which assumption moves which cell", ""]
    lines += [f"Errors of {_HYSCALE_CELLS}, and the mean of HitGNN's 24 epochs.", ""]
    numbers = [str(number + 1) for number in range(len(effects[0].hyscale))]
    heads = ["one assumption changed", *numbers, "mean", "HitGNN"]
    return "\n".join([*lines, *_table(heads, effect_cells(effects))]) + "\n"


def _table(heads: Sequence[str], rows: Cells) -> Iterator[str]:
    """Yield lines of Markdown; an empty head has one space."""
    yield "| " + "".join(f"{head} | " if head else "| " for head in heads).rstrip()
    yield "|---" * len(heads) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _new(table: Table, first: dict[str, str]) -> Iterator[str]:
    """Yield assumptions of a table; one of an earlier table is replaced by that table's name."""
    for name in dict.fromkeys(first[text] for text in table.assumptions if text in first):
        yield f"Assumptions as for {name}."
    for text in table.assumptions:
        if text not in first:
            first[text] = table.name
            yield text


_CURVE_POINT = re.compile(r"(.*), (\d+ cards)")


def _curves(table: Table) -> Iterator[str]:
    """Yield a line for each curve of a figure without published numbers, a column for a point."""
    points = [_CURVE_POINT.fullmatch(row.cell) for row in table.rows]
    if any(row.published is not None for row in table.rows) or not all(points):
        return
    curves: dict[str, dict[str, str]] = {}
    for row, point in zip(table.rows, points, strict=True):
        if point is not None:
            curves.setdefault(point[1], {})[point[2]] = figure(row.predicted)
    (unit,) = {row.unit for row in table.rows}
    heads = next(iter(curves.values()))
    rows = [[name, *values.values()] for name, values in curves.items()]
    yield from _table([f"predicted, {unit}", *heads], rows)
