"""Plots over steps and epochs: lines with their spread, and stacked areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from gnnscale.report.page.svg import Axis, Plot, bins, number, path

__all__ = ["Curve", "Mark", "legend", "line_chart", "stacked_chart", "upper"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a plot.

    Attributes:
        label: for the legend, and under the pointer.
        css: the class that gives the colour, such as ``s-load`` or ``d-0``.
        x: ``[n]``, ascending.
        y: ``[n]``, NaN where there is no value.
        dashed: whether the line is.
        dots: whether each point has a dot.
    """

    label: str
    css: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical line at ``x``, with the text that the pointer shows."""

    x: float
    label: str


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return the legend of a plot, of class of the colour and label."""
    items = (f'<li><i class="{css}"></i>{escape(label)}</li>' for css, label in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def upper(values: NDArray[np.float64]) -> float:
    """Return where an axis from 0 ends, for ``values`` of which some may lie above it.

    A few steps, the first ones most of all, may take many times as long as the others; they are
    cut off rather than the others pressed flat.
    """
    known = values[np.isfinite(values)]
    greatest = float(known.max(initial=0.0))
    usual = 1.6 * float(np.quantile(known, 0.95)) if len(known) else 0.0
    return (usual if 0 < usual < greatest else greatest * 1.05) or 1.0


def line_chart(curves: Sequence[Curve], *, x: Axis, y: Axis, marks: Sequence[Mark] = ()) -> str:
    """Return an SVG element; curves of many points become medians, with bands of their range."""
    plot = Plot(x=x, y=y)
    drawn = [*_marks(plot, marks), *(part for curve in curves for part in _curve(plot, curve))]
    return plot.svg(drawn, stacked=False)


def stacked_chart(
    labels: Sequence[tuple[str, str]],
    x_values: NDArray[np.int64],
    values: NDArray[np.float64],
    *,
    x: Axis,
    y: Axis,
    marks: Sequence[Mark] = (),
) -> str:
    """Return an SVG element of areas one upon the other, which hold a value until the next.

    Args:
        labels: class of the colour and label of each area, the lowest first.
        x_values: ``[n]``, ascending; of a bin of many the last value is drawn.
        values: ``[n, len(labels)]``, at least 0.
        x: the horizontal axis.
        y: the vertical axis, from 0.
        marks: vertical lines.
    """
    plot = Plot(x=x, y=y)
    parts = bins(len(x_values))
    edges = [float(x_values[part.start]) for part in parts] + [float(x_values[-1]) + 1]
    tops = np.cumsum(values[[part.stop - 1 for part in parts]], axis=1)
    drawn: list[str] = []
    below = _steps(plot, edges, np.zeros(len(parts)))
    for column, (css, label) in enumerate(labels):
        above = _steps(plot, edges, tops[:, column])
        line = f'data-label="{escape(label)}" d="{path(above)}"'
        drawn.append(f'<path class="area {css}" d="{path([*above, *reversed(below)])}Z"/>')
        drawn.append(f'<path class="line {css}" {line}/>')
        below = above
    return plot.svg([*drawn, *_marks(plot, marks)], stacked=True)


def _marks(plot: Plot, marks: Sequence[Mark]) -> list[str]:
    top, floor = plot.top, plot.height - plot.bottom
    return [
        f'<path class="mark" d="M{number(plot.across(mark.x))} {top:g}V{floor:g}">'
        f"<title>{escape(mark.label)}</title></path>"
        for mark in marks
    ]


def _curve(plot: Plot, curve: Curve) -> list[str]:
    parts = bins(len(curve.x))
    across = [plot.across(float(curve.x[part].mean())) for part in parts]
    low, middle, high = (
        [(at, plot.down(value)) for at, value in zip(across, row, strict=True)]
        for row in _figures(curve.y, parts)
    )
    drawn = []
    if len(parts) < len(curve.x):
        drawn.append(f'<path class="band {curve.css}" d="{_band(low, high)}"/>')
    css = f"line {curve.css}{' dashed' if curve.dashed else ''}"
    label = f'data-label="{escape(curve.label)}"'
    drawn.append(f'<path class="{css}" {label} d="{path(middle)}"/>')
    seen = [point for point in middle if np.isfinite(point[1])]
    if curve.dots or len(seen) == 1:
        drawn += (
            f'<circle class="dot {curve.css}" cx="{number(a)}" cy="{number(b)}" r="3"/>'
            for a, b in seen
        )
    return drawn


def _figures(values: NDArray[np.float64], parts: Sequence[slice]) -> NDArray[np.float64]:
    """Min, median and max of each part, ``[3, len(parts)]``; NaN where it has none."""
    figures = np.full((3, len(parts)), np.nan)
    for i, part in enumerate(parts):
        known = values[part][np.isfinite(values[part])]
        if len(known):
            figures[:, i] = known.min(), np.median(known), known.max()
    return figures


def _band(low: list[tuple[float, float]], high: list[tuple[float, float]]) -> str:
    """The area between two lines, in pieces where a value is missing."""
    pieces: list[list[int]] = [[]]
    for i, (_, value) in enumerate(low):
        if np.isfinite(value):
            pieces[-1].append(i)
        elif pieces[-1]:
            pieces.append([])
    outlines = ([*(low[i] for i in piece), *(high[i] for i in reversed(piece))] for piece in pieces)
    return "".join(f"{path(outline)}Z" for outline in outlines if outline)


def _steps(
    plot: Plot, edges: Sequence[float], values: NDArray[np.float64]
) -> list[tuple[float, float]]:
    """The line that holds each value from its edge to the next; corners of equal values go."""
    points: list[tuple[float, float]] = []
    for i, value in enumerate(values.tolist()):
        if i and i + 1 < len(values) and value == values[i - 1]:
            continue
        level = plot.down(value)
        if points and points[-1][1] != level:
            points.append((plot.across(edges[i]), points[-1][1]))
        points.append((plot.across(edges[i]), level))
    points.append((plot.across(edges[-1]), points[-1][1]))
    return points
