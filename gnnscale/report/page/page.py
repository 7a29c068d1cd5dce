"""``report.html``: a run on one page, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from gnnscale.report.figures import ABSENT, MEASURED, count, gib
from gnnscale.report.files.steps import Steps
from gnnscale.report.page import sections
from gnnscale.report.page.devices import devices, shares_and_threads, traffic
from gnnscale.report.page.parts import badge
from gnnscale.runtime.telemetry.records import TrainResult

REPORT_FILE = "report.html"

#: Nothing is fetched, whatever names the data has.
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
        spans: ``[num_spans]`` of ``SPAN``, of the first steps.
    """
    parts = {
        "Devices": devices(summary),
        "Loss and metric": sections.learning(run.history, steps, summary),
        "Stage times": sections.stage_times(run.plan, steps),
        "Traffic": traffic(run.plan, steps, summary),
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
    figures = summary["figures"]
    error = f'<div class="error">{escape(summary["error"])}</div>' if summary["error"] else ""
    warning = (
        f'<div class="note">{badge(figures)} Devices with this mark are not real hardware, and '
        f"so the figures of this run are not those of real hardware.{_simulating(summary)}</div>"
    )
    return (
        f'<div class="head"><h1>{escape(summary["dataset"])} · {escape(summary["model"])}</h1>'
        f'<span class="status {status}">{status}</span>{badge(figures)}</div>'
        f'<p class="soft">gnnscale {escape(str(summary["versions"]["gnnscale"]))}, '
        f"seed {summary['seed']}, {escape(summary['processor'])}</p>"
        f"{error}{'' if figures == MEASURED else warning}{_tiles(summary)}"
    )


def _simulating(summary: dict[str, Any]) -> str:
    """Which seconds are a simulated card's, and which are this machine's."""
    if all(device["csim"] is None for device in summary["devices"]):
        return ""
    return (
        " Seconds of propagate on csim devices are cycles over their clock, and those of transfer "
        "are modelled. Seconds of steps and epochs, edges per second and the pipeline are those of "
        "this machine, which simulates."
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


def _options(options: Mapping[str, Any], summary: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    text = escape(OmegaConf.to_yaml(dict(options)))
    return (
        f"<details class='card'><summary>config.yaml</summary><pre>{text}</pre></details>"
        f'<p class="soft">{escape(versions)}</p>'
    )
