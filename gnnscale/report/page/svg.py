"""Elements of SVG plots: axes with round ticks, paths, text; and the dot plot of a sweep."""

import math
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from gnnscale.core import Int64Array, one_line

#: CSS of the axes of a plot in an SVG file of its own, in light and dark mode.
PLOT_STYLE = (
    "svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#24292f}"
    ".soft{fill:#5b6470}.head{font-weight:600}"
    ".grid{stroke:#e3e6ea;fill:none}.axis{stroke:#5b6470;fill:none}.sensor{fill:none}"
    ".line{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e3e6ea}"
    ".soft{fill:#9aa3ae}.grid{stroke:#2a2f36}.axis{stroke:#9aa3ae}}"
)

#: Largest number of points of a curve: min, median and max of each bin.
MAX_POINTS = 1000
#: Pixels by which elements may exceed the axes: half a dot or half a line.
_MARGIN = 4


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Linear axis of a plot; unless ``high`` > ``low``, it reaches 0.5 to both sides of ``low``."""

    title: str  #: quantity and unit
    low: float  #: value at the beginning
    high: float  #: value at the end
    integer: bool = False  #: whether ticks are whole numbers

    def __post_init__(self) -> None:
        if not self.high > self.low:
            object.__setattr__(self, "low", self.low - 0.5)
            object.__setattr__(self, "high", self.low + 1.0)

    def fraction(self, value: float) -> float:
        """Return the position of ``value``, from 0 at the beginning to 1 at the end."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """SVG picture with two axes; sizes are pixels."""

    x: Axis  #: the horizontal axis
    y: Axis  #: the vertical axis
    width: float = 560  #: width of the picture
    height: float = 230  #: height of the picture
    x_start: float = 58  #: left margin, with the labels of ``y``
    right: float = 14  #: right margin
    top: float = 12  #: top margin
    bottom: float = 40  #: bottom margin, with the labels of ``x``

    def across(self, value: float) -> float:
        """Return the pixel of ``value`` on the horizontal axis."""
        return self.x_start + self.x.fraction(value) * (self.width - self.right - self.x_start)

    def down(self, value: float) -> float:
        """Return the pixel of ``value`` on the vertical axis."""
        return self.height - self.bottom - self.y.fraction(value) * self._inner_height

    @property
    def _inner_height(self) -> float:
        return self.height - self.bottom - self.top

    def svg(
        self,
        elements: Sequence[str],
        *,
        background: Sequence[str] = (),
        stacked: bool,
        sized: bool = False,
    ) -> str:
        """Return the picture: SVG ``elements``, cut off at the axes, in front of ``background``.

        For values under the pointer, the page's script reads each ``path.line`` with a
        ``data-label``; if ``stacked``, a line's value counts from the previous line. A picture that
        is not ``sized`` fills its container.
        """
        box = (
            f"{self.x_start - _MARGIN:g} {self.top - _MARGIN:g} "
            f"{self.width - self.right - self.x_start + 2 * _MARGIN:g} "
            f"{self._inner_height + 2 * _MARGIN:g}"
        )
        x, y, width, height = box.split()
        area = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        right, floor = self.width - self.right, self.height - self.bottom
        scales = (
            f'data-x="{self.x.low:.9g} {self.x.high:.9g} {self.x_start:g} {right:g}" '
            f'data-y="{self.y.low:.9g} {self.y.high:.9g} {floor:g} {self.top:g}"'
        )
        size = f' width="{self.width:g}" height="{self.height:g}"' if sized else ""
        return (
            f'<svg class="chart"{size} viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(f"{self.y.title} by {self.x.title}")}" {scales} '
            f'data-title="{escape(self.x.title)}"{" data-stacked" if stacked else ""}>'
            f"{''.join(self._axes())}{''.join(background)}"
            f'<svg {area} viewBox="{box}">{"".join(elements)}</svg>'
            f'<rect class="sensor" {area}/></svg>'
        )

    def _axes(self) -> list[str]:
        """Return SVG elements of the grid, ticks and titles."""
        right, floor = self.width - self.right, self.height - self.bottom
        parts = []
        for value, label in ticks(self.y.low, self.y.high, 6, integer=self.y.integer):
            at = self.down(value)
            parts.append(f'<path class="grid" d="M{self.x_start:g} {number(at)}H{right:g}"/>')
            parts.append(text(self.x_start - 6, at + 4, label, anchor="end"))
        for value, label in ticks(self.x.low, self.x.high, 7, integer=self.x.integer):
            at = self.across(value)
            parts.append(f'<path class="axis" d="M{number(at)} {floor:g}v4"/>')
            parts.append(text(at, floor + 16, label, anchor="middle"))
        parts.append(f'<path class="axis" d="M{self.x_start:g} {floor:g}H{right:g}"/>')
        middle = (self.x_start + right) / 2
        parts.append(text(middle, self.height - 6, self.x.title, anchor="middle", css="title"))
        turn = f'transform="translate(13 {number((self.top + floor) / 2)}) rotate(-90)"'
        title = f'<text class="title" text-anchor="middle" {turn}>{escape(self.y.title)}</text>'
        return [*parts, title]


def ticks(
    low: float, high: float, max_steps: int, *, integer: bool = False
) -> list[tuple[float, str]]:
    """Return at most ``max_steps`` + 1 round values from ``low`` to ``high``, with labels."""
    raw = max((high - low) / max_steps, sys.float_info.min)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw * (1 - 1e-9))
    if integer:
        step = max(1.0, step)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(i * step, f"{i * step:,.{decimals}f}") for i in range(first, last + 1)]


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the path commands of a polyline, interrupted at points that are not finite."""
    commands = []
    pen_down = False
    for x, y in points:
        finite = math.isfinite(x) and math.isfinite(y)
        if finite:
            commands.append(f"{'L' if pen_down else 'M'}{number(x)} {number(y)}")
        pen_down = finite
    return "".join(commands)


def svg_file(
    elements: Iterable[str], width: float, height: float, style: str, *, minimum: float = 0
) -> str:
    """Return the text of an SVG file of ``elements`` with CSS ``style``.

    Sizes are pixels; the picture is at least ``minimum`` wide.
    """
    width = max(width, minimum)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img"><style>{style}</style>'
        f"{''.join(elements)}</svg>\n"
    )


def number(value: float) -> str:
    """Return a coordinate in pixels as text with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    """Return a text element with its content escaped."""
    kind = f' class="{css}"' if css else ""
    where = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
    return f"<text{kind} {where}>{escape(content)}</text>"


def bins(num_points: int, max_points: int = MAX_POINTS) -> list[slice]:
    """Return slices that divide ``num_points`` points of a curve, one slice per point.

    Above ``max_points``, there are ``max_points`` / 3 slices, each drawn by three points.
    """
    if num_points <= max_points:
        return [slice(i, i + 1) for i in range(num_points)]
    edges: Int64Array = np.linspace(0, num_points, max_points // 3 + 1).astype(np.int64)
    pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [slice(start, end) for start, end in pairs]


_WIDTH, _SIDE = 560.0, 12.0
#: Width in pixels of a character of a label, of a digit, and of the narrowest plot.
_CHARACTER, _DIGIT, _NARROWEST = 6.7, 7.0, 60.0
#: Characters of a line of a row's label.
_LABEL = 36
#: Height in pixels of a line of a label, and of the gap between rows.
_LINE, _GAP = 15, 9


@dataclass(frozen=True, kw_only=True)
class DotRow:
    """Row of a dot plot: a result's value in each job with one choice of options."""

    label: str  #: the choice
    values: Sequence[float]  #: one value for each job, at least one

    @property
    def mean(self) -> float:
        """Mean of the jobs' values."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the jobs' values; None: a single job."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def words(self, form: Callable[[Any], str]) -> str:
        """Return the mean and the deviation as text, each formatted by ``form``."""
        deviation = self.deviation
        return form(self.mean) if deviation is None else f"{form(self.mean)} ± {form(deviation)}"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Format and range of the values of a dot plot."""

    form: Callable[[Any], str]  #: formats a value
    low: float = -math.inf  #: the least possible value
    high: float = math.inf  #: the greatest possible value
    seconds: bool = False  #: whether values are times, with an axis from 0 and a unit

    def axis(self, rows: Sequence[DotRow]) -> Axis:
        """Return an axis over values and mean ± deviation of ``rows``, within the possible range.

        Times begin at 0.
        """
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
        """Return round values on the axis with labels; times have a unit, ms or s."""
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
    x_start = _SIDE + _CHARACTER * longest + 8
    x_end = max(_WIDTH - _SIDE - _DIGIT * max(map(len, figures)) - 12, x_start + _NARROWEST)
    heights = [_LINE * max(1, len(lines)) + _GAP for lines in wrapped]
    floor = sum(heights) + 4

    def across(value: float) -> float:
        return x_start + axis.fraction(value) * (x_end - x_start)

    parts = []
    for value, label in quantity.ticks(axis):
        parts.append(f'<path class="grid" d="M{number(across(value))} 4V{floor}"/>')
        parts.append(text(across(value), floor + 16, label, anchor="middle"))
    top = 2.0
    for row, lines, words, height in zip(rows, wrapped, figures, heights, strict=True):
        middle = top + height / 2
        first = middle + 4 - _LINE * (len(lines) - 1) / 2
        for i, line in enumerate(lines):
            parts.append(text(_SIDE, first + _LINE * i, line, css="title"))
        parts.append(text(_WIDTH - _SIDE, middle + 4, words, anchor="end", css="strong"))
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
    """Return SVG at height ``middle``: a dot per job; for several jobs also mean ± deviation."""
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
