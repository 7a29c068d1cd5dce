"""Plots of the page: curves, and published beside predicted figures."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.paper_tables.rows import Table
from gnnscale.report.page.svg import PLOT_STYLE, Axis, Plot, number, path, text

_COLOURS = ("2a78d6", "d6403f", "17a06d", "8a5cc7", "e39a00", "0d8f9c", "c2478a", "7b8f1f")
_COLOURS += ("a0622d", "3c5a86", "d0662a", "4f9a3d")
_STYLE = f"<style>{PLOT_STYLE}.ideal{{fill:none;stroke:#7a8290;stroke-dasharray:5 4}}</style>"
_LABEL = 15


def lines(
    title: str, curves: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str
) -> str:
    """Return a plot of curves by name, with the ideal one dashed."""
    right = max(count for curve in curves.values() for count, _ in curve)
    high = max(max(value for curve in curves.values() for _, value in curve), 1.0)
    plot = Plot(
        x=Axis(title=x, low=0, high=right + 0.5),
        y=Axis(title=y, low=0, high=1.08 * high),
        width=760,
        height=max(320, 80 + _LABEL * len(curves)),
        right=210,
        top=34,
    )
    drawn = [text(plot.x_start, 20, title)]
    ideal = [(1.0, 1.0), (float(min(right, high)), float(min(right, high)))]
    inside = [f'<path class="ideal" d="{path(_placed(plot, ideal))}"/>']
    for position, (name, curve) in enumerate(curves.items()):
        colour = f"#{_COLOURS[position % len(_COLOURS)]}"
        points = _placed(plot, curve)
        inside.append(f'<path fill="none" stroke="{colour}" stroke-width="2" d="{path(points)}"/>')
        inside += [
            f'<circle fill="{colour}" cx="{number(across)}" cy="{number(down)}" r="3"/>'
            for across, down in points
        ]
        level = plot.top + 10 + _LABEL * position
        edge = plot.width - plot.right + 14
        drawn.append(f'<rect fill="{colour}" x="{edge:g}" y="{level - 9:g}" width="9" height="9"/>')
        drawn.append(text(edge + 14, level, name))
    return plot.svg(inside, background=[_STYLE, *drawn], stacked=False, sized=True)


def _placed(plot: Plot, curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(plot.across(x), plot.down(y)) for x, y in curve]


def scatter(table: Table) -> str:
    """Return a plot of published and predicted figures, both logarithmic; the line is exact."""
    pairs = [(r.cell, r.published, r.predicted) for r in table.rows if r.published and r.predicted]
    low = math.log10(min(min(a, b) for _, a, b in pairs)) - 0.05
    high = math.log10(max(max(a, b) for _, a, b in pairs)) + 0.05
    axis = {"low": low, "high": high}
    plot = Plot(
        x=Axis(title="published, log10", **axis),
        y=Axis(title="predicted, log10", **axis),
        width=420,
        height=340,
    )
    inside = [f'<path class="ideal" d="{path(_placed(plot, [(low, low), (high, high)]))}"/>']
    for cell, published, predicted in pairs:
        across, down = plot.across(math.log10(published)), plot.down(math.log10(predicted))
        label = f"{cell}: {published:g} published, {predicted:.3g} predicted"
        inside.append(
            f'<circle fill="#2a78d6" cx="{number(across)}" cy="{number(down)}" r="4">'
            f"<title>{escape(label)}</title></circle>"
        )
    return plot.svg(inside, background=[_STYLE], stacked=False, sized=True)
