"""The page and the document of all tables."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.paper_tables import independence
from benchmarks.paper_tables.plots import scatter
from benchmarks.paper_tables.rows import Row, Table
from benchmarks.paper_tables.sensitivity import Effect
from gnnscale.report.page.document import cell, document, section, table

_NOTE = (
    "Every predicted figure is simulated, by equations and stated rates; none was measured on "
    "hardware. Published figures are the papers'."
)
_COUNT_HEADS = ("table or figure", "figures", "independent", "the rest follow from")
_SCATTERED = 8
_HYSCALE_CELLS = "the ten cells of HyScale-GNN's Table VI, in its order"


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def error(value: float | None) -> str:
    """Return an error in percent; one below 1 % has two decimals, so that it is not called 0."""
    if value is None:
        return "-"
    return f"{value:+.{2 if 0 < abs(value) < 0.01 else 0}%}".replace("%", " %")


def page(tables: Sequence[Table], effects: Sequence[Effect]) -> str:
    parts = [section("Mean errors", _overview(tables))]
    parts.append(section("What these figures do not show", _independence(tables)))
    parts += [section(each.name, _content(each)) for each in tables]
    parts.append(section("Which assumption moves which cell", _sensitivity(effects)))
    return document("The papers' tables and figures, predicted", _NOTE, parts)


def _overview(tables: Sequence[Table]) -> str:
    rows = [
        [cell(each.name, left=True), cell(f"{_known(each)}"), cell(error(each.mean_error)[1:])]
        for each in tables
        if each.mean_error is not None
    ]
    return table(["table or figure", "figures", "mean absolute error"], rows)


def _independence(tables: Sequence[Table]) -> str:
    rows = [
        [
            *(cell(each.table, left=True), cell(f"{each.figures}"), cell(f"{each.independent}")),
            cell(each.rest, left=True),
        ]
        for each in independence.counts(tables)
    ]
    found = "".join(f"<p>{escape(note)}</p>" for note in independence.notes())
    return table([*_COUNT_HEADS], rows) + found


def _known(each: Table) -> int:
    return sum(row.error is not None for row in each.rows)


def _content(each: Table) -> str:
    rows = [
        [
            cell(row.cell, left=True),
            cell(figure(row.published)),
            cell(figure(row.predicted)),
            cell(row.unit, left=True),
            cell(error(row.error)),
            cell(row.note, left=True),
        ]
        for row in each.rows
    ]
    parts = list(each.plots)
    if _known(each) >= _SCATTERED:
        parts.append(scatter(each))
    parts += [
        f"<p>{'holds' if c.holds else 'does not hold'}: {escape(c.what)}</p>" for c in each.claims
    ]
    parts.append(table(["", "published", "predicted", "", "error", ""], rows))
    if each.mean_error is not None:
        parts.append(f"<p>Mean absolute error {each.mean_error:.1%}.</p>")
    parts += [f'<p class="soft">{escape(each)}</p>' for each in each.assumptions]
    return "".join(parts)


def _sensitivity(effects: Sequence[Effect]) -> str:
    count = len(effects[0].hyscale)
    rows = [
        [
            cell(each.what, left=True),
            *(cell(error(value)) for value in each.hyscale),
            cell(f"{each.mean:.0%}"),
            cell(f"{each.hitgnn:.0%}"),
        ]
        for each in effects
    ]
    heads = ["one assumption changed", *(str(n + 1) for n in range(count)), "mean", "HitGNN, mean"]
    return f"<p>Errors of {_HYSCALE_CELLS}; and the mean of HitGNN's 24.</p>" + table(heads, rows)


def markdown(tables: Sequence[Table], effects: Sequence[Effect]) -> str:
    """Return ``docs/paper-results.md``."""
    lines = [
        "# The papers' tables and figures, predicted",
        "",
        "`python scripts/benchmarks/paper_tables --docs` writes this page, and one with plots, "
        "`outputs/reproduced.html`. " + _NOTE,
        "",
        "| table or figure | figures | mean absolute error |",
        "|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {_known(each)} | {each.mean_error:.1%} |"
        for each in tables
        if each.mean_error is not None
    ]
    lines += ["", "## What these figures do not show", ""]
    lines += [f"| {' | '.join(_COUNT_HEADS)} |", "|---|---|---|---|"]
    lines += [
        f"| {each.table} | {each.figures} | {each.independent} | {each.rest} |"
        for each in independence.counts(tables)
    ]
    lines += ["", *(f"- {note}" for note in independence.notes())]
    first: dict[str, str] = {}  # the table in which an assumption is written
    for each in tables:
        lines += ["", f"## {each.name}", ""]
        lines += [f"- {'Holds' if c.holds else 'Does not hold'}: {c.what}." for c in each.claims]
        if each.claims:
            lines.append("")
        lines += [*_curves(each)] or [*_markdown_rows(each)]
        if each.assumptions:
            lines += ["", *(f"- {each}" for each in _new(each, first))]
    lines += ["", "## Which assumption moves which cell", ""]
    lines += [f"Errors of {_HYSCALE_CELLS}, and the mean of HitGNN's 24 epochs.", ""]
    count = len(effects[0].hyscale)
    heads = " | ".join(str(number + 1) for number in range(count))
    lines += [f"| one assumption changed | {heads} | mean | HitGNN |", "|---" * (count + 3) + "|"]
    for effect in effects:
        cells = " | ".join(error(value) for value in effect.hyscale)
        lines.append(f"| {effect.what} | {cells} | {effect.mean:.0%} | {effect.hitgnn:.0%} |")
    return "\n".join(lines) + "\n"


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
    yield f"| predicted, {unit} | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for name, values in curves.items():
        yield f"| {name} | {' | '.join(values.values())} |"


def _markdown_rows(table: Table) -> Iterator[str]:
    yield "| | published | predicted | | error | |"
    yield "|---|---|---|---|---|---|"
    yield from map(_markdown_row, table.rows)


def _markdown_row(row: Row) -> str:
    values = (figure(row.published), figure(row.predicted), row.unit, error(row.error), row.note)
    return f"| {row.cell} | {' | '.join(values)} |"
