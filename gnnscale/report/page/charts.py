"""Charts as SVG: lines with their spread, stacked areas, bars, and a timeline of stages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from gnnscale.core import STAGES, Float64Array, Int64Array, StructArray
from gnnscale.planner import DevicePlan
from gnnscale.report.formatting import PREDICTIONS, device_label, milliseconds, signed_percent
from gnnscale.report.page.svg import (
    PLOT_STYLE,
    Axis,
    Plot,
    bins,
    number,
    path,
    svg_file,
    text,
    ticks,
)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Line of a plot: points, label, and style."""

    label: str  #: for the legend, and under the pointer
    css: str  #: CSS class of the color, such as ``s-load`` or ``d-0``
    x: Float64Array  #: ``[n]``, ascending
    y: Float64Array  #: ``[n]``; NaN: no value
    dashed: bool = False  #: whether the line is dashed
    dots: bool = False  #: whether each point has a dot


@dataclass(frozen=True, kw_only=True)
class VerticalMark:
    """Vertical line at ``x``, with ``label`` as its tooltip."""

    x: float
    label: str


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return a legend as HTML; an entry is the CSS class of a color, and a label."""
    items = (f'<li><i class="{css}"></i>{escape(label)}</li>' for css, label in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def upper(values: Float64Array) -> float:
    """Return the end of an axis for ``values``: 1.05 x their maximum, or less to cut off outliers.

    Values are cut off above 1.6 x their 95 % quantile.
    """
    finite = values[np.isfinite(values)]
    maximum = float(finite.max(initial=0.0))
    typical = 1.6 * float(np.quantile(finite, 0.95)) if len(finite) else 0.0
    return (typical if 0 < typical < maximum else maximum * 1.05) or 1.0


def line_chart(
    curves: Sequence[Curve], *, x: Axis, y: Axis, marks: Sequence[VerticalMark] = ()
) -> str:
    """Return an SVG element of ``curves`` and vertical ``marks``.

    A curve of many points is drawn as medians of bins, with a band from minimum to maximum.
    """
    plot = Plot(x=x, y=y)
    elements = [*_marks(plot, marks), *(part for curve in curves for part in _curve(plot, curve))]
    return plot.svg(elements, stacked=False)


def stacked_chart(
    labels: Sequence[tuple[str, str]],
    x_values: Int64Array,
    values: Float64Array,
    *,
    x: Axis,
    y: Axis,
    marks: Sequence[VerticalMark] = (),
) -> str:
    """Return an SVG element of stacked areas that change in steps.

    ``labels`` are CSS class and label of each area. ``x_values`` are ``[n]``, ascending; if many
    points are merged into bins, a bin shows its last value. ``values`` are ``[n, len(labels)]``, at
    least 0.
    """
    plot = Plot(x=x, y=y)
    parts = bins(len(x_values))
    edges = [float(x_values[part.start]) for part in parts] + [float(x_values[-1]) + 1]
    tops = np.cumsum(values[[part.stop - 1 for part in parts]], axis=1)
    elements: list[str] = []
    lower = _steps(plot, edges, np.zeros(len(parts)))
    for column, (css, label) in enumerate(labels):
        upper_line = _steps(plot, edges, tops[:, column])
        line = f'data-label="{escape(label)}" d="{path(upper_line)}"'
        elements.append(f'<path class="area {css}" d="{path([*upper_line, *reversed(lower)])}Z"/>')
        elements.append(f'<path class="line {css}" {line}/>')
        lower = upper_line
    return plot.svg([*elements, *_marks(plot, marks)], stacked=True)


def _marks(plot: Plot, marks: Sequence[VerticalMark]) -> list[str]:
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
        [(x, plot.down(value)) for x, value in zip(across, row, strict=True)]
        for row in _figures(curve.y, parts)
    )
    elements = []
    if len(parts) < len(curve.x):
        elements.append(f'<path class="band {curve.css}" d="{_band(low, high)}"/>')
    css = f"line {curve.css}{' dashed' if curve.dashed else ''}"
    label = f'data-label="{escape(curve.label)}"'
    elements.append(f'<path class="{css}" {label} d="{path(middle)}"/>')
    finite = [point for point in middle if np.isfinite(point[1])]
    if curve.dots or len(finite) == 1:
        elements += (
            f'<circle class="dot {curve.css}" cx="{number(a)}" cy="{number(b)}" r="3"/>'
            for a, b in finite
        )
    return elements


def _figures(values: Float64Array, parts: Sequence[slice]) -> Float64Array:
    """Return min, median and max of each slice's finite values, ``[3, len(parts)]``; NaN: none."""
    summary = np.full((3, len(parts)), np.nan)
    for i, part in enumerate(parts):
        finite = values[part][np.isfinite(values[part])]
        if len(finite):
            summary[:, i] = finite.min(), np.median(finite), finite.max()
    return summary


def _band(low: list[tuple[float, float]], high: list[tuple[float, float]]) -> str:
    """Return SVG path commands of the area between lines ``low`` and ``high`` in pixels.

    The area has gaps at NaN.
    """
    pieces: list[list[int]] = [[]]
    for i, (_, value) in enumerate(low):
        if np.isfinite(value):
            pieces[-1].append(i)
        elif pieces[-1]:
            pieces.append([])
    outlines = ([*(low[i] for i in piece), *(high[i] for i in reversed(piece))] for piece in pieces)
    return "".join(f"{path(outline)}Z" for outline in outlines if outline)


def _steps(plot: Plot, edges: Sequence[float], values: Float64Array) -> list[tuple[float, float]]:
    """Return the pixels of a step line: value i from ``edges[i]`` to ``edges[i + 1]``."""
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


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Bar of length ``value`` (None: 0), with a label to the left, and a note after its end."""

    label: str
    value: float | None
    note: str


def bar_chart(title: str, bars: Sequence[Bar], *, unit: str) -> str:
    """Return an SVG file of horizontal bars, with colors for light and dark mode."""
    x_start = 16 + 7.2 * max((len(bar.label) for bar in bars), default=0)
    width, height = x_start + 620, 46 + 26 * len(bars)
    longest = max((bar.value or 0.0 for bar in bars), default=0.0) or 1.0
    parts = [text(12, 24, f"{title}, {unit}", css="title")]
    for i, bar in enumerate(bars):
        top = 38 + 26 * i
        length = 440 * (bar.value or 0.0) / longest
        parts.append(text(x_start - 8, top + 14, bar.label, anchor="end"))
        box = f'x="{number(x_start)}" y="{top}" width="{number(length)}"'
        parts.append(f'<rect {box} height="20" rx="2"/>')
        parts.append(text(x_start + length + 6, top + 14, bar.note))
    style = f"{PLOT_STYLE}.title{{font-weight:600}}rect{{fill:#2a78d6}}"
    return svg_file(parts, width, height, style)


def prediction_chart(device: Mapping[str, Any], *, longest: float) -> str:
    """Return an SVG element with bars of a device's predicted and measured stage times.

    ``device`` is an entry of ``devices`` of ``prediction.compare``; the axes of all devices end at
    ``longest`` seconds.
    """
    width, x_start, right_margin = 560.0, 78.0, 118.0
    predictions = [device[name] for name in PREDICTIONS if device[name] is not None]
    measured = device["measured"]["stage_times_s"]
    times = [*(times_of["stage_times_s"] for times_of in predictions), measured]
    stages = [name for name in STAGES if any(times_of[name] for times_of in times)]
    height = 13 * len(times) + 8
    floor = 8 + height * len(stages)
    scale = (width - x_start - right_margin) / longest
    parts = _grid(longest * 1e3, 5, scale / 1e3, x_start, floor)
    for i, name in enumerate(stages):
        top = 8 + height * i
        parts.append(text(x_start - 8, top + height / 2, name, anchor="end"))
        bars = [
            ("hollow", times_of["stage_times_s"][name], times_of["stage_errors"][name])
            for times_of in predictions
        ]
        for row, (css, value, error) in enumerate([*bars, ("solid", measured[name], None)]):
            length = number((value or 0.0) * scale)
            box = f'x="{x_start:g}" y="{top + 13 * row}" width="{length}" height="11"'
            parts.append(f'<rect class="{css} s-{name}" {box}/>')
            end = x_start + (value or 0.0) * scale + 5
            parts.append(text(end, top + 13 * row + 9, milliseconds(value), css="small"))
            if error is not None:
                label = signed_percent(error)
                parts.append(text(width - 6, top + 13 * row + 9, label, anchor="end", css="strong"))
    middle = (x_start + width - right_margin) / 2
    parts.append(text(middle, floor + 33, "ms per step", anchor="middle"))
    return (
        f'<svg class="bars" viewBox="0 0 {width:g} {floor + 40}" role="img" '
        f'aria-label="measured and predicted stage times">{"".join(parts)}</svg>'
    )


_NUM_STEPS = 12
_WIDTH, _LEFT, _RIGHT = 1140.0, 78.0, 10.0
_ROW, _HEADING = 16.0, 24.0
#: Width in pixels of a digit of a step's number inside its bar.
_DIGIT = 6.5


def excerpt(
    spans: StructArray, epochs: dict[int, int], *, num_steps: int = _NUM_STEPS
) -> StructArray:
    """Return spans (a stage's start and end) of ``num_steps`` steps from the middle of ``spans``.

    Spans of other steps in the same time are included; spans are cut off at both ends of this time.
    ``epochs`` maps steps to epochs: the steps are of one epoch, because validation runs between
    epochs.
    """
    steps = np.unique(spans["step"])
    if len(steps) == 0:
        return spans
    middle = steps[len(steps) // 2]
    same_epoch = steps[[epochs.get(int(s)) == epochs.get(int(middle)) for s in steps]]
    center = int(np.searchsorted(same_epoch, middle))
    first = max(0, min(center - num_steps // 2, len(same_epoch) - num_steps))
    chosen = same_epoch[first : first + num_steps]
    # A pipeline prepares steps long before it trains them; the last stages define the time.
    late = spans[spans["stage"] >= STAGES.index("propagate")]
    within = late[np.isin(late["step"], chosen)]
    if len(within) == 0:
        within = spans[np.isin(spans["step"], chosen)]
    start, end = within["start"].min(), within["end"].max()
    cut: StructArray = spans[(spans["end"] > start) & (spans["start"] < end)].copy()
    cut["start"] = np.maximum(cut["start"], start)
    cut["end"] = np.minimum(cut["end"], end)
    return cut


def timeline(plan: DevicePlan, spans: StructArray) -> str:
    """Return an SVG element with a row for each device and stage, and a bar for each of ``spans``.

    ``spans`` are not empty.
    """
    start, end = float(spans["start"].min()), float(spans["end"].max())
    scale = (_WIDTH - _LEFT - _RIGHT) / max(end - start, 1e-9)
    parts: list[str] = []
    top = 0.0
    for rank, share in enumerate(plan.shares):
        device = share.device
        device_spans = spans[spans["device"] == rank]
        label = device_label(device.label, device.kind, device.figures)
        parts.append(text(_LEFT, top + 16, label, css="strong"))
        top += _HEADING
        for stage in np.unique(device_spans["stage"]).tolist():
            name = STAGES[stage]
            parts.append(text(_LEFT - 8, top + 12, name, anchor="end"))
            parts.append(f'<path class="grid" d="M{_LEFT:g} {top + _ROW:g}H{_WIDTH - _RIGHT:g}"/>')
            for _, _, step, begin, stop in device_spans[device_spans["stage"] == stage].tolist():
                x_start = _LEFT + (begin - start) * scale
                parts += _span(name, step, x_start, (stop - begin) * scale, top, stop - begin)
            top += _ROW
    longest = max((end - start) * 1e3, 1e-6)
    parts += _grid(longest, 12, (_WIDTH - _LEFT - _RIGHT) / longest, _LEFT, top)
    parts.append(text((_LEFT + _WIDTH) / 2, top + 34, "ms", anchor="middle", css="title"))
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDTH:g} {top + 40:g}" role="img" '
        'aria-label="stages of some steps over time, a row for each stage of a device">'
        f"{''.join(parts)}</svg>"
    )


def _span(
    name: str, step: int, x_start: float, width: float, top: float, seconds: float
) -> Sequence[str]:
    """Return SVG elements of one stage of one step: a bar, and the step's number if it fits.

    Bars of odd steps have another shade.
    """
    odd = " odd" if step % 2 else ""
    box = f'x="{number(x_start)}" y="{top + 1:g}" height="{_ROW - 2:g}" rx="1.5"'
    title = f"<title>step {step}: {name} {seconds * 1e3:.2f} ms</title>"
    bar = f'<rect class="s-{name} solid{odd}" {box} width="{max(width, 0.6):.1f}">{title}</rect>'
    label = str(step)
    if width < _DIGIT * len(label) + 4:
        return (bar,)
    return bar, text(x_start + width / 2, top + 12, label, anchor="middle", css=f"on-bar on-{name}")


def _grid(high: float, max_steps: int, scale: float, x_start: float, floor: float) -> list[str]:
    """Return SVG: labeled vertical lines at round values from 0 to ``high``, down to ``floor``.

    Value 0 is at pixel ``x_start``; a unit is ``scale`` pixels wide.
    """
    parts = []
    for value, label in ticks(0, high, max_steps):
        x = number(x_start + value * scale)
        parts.append(f'<path class="grid" d="M{x} 4V{floor:g}"/>')
        parts.append(text(float(x), floor + 16, label, anchor="middle"))
    return parts
