"""An excerpt of the pipeline's timeline: which stage of which step ran when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnscale.plan import DevicePlan
from gnnscale.report.devices import device_label
from gnnscale.report.page.svg import number, text, ticks
from gnnscale.stages import STAGES

__all__ = ["excerpt", "timeline"]

_NUM_STEPS = 12
_WIDTH, _LEFT, _RIGHT = 1140.0, 78.0, 10.0
_ROW, _HEADING = 16.0, 24.0
#: Pixels that a digit of a step's number takes inside its bar.
_DIGIT = 6.5


def excerpt(
    spans: NDArray[np.void], epochs: dict[int, int], *, num_steps: int = _NUM_STEPS
) -> NDArray[np.void]:
    """Return the spans that fall into the time of ``num_steps`` steps in the middle.

    They are steps of one epoch, as validation lies between two.

    Args:
        spans: ``[num_spans]`` of ``SPAN``.
        epochs: the epoch of each step.
        num_steps: how many steps, fewer where the epoch has not so many.

    Returns:
        Spans of those steps and of steps that overlap with them, cut off at both ends.
    """
    steps = np.unique(spans["step"])
    if len(steps) == 0:
        return spans
    middle = steps[len(steps) // 2]
    same_epoch = steps[[epochs.get(int(s)) == epochs.get(int(middle)) for s in steps]]
    center = int(np.searchsorted(same_epoch, middle))
    first = max(0, min(center - num_steps // 2, len(same_epoch) - num_steps))
    chosen = same_epoch[first : first + num_steps]
    # A pipeline prepares steps long before they train, so the last two stages tell the time.
    late = spans[spans["stage"] >= STAGES.index("propagate")]
    within = late[np.isin(late["step"], chosen)]
    if len(within) == 0:
        within = spans[np.isin(spans["step"], chosen)]
    start, end = within["start"].min(), within["end"].max()
    cut: NDArray[np.void] = spans[(spans["end"] > start) & (spans["start"] < end)].copy()
    cut["start"] = np.maximum(cut["start"], start)
    cut["end"] = np.minimum(cut["end"], end)
    return cut


def timeline(plan: DevicePlan, spans: NDArray[np.void]) -> str:
    """Return an SVG element with a row for each device and stage.

    Args:
        plan: names the devices, by rank.
        spans: ``[num_spans]`` of ``SPAN``, at least one.
    """
    start, end = float(spans["start"].min()), float(spans["end"].max())
    scale = (_WIDTH - _LEFT - _RIGHT) / max(end - start, 1e-9)
    parts: list[str] = []
    top = 0.0
    for rank, share in enumerate(plan.shares):
        device = share.device
        mine = spans[spans["device"] == rank]
        label = device_label(device.label, device.kind, device.figures)
        parts.append(text(_LEFT, top + 16, label, css="strong"))
        top += _HEADING
        for stage in np.unique(mine["stage"]).tolist():
            name = STAGES[stage]
            parts.append(text(_LEFT - 8, top + 12, name, anchor="end"))
            parts.append(f'<path class="grid" d="M{_LEFT:g} {top + _ROW:g}H{_WIDTH - _RIGHT:g}"/>')
            for _, _, step, begin, stop in mine[mine["stage"] == stage].tolist():
                left = _LEFT + (begin - start) * scale
                parts += _span(name, step, left, (stop - begin) * scale, top, stop - begin)
            top += _ROW
    parts = [*_time_axis((end - start) * 1e3, top), *parts]
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDTH:g} {top + 40:g}" role="img">'
        f"{''.join(parts)}</svg>"
    )


def _span(
    name: str, step: int, left: float, width: float, top: float, seconds: float
) -> Sequence[str]:
    """A bar, its shade changing from step to step, with the step's number where there is room."""
    odd = " odd" if step % 2 else ""
    place = f'x="{number(left)}" y="{top + 1:g}" height="{_ROW - 2:g}" rx="1.5"'
    title = f"<title>step {step}: {name} {seconds * 1e3:.2f} ms</title>"
    bar = f'<rect class="s-{name} solid{odd}" {place} width="{max(width, 0.6):.1f}">{title}</rect>'
    label = str(step)
    if width < _DIGIT * len(label) + 4:
        return (bar,)
    return bar, text(left + width / 2, top + 12, label, anchor="middle", css=f"on-bar on-{name}")


def _time_axis(span_ms: float, floor: float) -> list[str]:
    scale = (_WIDTH - _LEFT - _RIGHT) / max(span_ms, 1e-6)
    parts = []
    for value, label in ticks(0, max(span_ms, 1e-6), 12):
        at = number(_LEFT + value * scale)
        parts.append(f'<path class="grid" d="M{at} 4V{floor:g}"/>')
        parts.append(text(float(at), floor + 16, label, anchor="middle"))
    parts.append(text((_LEFT + _WIDTH) / 2, floor + 34, "ms", anchor="middle", css="title"))
    return parts
