"""Sections of ``report.html`` about devices: shares, threads, results and traffic."""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from gnnscale.cache.plan import HOST, ROWS_FROM
from gnnscale.core import STAGES
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.report.formatting import ABSENT, count, fixed, gib, percent
from gnnscale.report.fpga import SIMULATED, csim_tables, simulating
from gnnscale.report.page import document
from gnnscale.report.page.charts import Curve, VerticalMark, legend, line_chart, stacked_chart
from gnnscale.report.page.svg import Axis
from gnnscale.report.steps import Steps

#: Largest number of listed decisions.
_MAX_DECISIONS = 300
_THREAD_STAGES = ("sample", "load", "propagate")
#: Explanation of each prefetch option.
_TURNS = {
    "none": "Prefetch none: stages take turns, and so do their threads.",
    "one_stage": "Prefetch one_stage: sample and load take turns, beside propagate.",
    "two_stage": "Prefetch two_stage: all stages run side by side.",
    BY_DEVICE: "The device overlaps its stages by itself; a thread of the host starts its steps.",
}


def shares_and_threads(plan: DevicePlan, steps: Steps) -> str:
    """Return HTML: plots of batch shares and threads over steps, and decisions that change them.

    A single line replaces them if the only device has constant threads.
    """
    if not len(steps):
        return document.nothing("No step was finished.")
    if len(plan.shares) == 1 and not np.ptp(steps.threads, axis=0).any():
        return _constant_threads(plan, steps)
    visible = _until_settled(steps)
    cards = [_shares(plan, visible)] if len(plan.shares) > 1 else []
    highest = float(visible.threads.sum(axis=2).max()) + 0.5
    for rank, share in enumerate(plan.shares):
        used = [i for i in range(3) if visible.threads[:, rank, i].any()]
        tasks = [(f"s-{_THREAD_STAGES[i]}", _THREAD_STAGES[i]) for i in used]
        chart = stacked_chart(
            tasks,
            visible.number,
            visible.threads[:, rank, used].astype(np.float64),
            x=steps_axis(visible),
            y=Axis(title="host threads", low=0, high=highest, integer=True),
            marks=decision_marks(visible),
        )
        note = f'<p class="soft">{_TURNS[share.prefetch]}</p>'
        cards.append(
            document.card(
                f"Threads of {document.device_title(plan, rank)}", legend(tasks) + chart + note
            )
        )
    decisions = _decisions(steps)
    # An odd number of plots leaves a free half of a row for the decisions.
    if len(cards) % 2 and decisions:
        cards, decisions = [*cards, decisions], ""
    note = f'<p class="soft">The first {len(visible):,} steps; nothing changed after them.</p>'
    return f"{note if len(visible) < len(steps) else ''}{document.grid(cards)}{decisions}"


def _constant_threads(plan: DevicePlan, steps: Steps) -> str:
    """Return an HTML line with the threads, equal in all steps, of the only worker's stages."""
    used = zip(_THREAD_STAGES, steps.threads[0, 0].tolist(), strict=True)
    words = ", ".join(f"{name} {threads}" for name, threads in used if threads)
    return f"<p>Threads in every step: {words}. {_TURNS[plan.shares[0].prefetch]}</p>"


def _shares(plan: DevicePlan, steps: Steps) -> str:
    labels = [(document.device_css(i), s.device.label) for i, s in enumerate(plan.shares)]
    batch = np.maximum(steps.num_seeds.sum(axis=1, keepdims=True), 1)
    marks = decision_marks(steps)
    chart = stacked_chart(
        labels,
        steps.number,
        steps.num_seeds / batch * 100,
        x=steps_axis(steps),
        y=Axis(title="% of the mini-batch", low=0, high=100),
        marks=marks,
    )
    key = [*labels, ("mark", "a decision")] if marks else labels
    return document.card("Share of the mini-batch", legend(key) + chart)


def _until_settled(steps: Steps) -> Steps:
    """Return the first steps, twice as many as up to the last decision and at least 30.

    Return all ``steps`` without decisions, or if they are at most 4 x as many.
    """
    if not steps.decisions:
        return steps
    settled = int(np.searchsorted(steps.number, steps.decisions[-1][0])) + 1
    num_steps = max(2 * settled, 30)
    return steps.first(num_steps) if 4 * num_steps < len(steps) else steps


def _decisions(steps: Steps) -> str:
    if not steps.decisions:
        return ""
    listed = steps.decisions[:_MAX_DECISIONS]
    rows = "".join(
        f'<tr><td>{number:,}</td><td class="text">{escape(decision)}</td></tr>'
        for number, decision in listed
    )
    more = len(steps.decisions) - len(listed)
    note = f'<p class="soft">and {more:,} more in steps.jsonl</p>' if more else ""
    table = f'<table><tr><th>step</th><th class="left">decision</th></tr>{rows}</table>'
    title = "Decisions of dynamic resource management"
    return document.card(title, f'<div class="scroll">{table}</div>{note}')


def steps_axis(steps: Steps) -> Axis:
    """Return the horizontal axis of a plot over the numbers of ``steps``."""
    low, high = float(steps.number[0]), float(steps.number[-1])
    return Axis(title="step", low=low, high=high + 1, integer=True)


def decision_marks(steps: Steps) -> list[VerticalMark]:
    """Return vertical lines at the steps that follow decisions of dynamic resource management.

    There is one for each of the first ``_MAX_DECISIONS`` decisions.
    """
    return [
        VerticalMark(x=number + 1, label=f"step {number}: {decision}")
        for number, decision in steps.decisions[:_MAX_DECISIONS]
    ]


def devices(summary: Mapping[str, Any]) -> str:
    """Return HTML tables: devices (without empty columns), C simulation, counters, NVLinks."""
    entries = summary["devices"]
    labels = {
        "device": [_name(rank, entry) for rank, entry in enumerate(entries)],
        "kind": [_kind(entry) for entry in entries],
    }
    figures = {
        "share": [percent(entry["batch_share"]) for entry in entries],
        "threads": [" / ".join(map(str, (e["threads"] or {"": ABSENT}).values())) for e in entries],
        **{
            f"{name} s": [fixed(entry["stage_times_s"][name], 3) for entry in entries]
            for name in STAGES
        },
        "feature hits": [percent(entry["feature_hit_rate"]) for entry in entries],
        "topology hits": [percent(entry["topology_hit_rate"]) for entry in entries],
        "rows in memory": [percent(entry["memory_hit_rate"]) for entry in entries],
        "over its link": [gib(_link(entry, "link_bytes")) for entry in entries],
        "requests": [count(_link(entry, "link_requests")) for entry in entries],
        "joules of the run": [count(_gpu(entry, "energy_j")) for entry in entries],
        "mean watts": [count(_gpu(entry, "power_w")) for entry in entries],
        "from the host": [gib(_gpu(entry, "received_bytes")) for entry in entries],
    }
    note = '<p class="soft">Means of an epoch; threads of sample / load / propagate at the end.</p>'
    if summary["left_out"] is not None:
        note += f'<p class="soft">{escape(summary["left_out"]["reason"])}</p>'
    further = _csim(entries) + _counters(entries) + _nvlink(summary)
    return f'<div class="card wide">{document.column_table(labels, figures)}{note}</div>{further}'


def _gpu(device: Mapping[str, Any], name: str) -> Any:
    """Return NVML's counter ``name`` of a device's run; None: no GPU, or its driver lacks it."""
    return None if device["gpu"] is None else device["gpu"][name]


def _nvlink(summary: Mapping[str, Any]) -> str:
    """Return an HTML table of the number of NVLinks between GPUs; empty for fewer than two GPUs."""
    links = summary["nvlink"]
    if links is None or len(links) < 2:
        return ""
    names = [escape(device["name"]) for device in summary["devices"] if device["gpu"] is not None]
    if len(names) != len(links):  # devices that share a GPU count it once
        names = [f"GPU {number}" for number in range(len(links))]
    figures = {name: [str(row[column]) for row in links] for column, name in enumerate(names)}
    return document.card("NVLinks between GPUs", document.column_table({"": names}, figures))


def _csim(devices: list[dict[str, Any]]) -> str:
    """Return tables of C simulation's counts per step; empty: no device is simulated."""
    ranks = [rank for rank, entry in enumerate(devices) if entry["csim"] is not None]
    if not ranks:
        return ""
    labels = {
        "device": [_name(rank, devices[rank]) for rank in ranks],
        "kind": [_kind(devices[rank]) for rank in ranks],
    }
    tables = "".join(
        f"<h3>{title}</h3>{document.column_table(labels, columns)}"
        for title, columns in csim_tables([devices[rank]["csim"] for rank in ranks]).items()
    )
    took = "; ".join(
        f"{escape(devices[rank]['name'])}: {simulating(devices[rank]['csim'])}" for rank in ranks
    )
    note = (
        '<p class="soft">Cycles and engines are those of the slowest compute unit, memory and '
        f"events those of all. {took}.</p>"
    )
    return f'<div class="card wide">{tables}{note}</div>'


#: Label of rows buffered in host memory, in front of a disk or other machines.
_TIER = "rows in host memory"
#: Label of this machine's rows that are read from its disk, next to rows of other machines.
_DISK = "own rows on the disk"
#: Label of neighbors that the host samples from lists on a disk.
_NEIGHBORS = "neighbors in host memory"
#: Counts of the table of traffic that exist without a cache.
_MOVED = ("link_bytes", "link_requests", "peer_bytes")


def traffic(plan: DevicePlan, steps: Steps, summary: Mapping[str, Any]) -> str:
    """Return plots and tables of link traffic and cache hits, per step and per epoch."""
    rows = [
        (_name(rank, device), label, device["traffic"][part], device.get(rate))
        for rank, device in enumerate(summary["devices"])
        for part, label, rate in (
            ("rows", "features", "feature_hit_rate"),
            ("lists", "topology", "topology_hit_rate"),
            ("tier", _TIER, "memory_hit_rate"),
            ("disk", _DISK, None),
            ("neighbors", _NEIGHBORS, "neighbor_hit_rate"),
        )
        if device["traffic"] is not None
        and (device.get(rate) is not None or any(device["traffic"][part][name] for name in _MOVED))
    ]
    cards = [_link_chart(plan, steps)] if steps.link_bytes.any() else []
    figures = document.card("Figures", _traffic_table(rows)) if rows else ""
    matrix = _traffic_matrix(summary)
    if matrix is not None:
        cards.append(document.card("Where rows came from", matrix))
    uncached = None if summary["uncached"] is None else escape(summary["uncached"]["reason"])
    note = "" if uncached is None else f'<p class="soft">{uncached}.</p>'
    # Hits and misses need the width of the page.
    if any(rate is not None for *_, rate in rows):
        return document.grid(cards) + figures + note
    body = document.grid([*cards, *([figures] if figures else [])])
    if body:
        return body + note
    return document.nothing(
        f"No device has a link or a cache{'' if uncached is None else f': {uncached}'}."
    )


def _traffic_matrix(summary: Mapping[str, Any]) -> str | None:
    """Return an HTML matrix of the rows that each device read over the run, by source.

    Sources are the devices' caches and the host (Legion, figure 10). None: rows were not counted.
    """
    entries = summary["devices"]
    sources = [*(device["name"] for device in entries), HOST]
    if not any(name.startswith(ROWS_FROM) for device in entries for name in device["counters"]):
        return None

    def rows(device: Mapping[str, Any], source: str) -> str:
        return count(device["counters"].get(f"{ROWS_FROM}{source}") or None)

    read = {escape(source): [rows(device, source) for device in entries] for source in sources}
    labels = {"read by": [_name(rank, device) for rank, device in enumerate(entries)]}
    note = '<p class="soft">Rows of the whole run, by the cache that had them.</p>'
    return f'<div class="wide">{document.column_table(labels, read)}</div>{note}'


def _link_chart(plan: DevicePlan, steps: Steps) -> str:
    sent = steps.link_bytes / 2**20
    x = steps.number.astype(np.float64)
    curves = [
        Curve(label=share.device.label, css=document.device_css(rank), x=x, y=sent[:, rank])
        for rank, share in enumerate(plan.shares)
        if sent[:, rank].any()
    ]
    chart = line_chart(
        curves,
        x=steps_axis(steps),
        y=Axis(title="MiB per step", low=0, high=1.05 * float(sent.max())),
        marks=decision_marks(steps),
    )
    key = legend([(curve.css, curve.label) for curve in curves])
    return document.card("Over the link between host and device", key + chart)


def _traffic_table(rows: list[tuple[str, str, dict[str, int], float | None]]) -> str:
    """Return an HTML table of traffic per epoch; ``rows`` are device, data, counts and hit rate."""

    def cache_column(name: str) -> list[str]:
        return [ABSENT if rate is None else count(counts[name]) for _, _, counts, rate in rows]

    def column(name: str, form: Any) -> list[str]:
        return [form(counts[name] or None) for _, _, counts, _ in rows]

    figures = {
        "hits": cache_column("hits"),
        "peer hits": cache_column("peer_hits"),
        "misses": cache_column("misses"),
        "hit rate": [percent(rate) for *_, rate in rows],
        "over the link": column("link_bytes", gib),
        "requests": column("link_requests", count),
        "from peers": column("peer_bytes", gib),
        "waited s": column("waited_us", lambda value: fixed(value and value / 1e6, 2)),
    }
    labels = {"device": [row[0] for row in rows], "what": [row[1] for row in rows]}
    has_cache = any(rate is not None for *_, rate in rows)
    hits = " Hits were found in the device's own cache, peer hits in that of another."
    if any(label == _TIER for _, label, *_ in rows):
        hits += " Rows that host memory lacks come from the disk, or from other machines."
    note = f'<p class="soft">Means of an epoch.{hits if has_cache else ""}</p>'
    return f'<div class="wide">{document.column_table(labels, figures)}</div>{note}'


#: Labels of counters of emulated devices; counters of a user's backend are shown by name.
_COUNTERS = {
    "late_s": "seconds that the host was slower than the emulated device",
    "late_stages": "stages for which the host was too slow",
    "late_steps": "steps with such a stage",
}


def _counters(entries: list[dict[str, Any]]) -> str:
    """Return an HTML table of counters over the run that no other table has; empty: none."""
    rows = [
        (_name(rank, entry), escape(_COUNTERS.get(name, name)), count(value))
        for rank, entry in enumerate(entries)
        for name, value in entry["counters"].items()
        if not name.startswith((ROWS_FROM, SIMULATED))
    ]
    if not rows:
        return ""
    names, counters, values = (list(column) for column in zip(*rows, strict=True))
    body = document.column_table({"device": names, "counter": counters}, {"whole run": values})
    return f'<div class="card wide">{body}</div>'


def _name(rank: int, device: dict[str, Any]) -> str:
    return f'<i class="{document.device_css(rank)}"></i>{escape(device["name"])}'


def _kind(device: dict[str, Any]) -> str:
    """Return a device's kind as HTML, with a badge of its kind of times unless measured."""
    kind, figures = device["kind"], device["figures"]
    return (
        document.badge(figures) if kind == figures else f"{escape(kind)}{document.badge(figures)}"
    )


def _link(device: dict[str, Any], name: str) -> int | None:
    """Return an epoch's ``link_bytes`` or ``link_requests`` (``name``) of rows and adjacency lists.

    None: nothing crossed the device's link.
    """
    parts = device["traffic"]
    return None if parts is None else sum(parts[reads][name] for reads in ("rows", "lists")) or None
