"""Plots of bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnscale.report.figures import PREDICTIONS, milliseconds, signed_percent
from gnnscale.report.page.svg import number, text, ticks
from gnnscale.stages import STAGES

__all__ = ["Bar", "bar_chart", "prediction_chart"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar with its label to the left, and a note behind its end."""

    label: str
    value: float | None
    note: str


def bar_chart(title: str, bars: Sequence[Bar], *, unit: str) -> str:
    """Return an SVG file of horizontal bars, with colours for light and for dark."""
    left = 16 + 7.2 * max((len(bar.label) for bar in bars), default=0)
    width, height = left + 620, 46 + 26 * len(bars)
    longest = max((bar.value or 0.0 for bar in bars), default=0.0) or 1.0
    parts = [text(12, 24, f"{title}, {unit}", css="title")]
    for i, bar in enumerate(bars):
        top = 38 + 26 * i
        length = 440 * (bar.value or 0.0) / longest
        parts.append(text(left - 8, top + 14, bar.label, anchor="end"))
        parts.append(
            f'<rect x="{number(left)}" y="{top}" width="{number(length)}" height="20" rx="2"/>'
        )
        parts.append(text(left + length + 6, top + 14, bar.note))
    style = (
        "svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#24292f}"
        ".title{font-weight:600}rect{fill:#2a78d6}"
        "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e3e6ea}"
        "rect{fill:#3987e5}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}"><style>{style}</style>{"".join(parts)}</svg>\n'
    )


def prediction_chart(device: Mapping[str, Any], *, longest: float) -> str:
    """Return an SVG element of a device's stage times: each prediction, and below the measured.

    Args:
        device: an entry of ``devices`` as ``prediction.compare`` returns it.
        longest: seconds at the end of the axis, the same for all devices that are compared.
    """
    width, left, right = 560.0, 78.0, 118.0
    predictions = [device[name] for name in PREDICTIONS if device[name] is not None]
    seen = device["measured"]["stage_times_s"]
    times = [*(each["stage_times_s"] for each in predictions), seen]
    stages = [name for name in STAGES if any(each[name] for each in times)]
    height = 13 * len(times) + 8
    floor = 8 + height * len(stages)
    parts = []
    scale = (width - left - right) / longest
    for value, label in ticks(0, longest * 1e3, 5):
        at = number(left + value / 1e3 * scale)
        parts.append(f'<path class="grid" d="M{at} 4V{floor}"/>')
        parts.append(text(float(at), floor + 16, label, anchor="middle"))
    for i, name in enumerate(stages):
        top = 8 + height * i
        parts.append(text(left - 8, top + height / 2, name, anchor="end"))
        bars = [
            ("hollow", each["stage_times_s"][name], each["stage_errors"][name])
            for each in predictions
        ]
        for row, (css, value, error) in enumerate([*bars, ("solid", seen[name], None)]):
            length = number((value or 0.0) * scale)
            place = f'x="{left:g}" y="{top + 13 * row}" width="{length}" height="11"'
            parts.append(f'<rect class="{css} s-{name}" {place}/>')
            end = left + (value or 0.0) * scale + 5
            parts.append(text(end, top + 13 * row + 9, milliseconds(value), css="small"))
            if error is not None:
                told = signed_percent(error)
                parts.append(text(width - 6, top + 13 * row + 9, told, anchor="end", css="strong"))
    parts.append(text((left + width - right) / 2, floor + 33, "ms per step", anchor="middle"))
    return (
        f'<svg class="bars" viewBox="0 0 {width:g} {floor + 40}" role="img">{"".join(parts)}</svg>'
    )
