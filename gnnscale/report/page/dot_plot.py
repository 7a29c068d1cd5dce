"""Dot plot of a sweep: a row for each choice of options, a dot for each job, mean and deviation."""

import math
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from gnnscale.core import one_line
from gnnscale.report.page import svg
from gnnscale.report.page.svg import Axis, number, ticks

_WIDTH, _MARGIN = 560.0, 12.0
#: Width in pixels of a character of a label, of a digit, and of the narrowest plot.
_CHARACTER, _DIGIT, _NARROWEST = 6.7, 7.0, 60.0
#: Characters of a line of a row's label.
_LABEL = 36
#: Height in pixels of a line of a label, and of the gap between rows.
_LINE, _GAP = 15, 9


@dataclass(frozen=True, kw_only=True)
class DotRow:
    """Values of the jobs with one choice of options."""

    label: str  #: the choice as text
    values: Sequence[float]  #: one value for each job, at least one

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None: a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def words(self, form: Callable[[Any], str]) -> str:
        """Return the mean and the deviation as text, each formatted by ``form``."""
        deviation = self.deviation
        return form(self.mean) if deviation is None else f"{form(self.mean)} ± {form(deviation)}"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Quantity of a plot: format and range of its values."""

    form: Callable[[Any], str]  #: formats a value
    low: float = -math.inf  #: the least possible value
    high: float = math.inf  #: the greatest possible value
    seconds: bool = False  #: whether values are times, with an axis from 0 and a unit

    def axis(self, rows: Sequence[DotRow]) -> Axis:
        """Return an axis with all values of ``rows``, within the possible range."""
        values = [value for row in rows for value in row.values]
        ends = [*values, *(end for row in rows for end in _ends(row))]
        low, high = min(ends), max(ends)
        if self.seconds:
            low = min(0.0, low)
        elif low == high and self.low == 0:
            # A single value is shown on the full scale.
            low, high = min(0.0, low), high if self.high == math.inf else max(high, self.high)
        margin = 0.04 * (high - low)
        return Axis(
            title="",
            low=min(min(values), max(self.low, low - margin)),
            high=max(max(values), min(self.high, high + margin)),
        )

    def words(self, row: DotRow) -> str:
        """Return a row's mean and deviation as text, both in the unit of the mean."""
        if not self.seconds or row.deviation is None:
            return row.words(self.form)
        mean, unit = self.form(row.mean).split(" ")
        decimals = len(mean.partition(".")[2])
        deviation = row.deviation * (1e3 if unit == "ms" else 1.0)
        return f"{mean} ± {deviation:,.{decimals}f} {unit}"

    def ticks(self, axis: Axis) -> list[tuple[float, str]]:
        """Return values on the axis with their labels."""
        if not self.seconds:
            return ticks(axis.low, axis.high, 5)
        unit, factor = ("ms", 1e3) if axis.high < 1 else ("s", 1.0)
        labeled = ticks(axis.low * factor, axis.high * factor, 4)
        return [(value / factor, f"{label} {unit}") for value, label in labeled]


def dot_plot(title: str, rows: Sequence[DotRow], quantity: Quantity) -> str:
    """Return an SVG element: a row for each choice, with a dot for each job, mean and deviation."""
    axis = quantity.axis(rows)
    wrapped = [_lines(row.label) for row in rows]
    figures = [quantity.words(row) for row in rows]
    longest = max((len(line) for lines in wrapped for line in lines), default=0)
    x_start = _MARGIN + _CHARACTER * longest + 8
    x_end = max(_WIDTH - _MARGIN - _DIGIT * max(map(len, figures)) - 12, x_start + _NARROWEST)
    heights = [_LINE * max(1, len(lines)) + _GAP for lines in wrapped]
    floor = sum(heights) + 4

    def across(value: float) -> float:
        return x_start + axis.fraction(value) * (x_end - x_start)

    parts = []
    for value, label in quantity.ticks(axis):
        parts.append(f'<path class="grid" d="M{number(across(value))} 4V{floor}"/>')
        parts.append(svg.text(across(value), floor + 16, label, anchor="middle"))
    top = 2.0
    for row, lines, words, height in zip(rows, wrapped, figures, heights, strict=True):
        middle = top + height / 2
        first = middle + 4 - _LINE * (len(lines) - 1) / 2
        for i, line in enumerate(lines):
            parts.append(svg.text(_MARGIN, first + _LINE * i, line, css="title"))
        parts.append(svg.text(_WIDTH - _MARGIN, middle + 4, words, anchor="end", css="strong"))
        parts += _marks(row, axis, middle, across)
        top += height
    description = "; ".join(
        f"{row.label} {words} ({len(row.values)} job{'s' if len(row.values) > 1 else ''})"
        for row, words in zip(rows, figures, strict=True)
    )
    return (
        f'<svg class="dots" viewBox="0 0 {_WIDTH:g} {floor + 24}" role="img" '
        f'aria-label="{escape(one_line(title, 400))}: {escape(description)}">{"".join(parts)}</svg>'
    )


def _lines(label: str) -> list[str]:
    """Return the lines of a label; an option is broken only if it is longer than a line."""
    whole = textwrap.wrap(label, _LABEL, break_long_words=False, break_on_hyphens=False)
    return [piece for line in whole for piece in textwrap.wrap(line, _LABEL)]


def _ends(row: DotRow) -> tuple[float, float]:
    deviation = row.deviation or 0.0
    return row.mean - deviation, row.mean + deviation


def _marks(row: DotRow, axis: Axis, middle: float, across: Callable[[float], float]) -> list[str]:
    """Return a dot for each job; of several jobs, also marks of the mean and ± the deviation."""
    y = number(middle)
    elements = []
    if row.deviation is not None:
        ends = _ends(row)
        low, high = (number(across(min(max(end, axis.low), axis.high))) for end in ends)
        elements.append(f'<path class="spread d-0" d="M{low} {y}H{high}"/>')
        elements += [
            f'<path class="spread d-0" d="M{number(across(end))} {middle - 4:g}v8"/>'
            for end in ends
            if axis.low <= end <= axis.high
        ]
        elements.append(
            f'<path class="mean d-0" d="M{number(across(row.mean))} {middle - 7:g}v14"/>'
        )
    dots = (
        f'<circle class="point d-0" cx="{number(across(v))}" cy="{y}" r="3.5"/>' for v in row.values
    )
    return [*elements, *dots]
