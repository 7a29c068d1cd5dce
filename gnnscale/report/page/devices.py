"""Sections of ``report.html`` about single devices: their figures and their traffic."""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from gnnscale.cache.plan import HOST, ROWS_FROM
from gnnscale.core import STAGES
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.report.formatting import ABSENT, count, gib, percent
from gnnscale.report.fpga import SIMULATED, simulating
from gnnscale.report.page.charts import Curve, VerticalMark, legend, line_chart, stacked_chart
from gnnscale.report.page.parts import badge, card, device_css, device_title, grid, nothing, table
from gnnscale.report.page.svg import Axis
from gnnscale.report.steps import Steps

#: Decisions listed; a run that settles has far fewer.
_MAX_DECISIONS = 300

_THREAD_STAGES = ("sample", "load", "propagate")

#: Which threads work at the same time.
_TURNS = {
    "none": "Prefetch none: stages take turns, and so do their threads.",
    "one_stage": "Prefetch one_stage: sample and load take turns, beside propagate.",
    "two_stage": "Prefetch two_stage: all stages run side by side.",
    BY_DEVICE: "The device overlaps its stages by itself; a thread of the host starts its steps.",
}


def shares_and_threads(plan: DevicePlan, steps: Steps) -> str:
    """Shares of the mini-batch and threads over the steps, and what was decided about them."""
    if not len(steps):
        return nothing("No step was finished.")
    if len(plan.shares) == 1 and not np.ptp(steps.threads, axis=0).any():
        return _constant_threads(plan, steps)
    shown = _until_settled(steps)
    cards = [_shares(plan, shown)] if len(plan.shares) > 1 else []
    highest = float(shown.threads.sum(axis=2).max()) + 0.5
    for rank, share in enumerate(plan.shares):
        used = [i for i in range(3) if shown.threads[:, rank, i].any()]
        tasks = [(f"s-{_THREAD_STAGES[i]}", _THREAD_STAGES[i]) for i in used]
        chart = stacked_chart(
            tasks,
            shown.number,
            shown.threads[:, rank, used].astype(np.float64),
            x=steps_axis(shown),
            y=Axis(title="host threads", low=0, high=highest, integer=True),
            marks=decision_marks(shown),
        )
        note = f'<p class="soft">{_TURNS[share.prefetch]}</p>'
        cards.append(card(f"Threads of {device_title(plan, rank)}", legend(tasks) + chart + note))
    decisions = _decisions(steps)
    # Beside the last plot if there is room.
    if len(cards) % 2 and decisions:
        cards, decisions = [*cards, decisions], ""
    plots = grid(cards) + decisions
    if len(shown) == len(steps):
        return plots
    return f'<p class="soft">The first {len(shown):,} steps; nothing changed after them.</p>{plots}'


def _constant_threads(plan: DevicePlan, steps: Steps) -> str:
    """A line for a single worker whose threads never changed."""
    used = zip(_THREAD_STAGES, steps.threads[0, 0].tolist(), strict=True)
    words = ", ".join(f"{name} {threads}" for name, threads in used if threads)
    return f"<p>Threads in every step: {words}. {_TURNS[plan.shares[0].prefetch]}</p>"


def _shares(plan: DevicePlan, steps: Steps) -> str:
    labels = [(device_css(i), s.device.label) for i, s in enumerate(plan.shares)]
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
    return card("Share of the mini-batch", legend(key) + chart)


def _until_settled(steps: Steps) -> Steps:
    """The first steps alone, if a long run has decided nothing after them."""
    if not steps.decisions:
        return steps
    settled = int(np.searchsorted(steps.number, steps.decisions[-1][0])) + 1
    shown = max(2 * settled, 30)
    return steps.first(shown) if 4 * shown < len(steps) else steps


def _decisions(steps: Steps) -> str:
    title = "Decisions of dynamic resource management"
    if not steps.decisions:
        return ""
    shown = steps.decisions[:_MAX_DECISIONS]
    rows = "".join(
        f'<tr><td>{number:,}</td><td class="text">{escape(what)}</td></tr>'
        for number, what in shown
    )
    more = len(steps.decisions) - len(shown)
    note = f'<p class="soft">and {more:,} more in steps.jsonl</p>' if more else ""
    table = f'<table><tr><th>step</th><th class="left">decision</th></tr>{rows}</table>'
    return card(title, f'<div class="scroll">{table}</div>{note}')


def steps_axis(steps: Steps) -> Axis:
    """Return the axis of a plot over steps."""
    low, high = float(steps.number[0]), float(steps.number[-1])
    return Axis(title="step", low=low, high=high + 1, integer=True)


def decision_marks(steps: Steps) -> list[VerticalMark]:
    """Return a line at each step that is the first after a decision."""
    return [
        VerticalMark(x=number + 1, label=f"step {number}: {what}")
        for number, what in steps.decisions[:_MAX_DECISIONS]
    ]


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
        "rows in memory": [percent(each["memory_hit_rate"]) for each in found],
        "over its link": [gib(_link(each, "link_bytes")) for each in found],
        "requests": [count(_link(each, "link_requests")) for each in found],
        "joules of the run": [count(_gpu(each, "energy_j")) for each in found],
        "mean watts": [count(_gpu(each, "power_w")) for each in found],
        "from the host": [gib(_gpu(each, "received_bytes")) for each in found],
    }
    note = '<p class="soft">Means of an epoch; threads of sample / load / propagate at the end.</p>'
    if summary["left_out"] is not None:
        note += f'<p class="soft">{escape(summary["left_out"]["reason"])}</p>'
    own = _csim(found) + _counters(found) + _nvlink(summary)
    return f'<div class="card wide">{table(labels, figures)}{note}</div>{own}'


def _gpu(device: Mapping[str, Any], name: str) -> Any:
    """A counter of NVML over the run; None without a GPU, or if its driver has no such counter."""
    return None if device["gpu"] is None else device["gpu"][name]


def _nvlink(summary: Mapping[str, Any]) -> str:
    """The NVLinks between GPUs, if there are several."""
    links = summary["nvlink"]
    if links is None or len(links) < 2:
        return ""
    names = [escape(each["name"]) for each in summary["devices"] if each["gpu"] is not None]
    if len(names) != len(links):  # some share a GPU, which one of them counts
        names = [f"GPU {number}" for number in range(len(links))]
    figures = {name: [str(row[place]) for row in links] for place, name in enumerate(names)}
    return card("NVLinks between GPUs", table({"": names}, figures))


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


#: What rows are called that host memory holds of a disk, or of other machines.
_TIER = "rows in host memory"
#: What own rows are called that are read from the disk, beside those of other machines.
_DISK = "own rows on the disk"
#: What neighbours are called that the host samples of lists on a disk.
_NEIGHBORS = "neighbours in host memory"
#: Counts of the table of traffic that do not need a cache.
_MOVED = ("link_bytes", "link_requests", "peer_bytes")


def traffic(plan: DevicePlan, steps: Steps, summary: Mapping[str, Any]) -> str:
    """What crossed links and what caches answered: over the steps, and in an epoch."""
    rows = [
        (_name(rank, each), what, each["traffic"][part], each.get(rate))
        for rank, each in enumerate(summary["devices"])
        for part, what, rate in (
            ("rows", "features", "feature_hit_rate"),
            ("lists", "topology", "topology_hit_rate"),
            ("tier", _TIER, "memory_hit_rate"),
            ("disk", _DISK, None),
            ("neighbors", _NEIGHBORS, "neighbor_hit_rate"),
        )
        if each["traffic"] is not None
        and (each.get(rate) is not None or any(each["traffic"][part][name] for name in _MOVED))
    ]
    cards = [_link_chart(plan, steps)] if steps.link_bytes.any() else []
    figures = card("Figures", _traffic_table(rows)) if rows else ""
    matrix = _traffic_matrix(summary)
    if matrix is not None:
        cards.append(card("Where rows came from", matrix))
    uncached = None if summary["uncached"] is None else escape(summary["uncached"]["reason"])
    note = "" if uncached is None else f'<p class="soft">{uncached}.</p>'
    # Hits and misses need the width of the page.
    if any(rate is not None for *_, rate in rows):
        return grid(cards) + figures + note
    shown = grid([*cards, *([figures] if figures else [])])
    if shown:
        return shown + note
    return nothing(f"No device has a link or a cache{'' if uncached is None else f': {uncached}'}.")


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
        "waited s": moved("waited_us", _from_micros),
    }
    labels = {"device": [row[0] for row in rows], "what": [row[1] for row in rows]}
    has_cache = any(rate is not None for *_, rate in rows)
    hits = " Hits were found in the device's own cache, peer hits in that of another."
    if any(what == _TIER for _, what, *_ in rows):
        hits += " Rows that host memory lacks come from the disk, or from other machines."
    note = f'<p class="soft">Means of an epoch.{hits if has_cache else ""}</p>'
    return f'<div class="wide">{table(labels, figures)}</div>{note}'


#: Counters of emulated devices in words; what your own backend counts has its own names.
_COUNTERS = {
    "late_s": "seconds that the host was slower than the emulated device",
    "late_stages": "stages for which the host was too slow",
    "late_steps": "steps with such a stage",
}


def _counters(found: list[dict[str, Any]]) -> str:
    """Figures that only some kinds of device have."""
    rows = [
        (_name(rank, each), escape(_COUNTERS.get(name, name)), count(value))
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
    """The kind, and the mark of its figures; one word if both are called the same."""
    kind, figures = device["kind"], device["figures"]
    return badge(figures) if kind == figures else f"{escape(kind)}{badge(figures)}"


def _threads(threads: dict[str, int] | None) -> str:
    return ABSENT if threads is None else " / ".join(str(value) for value in threads.values())


def _from_micros(value: int | None) -> str:
    return ABSENT if value is None else f"{value / 1e6:.2f}"


def _seconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _link(device: dict[str, Any], name: str) -> int | None:
    """Bytes or requests over the link in an epoch; None if nothing crossed it."""
    parts = device["traffic"]
    return None if parts is None else sum(parts[each][name] for each in ("rows", "lists")) or None
