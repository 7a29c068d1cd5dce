"""Section of ``report.html`` about classes: scores by class, and the confusion matrix."""

from collections.abc import Sequence
from html import escape
from typing import Any

from gnnscale.core import one_line
from gnnscale.report.formatting import count, fixed, short, threshold_words
from gnnscale.report.page.document import card, cell, grid, heat_table, table

#: Largest number of classes in the table; of more classes, it has the worst and the best half.
MAX_SCORES = 50
#: Largest number of rows of one table; more rows become two tables side by side.
_MAX_ROWS = 12
#: Largest number of columns of a matrix in half the page; wider matrices get the full width, and on
#: narrow screens only colors.
_MAX_COLUMNS = 6
#: Largest number of columns with horizontal headings; the headings of more columns are vertical.
_MAX_LEVEL = 3


def classes(summary: dict[str, Any]) -> str:
    """Return boxes with each class's test scores, and the confusion matrix; empty: no scores."""
    scores = summary["classes"]
    if not scores:
        return ""
    names = [str(i) if score["name"] is None else score["name"] for i, score in enumerate(scores)]
    chosen = summary.get("threshold")
    note = ""
    if chosen is not None:
        note = _line(
            f"Classes are decided at {threshold_words(chosen['values'])}, chosen on the validation "
            f"set by {escape(chosen['rule'])}."
        )
    by_class = _scores(names, scores)
    if summary["confusion"] is None:
        return note + by_class
    confusion = card("Predicted for each class", _confusion(names, summary["confusion"]))
    wide = len(names) > _MAX_COLUMNS
    return note + (confusion + by_class if wide else grid([by_class, confusion]))


def _scores(names: Sequence[str], scores: Sequence[dict[str, Any]]) -> str:
    """Return a card with the scores of all classes, or of the worst and the best of many."""
    numbers, note = list(range(len(scores))), ""
    if len(numbers) > MAX_SCORES:
        parts = _extremes(scores)
        left_out = len(numbers) - sum(map(len, parts))
        note = _line(
            f"Of those that test vertices have, the {len(parts[0])} classes of lowest F1, and the "
            f"{len(parts[1])} of highest; {left_out} others are left out, and are in summary.json."
        )
    elif len(numbers) > _MAX_ROWS:
        half = (len(numbers) + 1) // 2
        parts = [numbers[:half], numbers[half:]]
    else:
        parts = [numbers]
    tables = [_score_table(names, scores, part) for part in parts]
    meaning = _line(
        "Test vertices. Precision: how many of those predicted are right; recall: how many of the "
        "class are found; F1: their harmonic mean."
    )
    body = tables[0] if len(tables) == 1 else grid(tables)
    return card("Scores by class", f"{note}{body}{meaning}")


def _line(text: str) -> str:
    return f'<p class="soft">{text}</p>'


def _extremes(scores: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Return two lists of class numbers: lowest F1 first, and highest F1 first.

    Each has up to half of ``MAX_SCORES`` classes, out of the classes of test vertices.
    """
    present = [number for number, score in enumerate(scores) if score["num_vertices"]]
    order = sorted(present, key=lambda number: scores[number]["f1"])
    half = min(MAX_SCORES, len(order)) // 2
    return [order[:half], order[::-1][:half]]


def _score_table(
    names: Sequence[str], scores: Sequence[dict[str, Any]], numbers: Sequence[int]
) -> str:
    heads = ("class", "precision", "recall", "F1", "vertices", "predicted")
    rows = []
    for number in numbers:
        score = scores[number]
        figures = [fixed(score[name], 4) for name in ("precision", "recall", "f1")]
        figures += [count(score[name]) for name in ("num_vertices", "num_predicted")]
        rows.append([cell(one_line(names[number], 80), is_text=True), *map(cell, figures)])
    return f'<div class="scores">{table(heads, rows)}</div>'


def _confusion(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return an HTML table of counts (row: true class, column: predicted), shaded by row share."""
    short_names = [escape(_cut(name)) for name in names]
    rows = [
        (name, [(55 * value / max(sum(row), 1), _number(value)) for value in row])
        for name, row in zip(short_names, counts, strict=True)
    ]
    caption = "Rows: the class of test vertices; columns: what is predicted for them."
    css = "heat" + " upright" * (len(names) > _MAX_LEVEL) + " many" * (len(names) > _MAX_COLUMNS)
    note = '<p class="soft narrow">Shades are shares of the row; summary.json has the counts.</p>'
    shaded = heat_table(caption, short_names, rows, css=css)
    return f"{shaded}{note if len(names) > _MAX_COLUMNS else ''}"


def _cut(name: str) -> str:
    """Return a name, or the first and the last letters of a long name."""
    name = one_line(name, 80)
    return name if len(name) <= 16 else f"{name[:9]}…{name[-6:]}"


def _number(value: int) -> str:
    brief = short(value)
    return brief if brief == f"{value:,}" else f'<span title="{value:,}">{brief}</span>'
