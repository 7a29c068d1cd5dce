"""The sections of ``report.html`` that tell devices apart: their figures, and what they moved."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from gnnscale.cache.cache_plan import HOST, ROWS_FROM
from gnnscale.plan import DevicePlan
from gnnscale.report.figures import ABSENT, count, gib, percent
from gnnscale.report.files.steps import Steps
from gnnscale.report.fpga import SIMULATED, simulating
from gnnscale.report.page.balance import decision_marks, steps_axis
from gnnscale.report.page.cards import badge, card, device_css, grid, nothing, table
from gnnscale.report.page.charts import Curve, legend, line_chart
from gnnscale.report.page.svg import Axis
from gnnscale.stages import STAGES

__all__ = ["devices", "traffic"]


def devices(summary: Mapping[str, Any]) -> str:
    """What each device did in an epoch; figures that no device has are left out."""
    found = summary["devices"]
    labels = {
        "device": [_name(rank, each) for rank, each in enumerate(found)],
        "kind": [_kind(each) for each in found],
    }
    figures = {
        "share": [percent(each["batch_share"]) for each in found],
        "threads": [_threads(each["threads"]) for each in found],
        **{
            f"{name} s": [_seconds(each["stage_times_s"][name]) for each in found]
            for name in STAGES
        },
        "feature hits": [percent(each["feature_hit_rate"]) for each in found],
        "topology hits": [percent(each["topology_hit_rate"]) for each in found],
        "over its link": [gib(_link(each, "link_bytes")) for each in found],
        "requests": [count(_link(each, "link_requests")) for each in found],
    }
    note = '<p class="soft">Means of an epoch; threads of sample / load / propagate at the end.</p>'
    own = _csim(found) + _counters(found)
    return f'<div class="card wide">{table(labels, figures)}{note}</div>{own}'


def _csim(devices: list[dict[str, Any]]) -> str:
    """What C simulation counted of FPGAs, in a step."""
    ranks = [rank for rank, each in enumerate(devices) if each["csim"] is not None]
    found = [devices[rank]["csim"] for rank in ranks]
    if not found:
        return ""
    labels = {
        "device": [_name(rank, devices[rank]) for rank in ranks],
        "kind": [_kind(devices[rank]) for rank in ranks],
    }
    cycles = {
        "cycles": [count(round(each["cycles"])) for each in found],
        **{
            f"{engine} busy": [percent(each["busy"][engine]) for each in found]
            for engine in found[0]["busy"]
        },
        "bottleneck": [each["bottleneck"] for each in found],
    }
    memory = {
        f"{kind} MiB": [count(each["memory_bytes"][kind] / 2**20) for each in found]
        for kind in found[0]["memory_bytes"]
    }
    events = {
        name.replace("_", " "): [count(round(each["events"][name])) for each in found]
        for name in found[0]["events"]
    }
    tables = "".join(
        f"<h3>{title}, of a step</h3>{table(labels, figures)}"
        for title, figures in (
            ("Cycles of simulated FPGAs", cycles),
            ("Device memory", memory),
            ("Events", events),
        )
    )
    took = "; ".join(
        f"{escape(devices[rank]['name'])}: {simulating(devices[rank]['csim'])}" for rank in ranks
    )
    note = (
        '<p class="soft">Cycles and engines are those of the slowest compute unit, memory and '
        f"events those of all. {took}.</p>"
    )
    return f'<div class="card wide">{tables}{note}</div>'


def traffic(plan: DevicePlan, steps: Steps, summary: Mapping[str, Any]) -> str:
    """What crossed links and what caches answered: over the steps, and in an epoch."""
    rows = [
        (_name(rank, each), what, each["traffic"][part], each[rate])
        for rank, each in enumerate(summary["devices"])
        for part, what, rate in (
            ("rows", "features", "feature_hit_rate"),
            ("lists", "topology", "topology_hit_rate"),
        )
        if each["traffic"] is not None and any(each["traffic"][part].values())
    ]
    cards = [_link_chart(plan, steps)] if steps.link_bytes.any() else []
    figures = card("Figures", _traffic_table(rows)) if rows else ""
    matrix = _traffic_matrix(summary)
    if matrix is not None:
        cards.append(card("Where rows came from", matrix))
    # Hits and misses need the width of the page.
    if any(rate is not None for *_, rate in rows):
        return grid(cards) + figures
    return grid([*cards, *([figures] if figures else [])]) or nothing(
        "No device has a link or a cache."
    )


def _traffic_matrix(summary: Mapping[str, Any]) -> str | None:
    """Rows that each device read at each other and at the host (Legion, figure 10)."""
    found = summary["devices"]
    places = [*(each["name"] for each in found), HOST]
    if not any(name.startswith(ROWS_FROM) for each in found for name in each["counters"]):
        return None

    def rows(device: Mapping[str, Any], place: str) -> str:
        return count(device["counters"].get(f"{ROWS_FROM}{place}") or None)

    read = {escape(place): [rows(each, place) for each in found] for place in places}
    labels = {"read by": [_name(rank, each) for rank, each in enumerate(found)]}
    note = '<p class="soft">Rows of the whole run, by the cache that had them.</p>'
    return f'<div class="wide">{table(labels, read)}</div>{note}'


def _link_chart(plan: DevicePlan, steps: Steps) -> str:
    sent = steps.link_bytes / 2**20
    curves = [
        Curve(
            label=share.device.label,
            css=device_css(rank),
            x=steps.number.astype(np.float64),
            y=sent[:, rank],
        )
        for rank, share in enumerate(plan.shares)
        if sent[:, rank].any()
    ]
    chart = line_chart(
        curves,
        x=steps_axis(steps),
        y=Axis(title="MiB per step", low=0, high=1.05 * float(sent.max())),
        marks=decision_marks(steps),
    )
    key = legend([(each.css, each.label) for each in curves])
    return card("Over the link between host and device", key + chart)


def _traffic_table(rows: list[tuple[str, str, dict[str, int], float | None]]) -> str:
    """Counts of an epoch; ``rows`` are device, what was read, its counts and its hit rate."""

    def asked(name: str) -> list[str]:
        return [ABSENT if rate is None else count(counts[name]) for _, _, counts, rate in rows]

    def moved(name: str, form: Any) -> list[str]:
        return [form(counts[name] or None) for _, _, counts, _ in rows]

    figures = {
        "hits": asked("hits"),
        "peer hits": asked("peer_hits"),
        "misses": asked("misses"),
        "hit rate": [percent(rate) for *_, rate in rows],
        "over the link": moved("link_bytes", gib),
        "requests": moved("link_requests", count),
        "from peers": moved("peer_bytes", gib),
    }
    labels = {"device": [row[0] for row in rows], "what": [row[1] for row in rows]}
    has_cache = any(rate is not None for *_, rate in rows)
    hits = " Hits were found in the device's own cache, peer hits in that of another."
    note = f'<p class="soft">Means of an epoch.{hits if has_cache else ""}</p>'
    return f'<div class="wide">{table(labels, figures)}</div>{note}'


def _counters(found: list[dict[str, Any]]) -> str:
    """Figures that only some kinds of device have, whatever they are called."""
    rows = [
        (_name(rank, each), escape(name), count(value))
        for rank, each in enumerate(found)
        for name, value in each["counters"].items()
        if not name.startswith((ROWS_FROM, SIMULATED))
    ]
    if not rows:
        return ""
    names, counters, values = (list(column) for column in zip(*rows, strict=True))
    shown = table({"device": names, "counter": counters}, {"whole run": values})
    return f'<div class="card wide">{shown}</div>'


def _name(rank: int, device: dict[str, Any]) -> str:
    return f'<i class="{device_css(rank)}"></i>{escape(device["name"])}'


def _kind(device: dict[str, Any]) -> str:
    """The kind, and the mark of its figures; one word where both are called the same."""
    kind, figures = device["kind"], device["figures"]
    return badge(figures) if kind == figures else f"{escape(kind)}{badge(figures)}"


def _threads(threads: dict[str, int] | None) -> str:
    return ABSENT if threads is None else " / ".join(str(value) for value in threads.values())


def _seconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _link(device: dict[str, Any], name: str) -> int | None:
    """Bytes or requests over the link in an epoch; None where nothing crossed it."""
    parts = device["traffic"]
    return None if parts is None else sum(counts[name] for counts in parts.values()) or None
