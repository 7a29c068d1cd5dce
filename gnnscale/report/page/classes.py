"""The classes of a run on its page: scores of each, and which is taken for which."""

from collections.abc import Sequence
from html import escape
from typing import Any

from gnnscale.core import one_line
from gnnscale.report.formatting import ABSENT, count, short
from gnnscale.report.page.document import cell, table
from gnnscale.report.page.parts import card, grid

#: Classes of which all are shown; of more, the worst and the best half of so many.
MAX_SCORES = 50
#: More rows than that are two tables side by side.
_MAX_ROWS = 12
#: More columns than that need the width of the page; on a narrow one they are colours alone.
_MAX_COLUMNS = 6
#: Names of more columns than that stand upright.
_MAX_LEVEL = 3


def classes(summary: dict[str, Any]) -> str:
    """Scores of each class on the test vertices, and which class is taken for which."""
    found = summary["classes"]
    if not found:
        return ""
    names = [str(i) if each["name"] is None else each["name"] for i, each in enumerate(found)]
    if summary["confusion"] is None:
        return _scores(names, found)
    confusion = card("Predicted for each class", _confusion(names, summary["confusion"]))
    if len(names) <= _MAX_COLUMNS:
        return grid([_scores(names, found), confusion])
    return confusion + _scores(names, found)


def _scores(names: Sequence[str], found: Sequence[dict[str, Any]]) -> str:
    """A card with a row for each class, or for the worst and the best of many."""
    every, note = list(range(len(found))), ""
    if len(every) > MAX_SCORES:
        parts = _extremes(found)
        left_out = len(every) - sum(map(len, parts))
        note = _line(
            f"Of those that test vertices have, the {len(parts[0])} classes of lowest F1, and the "
            f"{len(parts[1])} of highest; {left_out} others are left out, and are in summary.json."
        )
    elif len(every) > _MAX_ROWS:
        half = (len(every) + 1) // 2
        parts = [every[:half], every[half:]]
    else:
        parts = [every]
    tables = [_score_table(names, found, part) for part in parts]
    meaning = _line(
        "Test vertices. Precision: how many of those predicted are right; recall: how many of the "
        "class are found; F1: their harmonic mean."
    )
    shown = tables[0] if len(tables) == 1 else grid(tables)
    return card("Scores by class", f"{note}{shown}{meaning}")


def _line(text: str) -> str:
    return f'<p class="soft">{text}</p>'


def _extremes(found: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Return the classes of lowest F1 among those that test vertices have, and of highest."""
    known = [number for number, each in enumerate(found) if each["num_vertices"]]
    order = sorted(known, key=lambda number: found[number]["f1"])
    half = min(MAX_SCORES, len(order)) // 2
    return [order[:half], order[::-1][:half]]


def _score_table(
    names: Sequence[str], found: Sequence[dict[str, Any]], numbers: Sequence[int]
) -> str:
    heads = ("class", "precision", "recall", "F1", "vertices", "predicted")
    rows = []
    for number in numbers:
        each = found[number]
        figures = [_score(each[name]) for name in ("precision", "recall", "f1")]
        figures += [count(each[name]) for name in ("num_vertices", "num_predicted")]
        rows.append([cell(one_line(names[number], 80), left=True), *map(cell, figures)])
    return f'<div class="scores">{table(heads, rows)}</div>'


def _score(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _confusion(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A table of counts, shaded by their part of the row: each row is a class."""
    short_names = [escape(_cut(name)) for name in names]
    head = "".join(f'<th scope="col"><span>{name}</span></th>' for name in short_names)
    body = ""
    for name, row in zip(short_names, counts, strict=True):
        total = max(sum(row), 1)
        cells = "".join(
            f'<td style="--share:{55 * value / total:.0f}%">{_number(value)}</td>' for value in row
        )
        body += f'<tr><th scope="row" class="left">{name}</th>{cells}</tr>'
    caption = "Rows: the class of test vertices; columns: what is predicted for them."
    css = "heat" + " upright" * (len(names) > _MAX_LEVEL) + " many" * (len(names) > _MAX_COLUMNS)
    note = '<p class="soft narrow">Shades are shares of the row; summary.json has the counts.</p>'
    return (
        f'<table class="{css}"><caption class="soft">{caption}</caption>'
        f"<tr><td></td>{head}</tr>{body}</table>{note if len(names) > _MAX_COLUMNS else ''}"
    )


def _cut(name: str) -> str:
    """Return the first letters of a name, and the last, by which long ones differ."""
    name = one_line(name, 80)
    return name if len(name) <= 16 else f"{name[:9]}…{name[-6:]}"


def _number(value: int) -> str:
    brief = short(value)
    return brief if brief == f"{value:,}" else f'<span title="{value:,}">{brief}</span>'
