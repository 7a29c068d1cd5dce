"""``summary.json`` and ``metrics.jsonl``: a run in plain values."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.core import STAGES, Traffic, find_machine, installed, write_atomically
from gnnscale.core.config.run_directory import METRICS_FILE
from gnnscale.core.metrics import mteps, nvtps
from gnnscale.planner import Device, Fpga
from gnnscale.report.formatting import least_real, network_figures
from gnnscale.report.fpga import SIMULATED, csim_figures

if TYPE_CHECKING:
    from gnnscale.cache import Uncached
    from gnnscale.partition import PartitionStats
    from gnnscale.run.records import (
        DeviceEpoch,
        DroppedProcessors,
        EpochRecord,
        GraphStats,
        TrainResult,
    )


_VERSIONS = ("gnnscale", "torch", "numpy", "hydra-core")


def summarise(
    run: TrainResult,
    *,
    status: str,
    predicted: Mapping[str, Any] | None = None,
    error: str | None = None,
    first_step_s: float | None = None,
    command: str | None = None,
    started: float | None = None,
    ended: float | None = None,
) -> dict[str, Any]:
    """Return the content of ``summary.json``; a figure that a run has not is None, never 0.

    ``train_loss`` is that of the last epoch, ``valid_metric`` and ``test_metric`` those of
    ``best_epoch``; ``mteps`` and ``nvtps`` are over all epochs. ``figures`` is the kind of the
    run's figures, ``measured`` if those of all its devices are.

    Args:
        first_step_s: seconds from the start of the command until its first step was done.
        command: the line that repeats the run.
        started, ended: when the process that trains began and ended the run, in seconds since
            1970; None if unknown.
    """
    epochs = run.history
    seconds = sum(each.epoch_time_s for each in epochs)
    times = [each.epoch_time_s for each in epochs]
    return {
        "status": status,
        "error": error,
        "command": command,
        "started": _utc(started),
        "ended": _utc(ended),
        "dataset": run.dataset,
        "model": run.model,
        "seed": run.seed,
        "figures": least_real(share.device.figures for share in run.plan.shares),
        "epochs": len(epochs),
        "stopped_early": run.stopped_early,
        "best_epoch": run.best_epoch,
        "train_loss": epochs[-1].train_loss if epochs else None,
        "valid_metric": run.valid_metric,
        "test_metric": run.test_metric,
        "metric": run.metric,
        "valid_metrics": run.valid_metrics,
        "test_metrics": run.test_metrics,
        "classes": _classes(run),
        "confusion": _confusion(run),
        "graph": _graph(run.graph),
        "ceiling": run.ceiling,
        "planning_s": run.layout.planning_s,
        "first_step_s": first_step_s,
        "epoch_time_s": _averages(times),
        "mteps": mteps(sum(each.num_edges for each in epochs), seconds) if epochs else None,
        "nvtps": nvtps(sum(each.num_vertices for each in epochs), seconds) if epochs else None,
        "energy_j": _energy_j(epochs),
        "nvlink": run.layout.nvlink and [list(row) for row in run.layout.nvlink],
        "peak_rss_bytes": max((each.peak_rss_bytes for each in epochs), default=None),
        "processor": find_machine().processor,
        "devices": [
            _device(share.device, run.epochs_of(rank), run)
            for rank, share in enumerate(run.plan.shares)
        ],
        "left_out": _left_out(run.layout.left_out),
        "partition": _partition(run.layout.partition),
        "step_bytes": _step_bytes(run),
        "network": network_figures(run),
        "cache": _cache(run),
        "uncached": _uncached(run.layout.uncached),
        "predicted": predicted,
        "versions": {name: installed(name) for name in _VERSIONS},
    }


#: A run of more classes has no list of them.
_MAX_CLASSES = 1000


def _classes(run: TrainResult) -> list[dict[str, Any]] | None:
    """Scores of each class on the test vertices, in the order of the classes' numbers."""
    counts = run.test_classes
    if counts is None or len(counts.wanted) > _MAX_CLASSES:
        return None
    names = None if run.graph is None else run.graph.classes
    return [
        {
            "name": None if names is None else names[number],
            **counts.scores(number),
            "num_vertices": counts.wanted[number],
            "num_predicted": counts.chosen[number],
        }
        for number in range(len(counts.wanted))
    ]


def _confusion(run: TrainResult) -> list[list[int]] | None:
    counts = run.test_classes
    if counts is None or counts.confusion is None:
        return None
    return [list(row) for row in counts.confusion]


def _graph(found: GraphStats | None) -> dict[str, Any] | None:
    """Sizes of the graph, and of the split by its parts."""
    if found is None:
        return None
    sizes = dict(zip(("train", "valid", "test"), found.split, strict=True))
    names = (
        *("num_vertices", "num_edges", "num_features", "feature_dtype"),
        *("num_classes", "split_of"),
    )
    return {**{name: getattr(found, name) for name in names}, "split": sizes}


def _left_out(found: DroppedProcessors | None) -> dict[str, Any] | None:
    """Return the processors that the run left out, and why; None for none."""
    if found is None:
        return None
    steps = {"step_with_s": found.step_with_s, "step_without_s": found.step_without_s}
    return {"names": list(found.names), **steps, "reason": found.line}


def _energy_j(epochs: Sequence[EpochRecord]) -> float | None:
    """Return the joules of all GPUs while they trained; None if one of them does not count any."""
    used = [each.gpu for epoch in epochs for each in epoch.devices if each.gpu is not None]
    joules = [each.energy_j for each in used]
    known = [each for each in joules if each is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _averages(times: Sequence[float]) -> dict[str, float | None]:
    return {
        "mean": statistics.fmean(times) if times else None,
        "median": statistics.median(times) if times else None,
    }


def _partition(figures: PartitionStats | None) -> dict[str, Any] | None:
    """What is known of the devices' parts, without what is known of each."""
    if figures is None:
        return None
    left_out = ("parts", "cut", "predicted", "peak_rss_bytes")
    kept = {name: each for name, each in vars(figures).items() if name not in left_out}
    counted = {"algorithm": figures.algorithm, "num_parts": figures.num_parts}
    return {**counted, **kept, "notes": list(figures.notes)}


def _step_bytes(run: TrainResult) -> dict[str, Any] | None:
    """Bytes that a step moves over all devices: means of all steps, and what was expected."""
    if not run.history or not run.steps_per_epoch:
        return None
    total = sum((each.traffic for epoch in run.history for each in epoch.devices), Traffic())
    steps = len(run.history) * run.steps_per_epoch
    expected = run.layout.step_bytes
    return {
        "host": (total.rows.host_bytes + total.lists.host_bytes) / steps,
        "link": total.link_bytes / steps,
        "peers": (total.rows.peer_bytes + total.lists.peer_bytes) / steps,
        "expected": expected
        and {
            "data_parallel": expected.data_parallel,
            "p3": expected.p3,
            "cheaper": expected.cheaper,
        },
    }


def _cache(run: TrainResult) -> dict[str, Any] | None:
    """What the devices' caches were planned to spare, and spared: means of an epoch.

    What was predicted of the run's first epochs is held against these alone.
    """
    plan = run.layout.cache
    if plan is None:
        return None
    predicted = plan.predicted
    return {
        "planner": plan.planner,
        "alpha": plan.alpha,
        "cliques": [list(clique) for clique in plan.cliques],
        "cache_bytes": plan.cache_bytes,
        "host_aggregates": plan.host_aggregates,
        "predicted": predicted
        and {
            "feature_hit_rate": predicted.feature_hit_rate,
            "topology_hit_rate": predicted.topology_hit_rate,
            "transactions": round(predicted.transactions / plan.num_epochs),
            "num_epochs": plan.num_epochs,
            "exact": plan.exact,
        },
        "measured": _measured(run.history[: plan.first_epochs]),
        "whole_run": _measured(run.history),
    }


def _uncached(found: Uncached | None) -> dict[str, Any] | None:
    """Return the devices that cache nothing, and why; None if every device keeps something."""
    if found is None:
        return None
    return {"devices": found.num_devices, "of": found.of_devices, "reason": found.line}


def _utc(seconds: float | None) -> str | None:
    """Return a time in ISO 8601, with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _measured(history: Sequence[EpochRecord]) -> dict[str, Any]:
    """What the devices of some epochs found in caches, and moved: means of an epoch."""
    epochs = len(history)
    found = sum((each.traffic for epoch in history for each in epoch.devices), Traffic())
    return {
        **_hit_rates(found),
        "transactions": _per_epoch(found.link_requests, epochs),
        "link_bytes": _per_epoch(found.link_bytes, epochs),
        "num_epochs": epochs,
    }


def _per_epoch(count: int, epochs: int) -> int | None:
    return round(count / epochs) if epochs else None


def _device(
    device: Device, epochs_of: Mapping[int, DeviceEpoch], run: TrainResult
) -> dict[str, Any]:
    """One device: means of an epoch; hit rates, memory and counters are of the whole run.

    Args:
        epochs_of: what it did, by epoch.
    """
    epochs = list(epochs_of.values())
    seconds = sum(each.epoch_time_s for each in run.history if each.epoch in epochs_of)
    last = epochs[-1] if epochs else None
    sent = _mean(each.host_to_device_bytes for each in epochs)
    return {
        "name": device.label,
        "kind": device.kind,
        "figures": device.figures,
        "batch_share": _mean(each.batch_share for each in epochs),
        "threads": None if last is None else last.threads,
        "stage_times_s": {
            name: _mean(each.stage_times_s[name] for each in epochs) for name in STAGES
        },
        "host_to_device_bytes": None if sent is None else round(sent),
        "traffic": _mean_traffic(epochs),
        **_all_hit_rates(sum((each.traffic for each in epochs), Traffic())),
        "peak_rss_bytes": max((each.peak_rss_bytes for each in epochs), default=None),
        "pss_bytes": None if last is None else last.pss_bytes,
        "gpu": _gpu(epochs, seconds),
        "counters": _counters(epochs),
        "csim": _csim(device, epochs, run.steps_per_epoch or 0),
    }


def _gpu(epochs: Sequence[DeviceEpoch], seconds: float) -> dict[str, float | int | None] | None:
    """What the device's GPU took while it trained, over the whole run, in so many seconds."""
    used = [each.gpu for each in epochs if each.gpu is not None]
    if not used:
        return None
    total = sum(used[1:], used[0])
    watts = total.energy_j / seconds if total.energy_j is not None and seconds > 0 else None
    return {**asdict(total), "power_w": watts}


def _csim(
    device: Device, epochs: Sequence[DeviceEpoch], steps_per_epoch: int
) -> dict[str, Any] | None:
    """What was simulated of an FPGA; a run may have gone on with another card after it."""
    if not isinstance(device, Fpga):
        return None
    simulated = [
        each for each in epochs if any(name.startswith(SIMULATED) for name in each.counters)
    ]
    return csim_figures(
        _counters(simulated), num_steps=len(simulated) * steps_per_epoch, clock_hz=device.clock_hz
    )


def _mean_traffic(epochs: Sequence[DeviceEpoch]) -> dict[str, dict[str, int]] | None:
    """Counts of rows and of lists, mean of an epoch; None without an epoch."""
    if not epochs:
        return None
    total = asdict(sum((each.traffic for each in epochs), Traffic()))
    return {
        part: {name: round(count / len(epochs)) for name, count in counts.items()}
        for part, counts in total.items()
    }


def _hit_rates(traffic: Traffic) -> dict[str, float | None]:
    return {"feature_hit_rate": traffic.rows.hit_rate, "topology_hit_rate": traffic.lists.hit_rate}


def _all_hit_rates(traffic: Traffic) -> dict[str, float | None]:
    """Those of caches, and those of host memory over a disk or other machines."""
    return {
        **_hit_rates(traffic),
        "memory_hit_rate": traffic.tier.hit_rate,
        "neighbor_hit_rate": traffic.neighbors.hit_rate,
    }


def _counters(epochs: Sequence[DeviceEpoch]) -> dict[str, float]:
    """Figures that only this kind of device has, over the whole run."""
    total: Counter[str] = Counter()
    for each in epochs:
        total.update(each.counters)
    return dict(total)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` to ``file`` as JSON, atomically."""
    write_atomically(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_metrics(directory: Path, epochs: Sequence[EpochRecord]) -> None:
    """Write ``metrics.jsonl`` with one line for each of ``epochs``."""
    lines = (_line(each).encode() for each in epochs)
    # A checkpoint has not what is in it.
    write_atomically(directory / METRICS_FILE, lines, durable=bool(epochs))


def append_metrics(directory: Path, epoch: EpochRecord) -> None:
    """Add one line to ``metrics.jsonl``."""
    with (directory / METRICS_FILE).open("a") as file:
        file.write(_line(epoch))


def _line(epoch: EpochRecord) -> str:
    devices = [{**asdict(each), **_all_hit_rates(each.traffic)} for each in epoch.devices]
    figures = {
        **epoch.to_dict(),
        "devices": devices,
        "mteps": mteps(epoch.num_edges, epoch.epoch_time_s),
        "nvtps": nvtps(epoch.num_vertices, epoch.epoch_time_s),
    }
    return json.dumps(figures, allow_nan=False) + "\n"
