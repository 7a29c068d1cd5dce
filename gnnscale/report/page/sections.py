"""The sections of ``report.html`` that have plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.stages import STAGES
from gnnscale.plan import DevicePlan
from gnnscale.report import figures, fpga
from gnnscale.report.files.steps import Steps
from gnnscale.report.page.charts import (
    Curve,
    Mark,
    excerpt,
    legend,
    line_chart,
    prediction_chart,
    timeline,
    upper,
)
from gnnscale.report.page.devices import decision_marks, steps_axis
from gnnscale.report.page.parts import badge, card, device_css, device_title, grid, nothing
from gnnscale.report.page.svg import Axis
from gnnscale.report.prediction import sentences
from gnnscale.runtime.telemetry.records import EpochRecord, TrainResult


def learning(epochs: Sequence[EpochRecord], steps: Steps, summary: dict[str, Any]) -> str:
    """Loss over steps, and the validation metric over epochs."""
    cards = []
    if len(steps):
        top = 1.05 * float(np.nanmax(steps.loss, initial=0.0)) or 1.0
        curves = [Curve(label="loss of a step", css="d-5", x=_float(steps.number), y=steps.loss)]
        ends = [int(steps.number[steps.epoch == each.epoch].max(initial=-1)) for each in epochs]
        known = [(end, each) for end, each in zip(ends, epochs, strict=True) if end >= 0]
        if known:
            x = np.array([end for end, _ in known], dtype=np.float64)
            y = np.array([each.train_loss for _, each in known])
            curves.append(Curve(label="mean of its epoch", css="d-6", x=x, y=y, dots=True))
        chart = line_chart(curves, x=steps_axis(steps), y=Axis(title="loss", low=0, high=top))
        key = legend([(each.css, each.label) for each in curves])
        cards.append(card("Training loss", key + chart))
    measured = [each for each in epochs if each.valid_metric is not None]
    if measured:
        cards.append(_metric(measured, summary))
    return grid(cards) or nothing("No step was finished.")


def _metric(measured: Sequence[EpochRecord], summary: dict[str, Any]) -> str:
    name = summary["metric"]
    x = np.array([each.epoch for each in measured], dtype=np.float64)
    y = np.array([each.valid_metric for each in measured], dtype=np.float64)
    room = max(0.02, 0.1 * float(y.max() - y.min()))
    low, high = max(0.0, float(y.min()) - room), float(y.max()) + room
    curve = Curve(label=f"validation {name}", css="d-0", x=x, y=y, dots=len(x) <= 60)
    best = summary["best_epoch"]
    chart = line_chart(
        [curve],
        x=Axis(title="epoch", low=float(x[0]), high=float(x[-1]), integer=True),
        y=Axis(title=name, low=low, high=min(high, 1.0) if y.max() <= 1 else high),
        marks=[Mark(x=best, label=f"best epoch, {best}")],
    )
    key = legend([("d-0", curve.label), ("mark", f"best epoch, {best}")])
    return card(f"Validation {name}", key + chart)


def stage_times(plan: DevicePlan, steps: Steps) -> str:
    """Each device's stage times over the steps, all on one scale."""
    if not len(steps):
        return nothing("No step was finished.")
    top = upper(np.nanmax(np.nan_to_num(steps.stages), axis=2).ravel() * 1e3)
    cards = []
    for rank in range(len(plan.shares)):
        curves = [
            Curve(label=name, css=f"s-{name}", x=_float(steps.number), y=times * 1e3)
            for name, times in zip(STAGES, steps.stages[:, rank].T, strict=True)
            if np.isfinite(times).any()
        ]
        chart = line_chart(
            curves,
            x=steps_axis(steps),
            y=Axis(title="ms per step", low=0, high=top),
            marks=decision_marks(steps),
        )
        key = legend([(each.css, each.label) for each in curves])
        note = _cut_note(top, steps.stages[:, rank])
        cards.append(card(device_title(plan, rank), key + chart + note))
    return grid(cards)


def prediction(predicted: dict[str, Any] | None) -> str:
    """Stage times of the performance model next to the measured ones."""
    if predicted is None:
        return nothing("The performance model was not asked about this run.")
    times = [
        seconds
        for device in predicted["devices"]
        for name in ("measured", *figures.PREDICTIONS)
        if device[name] is not None
        for seconds in device[name]["stage_times_s"].values()
        if seconds is not None
    ]
    longest = max(times, default=0.0) or 1e-3
    cards = [
        card(
            f"{escape(device['name'])}{badge(device['figures'])}",
            prediction_chart(device, longest=longest),
        )
        for device in predicted["devices"]
    ]
    lines = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(predicted))
    note = "Figures are of full mini-batches under the plan that the run began with; their medians."
    names = " and ".join(
        words for name, words in figures.PREDICTIONS.items() if predicted[name] is not None
    )
    key = (
        f'<ul class="legend"><li><i class="hollow s-sample"></i>predicted {names}, above</li>'
        '<li><i class="s-sample"></i>of the run, below</li>'
        "<li>right: error of the prediction</li></ul>"
    )
    return f'<ul class="facts">{lines}</ul><p>{note}</p>{key}{grid(cards)}'


def memory(run: TrainResult) -> str:
    """Memory of every worker over the epochs that it trained: resident and proportional set."""
    workers = [run.epochs_of(rank) for rank in range(len(run.plan.shares))]
    if not all(workers):
        return nothing("No epoch was finished.")
    curves, rows, key = [], [], []
    for rank, found in enumerate(workers):
        device = list(found.values())[-1]
        name, css = device.name, device_css(rank)
        x = np.array(list(found), dtype=np.float64)
        rss = np.array([each.peak_rss_bytes for each in found.values()]) / 2**30
        pss = np.array([_nan(each.pss_bytes) for each in found.values()]) / 2**30
        key.append((css, name))
        curves.append(Curve(label=f"{name} peak RSS", css=css, x=x, y=rss, dashed=True, dots=True))
        if np.isfinite(pss).any():
            curves.append(Curve(label=f"{name} PSS", css=css, x=x, y=pss, dots=True))
        rows.append(
            f'<tr><td class="left"><i class="{css}"></i>{escape(name)}{badge(device.figures)}</td>'
            f"<td>{figures.gib(device.peak_rss_bytes)}</td><td>{figures.gib(device.pss_bytes)}</td></tr>"
        )
    high = 1.1 * max(float(np.nanmax(curve.y)) for curve in curves)
    chart = line_chart(
        curves,
        x=Axis(
            title="epoch",
            low=min(float(curve.x[0]) for curve in curves),
            high=max(float(curve.x[-1]) for curve in curves),
            integer=True,
        ),
        y=Axis(title="GiB", low=0, high=high or 1.0),
    )
    last = [list(found.values())[-1].pss_bytes for found in workers]
    known = [each for each in last if each is not None]
    total = f"<tr><td class='left'>all workers</td><td></td><td>{figures.gib(sum(known))}</td></tr>"
    table = (
        '<table><tr><th class="left">worker</th><th>peak RSS</th><th>PSS at the end</th></tr>'
        f"{''.join(rows)}{total if len(known) > 1 else ''}</table>"
        '<p class="soft">Pages that workers share, such as the graph, count in the RSS of each, '
        "and once in the sum of their PSS.</p>"
    )
    lines = '<ul class="legend"><li>solid: PSS</li><li>dashed: peak RSS</li></ul>'
    return grid([card("Memory per worker", legend(key) + lines + chart), card("Figures", table)])


def pipeline(plan: DevicePlan, steps: Steps, spans: NDArray[np.void]) -> str:
    """A dozen steps of the timeline."""
    if not len(spans):
        return nothing("No timeline was recorded.")
    epochs = dict(zip(steps.number.tolist(), steps.epoch.tolist(), strict=True))
    shown = excerpt(spans, epochs)
    present = [STAGES[i] for i in np.unique(shown["stage"]).tolist()]
    key = legend([(f"s-{name}", name) for name in present])
    simulated = any(fpga.is_simulated(share.device) for share in plan.shares)
    note = (
        '<p class="soft">Numbers are steps; shades alternate from step to step. The full '
        "timeline of the first steps is in trace.json, which Perfetto opens."
        f"{' Bars of csim devices last as long as simulating took.' if simulated else ''}</p>"
    )
    return f'<div class="card wide">{key}{timeline(plan, shown)}{note}</div>'


def _cut_note(top_ms: float, seconds: NDArray[np.float64]) -> str:
    greatest = float(np.nanmax(seconds, initial=0.0))
    if greatest * 1e3 <= top_ms:
        return ""
    highest = figures.milliseconds(greatest)
    return f'<p class="soft">Peaks are cut off; the highest is {highest} ms.</p>'


def _float(values: NDArray[np.int64]) -> NDArray[np.float64]:
    return values.astype(np.float64)


def _nan(value: int | None) -> float:
    return float("nan") if value is None else float(value)
