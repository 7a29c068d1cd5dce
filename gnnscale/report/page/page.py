"""``report.html``: a run on one page, in a single file without external resources."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from gnnscale.core import STAGES, StructArray, one_line
from gnnscale.core.config import load_call
from gnnscale.planner import DevicePlan
from gnnscale.report import formatting, fpga
from gnnscale.report.formatting import ABSENT, MEASURED, count, duration, fixed, gib
from gnnscale.report.page import charts, devices, document
from gnnscale.report.page.classes import classes
from gnnscale.report.page.svg import Axis
from gnnscale.report.page.words import words
from gnnscale.report.prediction import sentences
from gnnscale.report.steps import Steps
from gnnscale.run.records import EpochRecord, TrainResult


def learning(epochs: Sequence[EpochRecord], steps: Steps, summary: dict[str, Any]) -> str:
    """Return plots of loss and validation metric, and a table of all metrics if several."""
    cards = []
    if len(steps):
        top = 1.05 * float(np.nanmax(steps.loss, initial=0.0)) or 1.0
        numbers = steps.number.astype(np.float64)
        curves = [charts.Curve(label="loss of a step", css="d-5", x=numbers, y=steps.loss)]
        ends = [int(steps.number[steps.epoch == epoch.epoch].max(initial=-1)) for epoch in epochs]
        ended = [(end, epoch) for end, epoch in zip(ends, epochs, strict=True) if end >= 0]
        if ended:
            x = np.array([end for end, _ in ended], dtype=np.float64)
            y = np.array([epoch.train_loss for _, epoch in ended])
            curves.append(charts.Curve(label="mean of its epoch", css="d-6", x=x, y=y, dots=True))
        chart = charts.line_chart(
            curves, x=devices.steps_axis(steps), y=Axis(title="loss", low=0, high=top)
        )
        key = charts.legend([(epoch.css, epoch.label) for epoch in curves])
        cards.append(document.card("Training loss", key + chart))
    measured = [epoch for epoch in epochs if epoch.valid_metric is not None]
    if measured:
        cards.append(_metric(measured, summary))
    if len(summary["test_metrics"]) > 1:
        cards.append(_all_metrics(summary))
    return document.grid(cards) or document.nothing("No step was finished.")


def _metric(measured: Sequence[EpochRecord], summary: dict[str, Any]) -> str:
    name = summary["metric"]
    x = np.array([epoch.epoch for epoch in measured], dtype=np.float64)
    y = np.array([epoch.valid_metric for epoch in measured], dtype=np.float64)
    margin = max(0.02, 0.1 * float(y.max() - y.min()))
    low, high = max(0.0, float(y.min()) - margin), float(y.max()) + margin
    curve = charts.Curve(label=f"validation {name}", css="d-0", x=x, y=y, dots=len(x) <= 60)
    best = summary["best_epoch"]
    chart = charts.line_chart(
        [curve],
        x=Axis(title="epoch", low=float(x[0]), high=float(x[-1]), integer=True),
        y=Axis(title=name, low=low, high=min(high, 1.0) if y.max() <= 1 else high),
        marks=[charts.VerticalMark(x=best, label=f"best epoch, {best}")],
    )
    key = charts.legend([("d-0", curve.label), ("mark", f"best epoch, {best}")])
    return document.card(f"Validation {escape(name)}", key + chart)


def _all_metrics(summary: dict[str, Any]) -> str:
    """Return an HTML table of each metric at the best epoch, by validation, test, popularity."""
    valid, test = summary["valid_metrics"], summary["test_metrics"]
    popularity = summary["test_popularity"]
    figures = {
        "validation": [fixed(valid.get(name), 4) for name in test],
        "test": [fixed(value, 4) for value in test.values()],
        "test, by popularity alone": [fixed(popularity.get(name), 4) for name in test],
    }
    body = document.column_table({"metric": [escape(name) for name in test]}, figures)
    if popularity:
        body += '<p class="soft">Popularity ranks candidates by their training in-degrees.</p>'
    return document.card(f"Metrics of the best epoch, {summary['best_epoch']}", body)


def stage_times(plan: DevicePlan, steps: Steps) -> str:
    """Return plots of each device's stage times over the steps, on one scale."""
    if not len(steps):
        return document.nothing("No step was finished.")
    top = charts.upper(np.nanmax(np.nan_to_num(steps.stages), axis=2).ravel() * 1e3)
    cards, numbers = [], steps.number.astype(np.float64)
    for rank in range(len(plan.shares)):
        curves = [
            charts.Curve(label=name, css=f"s-{name}", x=numbers, y=times * 1e3)
            for name, times in zip(STAGES, steps.stages[:, rank].T, strict=True)
            if np.isfinite(times).any()
        ]
        chart = charts.line_chart(
            curves,
            x=devices.steps_axis(steps),
            y=Axis(title="ms per step", low=0, high=top),
            marks=devices.decision_marks(steps),
        )
        key = charts.legend([(curve.css, curve.label) for curve in curves])
        greatest = float(np.nanmax(steps.stages[:, rank], initial=0.0))
        note = ""
        if greatest * 1e3 > top:
            highest = formatting.milliseconds(greatest)
            note = f'<p class="soft">Peaks are cut off; the highest is {highest} ms.</p>'
        cards.append(document.card(document.device_title(plan, rank), key + chart + note))
    return document.grid(cards)


def prediction(predicted: dict[str, Any] | None) -> str:
    """Return HTML bars of predicted and measured stage times, and lines about errors.

    ``predicted`` is the result of ``compare``; None: a line that there is no prediction.
    """
    if predicted is None:
        return document.nothing("The performance model was not asked about this run.")
    times = [
        seconds
        for device in predicted["devices"]
        for name in ("measured", *formatting.PREDICTIONS)
        if device[name] is not None
        for seconds in device[name]["stage_times_s"].values()
        if seconds is not None
    ]
    longest = max(times, default=0.0) or 1e-3
    cards = [
        document.card(
            f"{escape(device['name'])}{document.badge(device['figures'])}",
            charts.prediction_chart(device, longest=longest),
        )
        for device in predicted["devices"]
    ]
    lines = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(predicted))
    note = "Figures are of full mini-batches under the plan that the run began with; their medians."
    names = " and ".join(
        words for name, words in formatting.PREDICTIONS.items() if predicted[name] is not None
    )
    key = (
        f'<ul class="legend"><li><i class="hollow s-sample"></i>predicted {names}, above</li>'
        '<li><i class="s-sample"></i>of the run, below</li>'
        "<li>right: error of the prediction</li></ul>"
    )
    return f'<ul class="facts">{lines}</ul><p>{note}</p>{key}{document.grid(cards)}'


def memory(run: TrainResult) -> str:
    """Return HTML: each worker's peak RSS and PSS over epochs as a plot, and of the last epoch."""
    workers = [run.epochs_of(rank) for rank in range(len(run.plan.shares))]
    if not all(workers):
        return document.nothing("No epoch was finished.")
    curves, rows, key = [], [], []
    for rank, records in enumerate(workers):
        device = list(records.values())[-1]
        name, css = device.name, document.device_css(rank)
        x = np.array(list(records), dtype=np.float64)
        rss = np.array([record.peak_rss_bytes for record in records.values()]) / 2**30
        num_bytes = [record.pss_bytes for record in records.values()]
        pss = np.array(num_bytes, dtype=np.float64) / 2**30
        key.append((css, name))
        curves.append(
            charts.Curve(label=f"{name} peak RSS", css=css, x=x, y=rss, dashed=True, dots=True)
        )
        if np.isfinite(pss).any():
            curves.append(charts.Curve(label=f"{name} PSS", css=css, x=x, y=pss, dots=True))
        label = f'<i class="{css}"></i>{escape(name)}{document.badge(device.figures)}'
        rows.append((label, gib(device.peak_rss_bytes), gib(device.pss_bytes)))
    high = 1.1 * max(float(np.nanmax(curve.y)) for curve in curves)
    first, last = min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)
    chart = charts.line_chart(
        curves,
        x=Axis(title="epoch", low=float(first), high=float(last), integer=True),
        y=Axis(title="GiB", low=0, high=high or 1.0),
    )
    last_pss = [list(records.values())[-1].pss_bytes for records in workers]
    counted = [num_bytes for num_bytes in last_pss if num_bytes is not None]
    if len(counted) > 1:
        rows.append(("all workers", "", gib(sum(counted))))
    labels, peaks, proportional = zip(*rows, strict=True)
    figures = {
        "peak resident set (RSS)": peaks,
        "proportional set (PSS) at the end": proportional,
    }
    body = (
        f'<div class="memory">{document.column_table({"worker": labels}, figures)}</div>'
        '<p class="soft">Pages that workers share, such as the graph, count in the RSS of each, '
        "and once in the sum of their PSS.</p>"
    )
    lines = (
        '<ul class="legend"><li>solid: proportional set (PSS)</li>'
        "<li>dashed: peak resident set (RSS)</li></ul>"
    )
    return document.grid(
        [
            document.card("Memory per worker", charts.legend(key) + lines + chart),
            document.card("Figures", body),
        ]
    )


def pipeline(plan: DevicePlan, steps: Steps, spans: StructArray) -> str:
    """Return an HTML timeline of the stages of a dozen steps on each device, from ``spans``."""
    if not len(spans):
        return document.nothing("No timeline was recorded.")
    epochs = dict(zip(steps.number.tolist(), steps.epoch.tolist(), strict=True))
    visible = charts.excerpt(spans, epochs)
    present = [STAGES[i] for i in np.unique(visible["stage"]).tolist()]
    key = charts.legend([(f"s-{name}", name) for name in present])
    simulated = any(fpga.is_simulated(share.device) for share in plan.shares)
    note = (
        '<p class="soft">Numbers are steps; shades alternate from step to step. The full '
        "timeline of the first steps is in trace.json, which Perfetto opens."
        f"{' Bars of csim devices last as long as simulating took.' if simulated else ''}</p>"
    )
    return f'<div class="card wide">{key}{charts.timeline(plan, visible)}{note}</div>'


REPORT_FILE = "report.html"


def render(
    run: TrainResult,
    summary: dict[str, Any],
    steps: Steps,
    spans: StructArray,
    options: Mapping[str, Any],
    directory: Path,
) -> str:
    """Return the HTML page of a run; ``spans`` are stage times of its first steps for the timeline.

    ``summary`` is the content of ``summary.json`` in ``directory``, ``options`` the options of the
    run.
    """
    parts = {
        "Classes": classes(summary),
        "Devices": devices.devices(summary),
        "Loss and metric": learning(run.history, steps, summary),
        "Stage times": stage_times(run.plan, steps),
        "Traffic": devices.traffic(run.plan, steps, summary),
        "Batch shares and threads": devices.shares_and_threads(run.plan, steps),
        "Predicted and measured": prediction(summary["predicted"]),
        "Pipeline": pipeline(run.plan, steps, spans),
        "Memory": memory(run),
    }
    empty = {title: part for title, part in parts.items() if part.startswith(document.NOTHING)}
    visible = {title: part for title, part in parts.items() if title not in empty}
    visible["Not shown"] = "".join(
        part.replace(document.NOTHING, f"{document.NOTHING}{title}: ", 1)
        for title, part in empty.items()
    )
    body = f"{_header(summary)}{document.sections(visible)}"
    repeat = _options(options, summary, directory) + words(body)
    body += document.sections({"Options and command": repeat})
    title = f"{run.dataset} · {run.model} · gnnscale"
    return document.document(title, body, script="page.js")


def _header(summary: dict[str, Any]) -> str:
    status = escape(summary["status"])
    figures = summary["figures"]
    error = f'<div class="error">{escape(summary["error"])}</div>' if summary["error"] else ""
    warning = (
        f'<div class="note">{document.badge(figures)} Devices with this mark are not real '
        "hardware, and so the figures of this run are not those of real hardware."
        f"{_simulating(summary)}</div>"
    )
    return (
        f'<div class="head"><h1>{escape(summary["dataset"])} · {escape(summary["model"])}</h1>'
        f'<span class="status {status}">{status}</span>{document.badge(figures)}</div>'
        f'<p class="soft">gnnscale {escape(str(summary["versions"]["gnnscale"]))}, '
        f"seed {summary['seed']}, {escape(summary['processor'])}</p>{_sizes(summary['graph'])}"
        f"{error}{'' if figures == MEASURED else warning}{_tiles(summary)}"
    )


def _simulating(summary: dict[str, Any]) -> str:
    """Return a note on times of simulated FPGAs and of this machine; empty without such FPGAs."""
    if all(device["csim"] is None for device in summary["devices"]):
        return ""
    return (
        " Seconds of propagate on csim devices are cycles over their clock, and those of transfer "
        "are modeled. Seconds of steps and epochs, edges per second and the pipeline are those of "
        "this machine, which simulates."
    )


def _sizes(graph: dict[str, Any] | None) -> str:
    """Return a line with the sizes of the graph and of its split; empty: they are unknown."""
    if graph is None:
        return ""
    names = ("vertices", "edges", "features", "classes")
    present = [f"{graph[f'num_{name}']:,} {name}" for name in names if graph[f"num_{name}"]]
    split = ", ".join(
        f"{graph['split'][part]:,} {verb}" if graph["split"][part] else f"none {verb}"
        for part, verb in (("train", "train"), ("valid", "validate"), ("test", "test"))
    )
    return f'<p class="soft">{", ".join(present)}; of the {escape(graph["split_of"])} {split}</p>'


def _tiles(summary: dict[str, Any]) -> str:
    metric = escape(summary["metric"])
    best = summary["best_epoch"]
    ceiling = summary["ceiling"]
    attainable = "" if ceiling is None else f", of {ceiling:.4f} attainable"
    median = summary["epoch_time_s"]["median"]
    early = ", stopped early" if summary["stopped_early"] else ""
    of_epoch = "" if best is None else f", epoch {best}"
    sizes = (summary["graph"] or {}).get("split", {})
    rate = summary["base_rates"].get("test")
    base = "" if rate is None else f", base rate {rate:.4f}"
    valid, test = (
        ": the split lacks the part" if sizes.get(part) == 0 else ending
        for part, ending in (("valid", of_epoch), ("test", f"{attainable}{base}"))
    )
    tiles = [
        (fixed(summary["test_metric"], 4), f"test {metric}{test}"),
        (fixed(summary["valid_metric"], 4), f"validation {metric}{valid}"),
        (ABSENT if median is None else duration(median), "time per epoch, median"),
        (count(summary["mteps"]), "million edges traversed per second (MTEPS)"),
        (f"{summary['epochs']}", f"epochs{early}"),
        (gib(summary["peak_rss_bytes"]), "peak memory of one process"),
    ]
    items = (
        f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles
    )
    return f'<div class="tiles">{"".join(items)}</div>'


def _options(options: Mapping[str, Any], summary: dict[str, Any], directory: Path) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    text = escape(OmegaConf.to_yaml(dict(options)))
    command = summary["command"]
    line = f'<pre class="card">{escape(one_line(command, 4000))}</pre>' if command else ""
    repeat = f"<p>This line repeats the run:</p>{line}" if line else ""
    call = escape(one_line(load_call(directory, options), 4000))
    return (
        f"{repeat}<p>In Python this opens the run:</p><pre class='card'>{call}</pre>"
        f"<details class='card'><summary>config.yaml</summary><pre>{text}</pre></details>"
        f'<p class="soft">{escape(versions)}</p>'
    )
