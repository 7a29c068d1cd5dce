"""Elements of SVG plots: axes with round ticks, paths, text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from gnnscale.core import Int64Array

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
    """Linear axis of a plot; without a range, it reaches 0.5 to both sides of ``low``."""

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
    """Picture with two axes; sizes are pixels."""

    x: Axis  #: the horizontal axis
    y: Axis  #: the vertical axis
    width: float = 560  #: width of the picture
    height: float = 230  #: height of the picture
    left: float = 58  #: left margin, with the labels of ``y``
    right: float = 14  #: right margin
    top: float = 12  #: top margin
    bottom: float = 40  #: bottom margin, with the labels of ``x``

    def across(self, value: float) -> float:
        """Return the pixel of ``value`` on the horizontal axis."""
        return self.left + self.x.fraction(value) * (self.width - self.right - self.left)

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
        """Return the picture: ``elements``, cut off at the axes, in front of ``background``.

        For values under the pointer, the page's script reads each ``path.line`` with a
        ``data-label``; if ``stacked``, a line's value counts from the previous line. A picture that
        is not ``sized`` fills its container.
        """
        box = (
            f"{self.left - _MARGIN:g} {self.top - _MARGIN:g} "
            f"{self.width - self.right - self.left + 2 * _MARGIN:g} "
            f"{self._inner_height + 2 * _MARGIN:g}"
        )
        x, y, width, height = box.split()
        area = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        right, floor = self.width - self.right, self.height - self.bottom
        scales = (
            f'data-x="{self.x.low:.9g} {self.x.high:.9g} {self.left:g} {right:g}" '
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
        """Return the grid, ticks and titles."""
        right, floor = self.width - self.right, self.height - self.bottom
        parts = []
        for value, label in ticks(self.y.low, self.y.high, 6, integer=self.y.integer):
            at = self.down(value)
            parts.append(f'<path class="grid" d="M{self.left:g} {number(at)}H{right:g}"/>')
            parts.append(text(self.left - 6, at + 4, label, anchor="end"))
        for value, label in ticks(self.x.low, self.x.high, 7, integer=self.x.integer):
            at = self.across(value)
            parts.append(f'<path class="axis" d="M{number(at)} {floor:g}v4"/>')
            parts.append(text(at, floor + 16, label, anchor="middle"))
        parts.append(f'<path class="axis" d="M{self.left:g} {floor:g}H{right:g}"/>')
        middle = (self.left + right) / 2
        parts.append(text(middle, self.height - 6, self.x.title, anchor="middle", css="title"))
        turn = f'transform="translate(13 {number((self.top + floor) / 2)}) rotate(-90)"'
        title = f'<text class="title" text-anchor="middle" {turn}>{escape(self.y.title)}</text>'
        return [*parts, title]


def ticks(
    low: float, high: float, max_steps: int, *, integer: bool = False
) -> list[tuple[float, str]]:
    """Return at most ``max_steps`` + 1 round values from ``low`` to ``high``, with labels."""
    raw = (high - low) / max_steps
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


def number(value: float) -> str:
    """Return a coordinate in pixels with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    """Return a text element with its content escaped."""
    kind = f' class="{css}"' if css else ""
    where = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
    return f"<text{kind} {where}>{escape(content)}</text>"


def bins(num_points: int, max_points: int = MAX_POINTS) -> list[slice]:
    """Return slices of points that share an x: single points, or bins if over ``max_points``."""
    if num_points <= max_points:
        return [slice(i, i + 1) for i in range(num_points)]
    edges: Int64Array = np.linspace(0, num_points, max_points // 3 + 1).astype(np.int64)
    pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [slice(start, end) for start, end in pairs]
