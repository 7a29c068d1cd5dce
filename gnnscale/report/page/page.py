"""``report.html``: a run on one page, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from gnnscale.report.figures import ABSENT, count, gib, percent
from gnnscale.report.files.steps import Steps
from gnnscale.report.page import sections
from gnnscale.report.page.balance import shares_and_threads
from gnnscale.report.page.cards import badge, device_css
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.stages import STAGES

__all__ = ["REPORT_FILE", "render"]

REPORT_FILE = "report.html"

#: Nothing is fetched, whatever a name in the data says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render(
    run: TrainResult,
    summary: dict[str, Any],
    steps: Steps,
    spans: NDArray[np.void],
    options: Mapping[str, Any],
) -> str:
    """Return the page.

    Args:
        run: the run, as far as it came.
        summary: what ``summary.json`` holds.
        steps: what ``steps.jsonl`` holds.
        spans: ``[num_spans]`` of ``SPAN``, of the first steps.
        options: the run's options as plain values.
    """
    parts = {
        "Devices": _devices(summary),
        "Loss and metric": sections.learning(run.history, steps, summary),
        "Stage times": sections.stage_times(run.plan, steps),
        "Batch shares and threads": shares_and_threads(run.plan, steps),
        "Predicted and measured": sections.prediction(summary["predicted"]),
        "Pipeline": sections.pipeline(run.plan, steps, spans),
        "Memory": sections.memory(run),
        "Options": _options(options, summary),
    }
    body = "".join(f"<section><h2>{title}</h2>{part}</section>" for title, part in parts.items())
    title = escape(f"{run.dataset} · {run.model} · gnnscale")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_asset('page.css')}</style></head>\n"
        f'<body><main>{_header(summary)}{body}</main><div id="tip" hidden></div>'
        f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files("gnnscale.report.page") / name).read_text()


def _header(summary: dict[str, Any]) -> str:
    status = escape(summary["status"])
    emulated = any(device["figures"] == "emulated" for device in summary["devices"])
    error = f'<div class="error">{escape(summary["error"])}</div>' if summary["error"] else ""
    warning = (
        f'<div class="note">{badge("emulated")} Emulated devices compute on this machine\'s cores '
        "and take the time that their metadata say; figures of this run are not those of real "
        "hardware.</div>"
    )
    mark = badge("emulated") if emulated else ""
    return (
        f'<div class="head"><h1>{escape(summary["dataset"])} · {escape(summary["model"])}</h1>'
        f'<span class="status {status}">{status}</span>{mark}</div>'
        f'<p class="soft">gnnscale {escape(str(summary["versions"]["gnnscale"]))}, '
        f"seed {summary['seed']}, {escape(summary['processor'])}</p>"
        f"{error}{warning if emulated else ''}{_tiles(summary)}"
    )


def _tiles(summary: dict[str, Any]) -> str:
    metric = escape(summary["metric"])
    best = summary["best_epoch"]
    ceiling = summary["ceiling"]
    attainable = "" if ceiling is None else f", of {ceiling:.4f} attainable"
    median = summary["epoch_time_s"]["median"]
    early = ", stopped early" if summary["stopped_early"] else ""
    tiles = [
        (_score(summary["test_metric"]), f"test {metric}{attainable}"),
        (
            _score(summary["valid_metric"]),
            f"validation {metric}" + ("" if best is None else f", epoch {best}"),
        ),
        (ABSENT if median is None else f"{median:.2f} s", "time per epoch, median"),
        (count(summary["mteps"]), "MTEPS, million edges per second"),
        (f"{summary['epochs']}", f"epochs{early}"),
        (gib(summary["peak_rss_bytes"]), "peak memory of one process"),
    ]
    items = (f'<div class="tile"><b>{value}</b><span>{what}</span></div>' for value, what in tiles)
    return f'<div class="tiles">{"".join(items)}</div>'


def _score(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _devices(summary: dict[str, Any]) -> str:
    stages = "".join(f"<th>{name} s</th>" for name in STAGES)
    rows = "".join(_device(rank, device) for rank, device in enumerate(summary["devices"]))
    return (
        '<div class="card wide"><table><tr><th class="left">device</th><th class="left">kind</th>'
        f"<th>share</th><th>threads</th>{stages}<th>over its link</th><th>late steps</th></tr>"
        f'{rows}</table><p class="soft">Means of an epoch; threads of sample / load / propagate at '
        "the end. Late steps: those in which the host was slower than the device it emulates."
        "</p></div>"
    )


def _device(rank: int, device: dict[str, Any]) -> str:
    threads = device["threads"]
    shown = ABSENT if threads is None else " / ".join(str(value) for value in threads.values())
    times = (device["stage_times_s"][name] for name in STAGES)
    cells = [
        percent(device["batch_share"]),
        shown,
        *(ABSENT if value is None else f"{value:.3f}" for value in times),
        gib(device["host_to_device_bytes"]),
        count(device["counters"].get("late_stages")),
    ]
    return (
        f'<tr><td class="left"><i class="{device_css(rank)}"></i>{escape(str(device["name"]))}</td>'
        f'<td class="left">{badge(device["kind"]) or escape(device["kind"])}</td>'
        f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    )


def _options(options: Mapping[str, Any], summary: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    text = escape(OmegaConf.to_yaml(dict(options)))
    return (
        f"<details class='card'><summary>config.yaml</summary><pre>{text}</pre></details>"
        f'<p class="soft">{escape(versions)}</p>'
    )
