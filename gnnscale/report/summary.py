"""``summary.json`` and ``metrics.jsonl``: the results of a run as plain values."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.core import STAGES, Traffic, find_machine, installed, mteps, nvtps, write_atomically
from gnnscale.core.config.run_directory import METRICS_FILE
from gnnscale.planner import Device, Fpga
from gnnscale.report.formatting import least_real, mean_present, network_figures
from gnnscale.report.fpga import SIMULATED, csim_figures

if TYPE_CHECKING:
    from gnnscale.partition import PartitionStats
    from gnnscale.run.records import (
        DeviceEpoch,
        EpochRecord,
        GraphStats,
        TrainResult,
    )


_VERSIONS = ("gnnscale", "torch", "numpy", "hydra-core")


def summarize(
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
    """Return the content of ``summary.json``; an unknown value is None, never 0.

    ``train_loss`` is of the last epoch, ``valid_metric`` and ``test_metric`` of ``best_epoch``;
    ``mteps`` and ``nvtps`` are over all epochs.

    Args:
        status: ``completed``, ``interrupted`` or ``failed``, with the message ``error``.
        predicted: the result of ``prediction.compare``.
        first_step_s: seconds from the start of the command to the end of its first step.
        command: command line that repeats the run.
        started, ended: start and end of the training process's run, seconds since 1970.
    """
    dropped, uncached = run.layout.left_out, run.layout.uncached
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
        **_learning(run),
        "graph": _graph(run.graph),
        "ceiling": run.ceiling,
        "planning_s": run.layout.planning_s,
        "first_step_s": first_step_s,
        **_speed(run.history),
        "energy_j": _energy_j(run.history),
        "nvlink": run.layout.nvlink and [list(row) for row in run.layout.nvlink],
        "peak_rss_bytes": max((epoch.peak_rss_bytes for epoch in run.history), default=None),
        "processor": find_machine().processor,
        "devices": [
            _device(share.device, run.epochs_of(rank), run)
            for rank, share in enumerate(run.plan.shares)
        ],
        "left_out": dropped
        and {
            "names": list(dropped.names),
            "step_with_s": dropped.step_with_s,
            "step_without_s": dropped.step_without_s,
            "reason": dropped.line,
        },
        "partition": _partition(run.layout.partition),
        "step_bytes": _step_bytes(run),
        "network": network_figures(run),
        "cache": _cache(run),
        "uncached": uncached
        and {"devices": uncached.num_devices, "of": uncached.of_devices, "reason": uncached.line},
        "predicted": predicted,
        "versions": {name: installed(name) for name in _VERSIONS},
    }


def _learning(run: TrainResult) -> dict[str, Any]:
    """Return epoch counts, the last loss, the best epoch's metrics, and test results by class."""
    counts, thresholds = run.test_classes, run.thresholds
    return {
        "epochs": len(run.history),
        "stopped_early": run.stopped_early,
        "best_epoch": run.best_epoch,
        "train_loss": run.history[-1].train_loss if run.history else None,
        "valid_metric": run.valid_metric,
        "test_metric": run.test_metric,
        "metric": run.metric,
        "valid_metrics": run.valid_metrics | (thresholds.valid if thresholds else {}),
        "test_metrics": run.test_metrics,
        "test_popularity": run.test_popularity,
        "base_rates": {} if run.graph is None else run.graph.base_rates,
        "threshold": thresholds and {"rule": thresholds.rule, "values": [*thresholds.values]},
        "classes": _classes(run),
        "confusion": counts and counts.confusion and [list(row) for row in counts.confusion],
    }


def _speed(epochs: Sequence[EpochRecord]) -> dict[str, Any]:
    """Return epoch times, edges and vertices per second, and the load of other programs."""
    times = [epoch.epoch_time_s for epoch in epochs]
    num_edges = sum(epoch.num_edges for epoch in epochs)
    return {
        "epoch_time_s": {
            "mean": mean_present(times),
            "median": statistics.median(times) if times else None,
        },
        "mteps": mteps(num_edges, sum(times)) if epochs else None,
        "nvtps": nvtps(sum(epoch.num_vertices for epoch in epochs), sum(times)) if epochs else None,
        "other_load": next(
            (epoch.other_load for epoch in reversed(epochs) if epoch.other_load is not None), None
        ),
    }


#: Largest number of classes that ``classes`` lists.
_MAX_CLASSES = 1000


def _classes(run: TrainResult) -> list[dict[str, Any]] | None:
    """Return scores of each class on the test vertices; None: unknown, or too many classes."""
    counts = run.test_classes
    if counts is None or len(counts.actual) > _MAX_CLASSES:
        return None
    names = None if run.graph is None else run.graph.classes
    return [
        {
            "name": None if names is None else names[number],
            **counts.scores(number),
            "num_vertices": counts.actual[number],
            "num_predicted": counts.chosen[number],
        }
        for number in range(len(counts.actual))
    ]


def _graph(graph: GraphStats | None) -> dict[str, Any] | None:
    """Return the sizes of the graph and of its split; None: unknown."""
    if graph is None:
        return None
    sizes = dict(zip(("train", "valid", "test"), graph.split, strict=True))
    names = (
        *("num_vertices", "num_edges", "num_features", "feature_dtype"),
        *("num_classes", "split_of"),
    )
    return {**{name: getattr(graph, name) for name in names}, "split": sizes}


def _energy_j(epochs: Sequence[EpochRecord]) -> float | None:
    """Return the joules of all GPUs in training; None: no GPU, or a GPU without a counter."""
    usages = [device.gpu for epoch in epochs for device in epoch.devices]
    joules = [usage.energy_j for usage in usages if usage is not None]
    counted = [value for value in joules if value is not None]
    return sum(counted) if counted and len(counted) == len(joules) else None


def _partition(stats: PartitionStats | None) -> dict[str, Any] | None:
    """Return totals of the partition, without single parts; None: no partition."""
    if stats is None:
        return None
    omitted = ("parts", "cut", "predicted", "peak_rss_bytes")
    totals = {name: value for name, value in vars(stats).items() if name not in omitted}
    counted = {"algorithm": stats.algorithm, "num_parts": stats.num_parts}
    return {**counted, **totals, "notes": list(stats.notes)}


def _step_bytes(run: TrainResult) -> dict[str, Any] | None:
    """Return bytes of rows and adjacency lists per step, summed over devices; None: no epoch.

    Measured are bytes read in host memory, over links and from peers, next to expected bytes.
    """
    if not run.history or not run.steps_per_epoch:
        return None
    total = sum((device.traffic for epoch in run.history for device in epoch.devices), Traffic())
    steps = len(run.history) * run.steps_per_epoch
    expected = run.layout.step_bytes
    names = ("data_parallel", "p3", "cheaper")
    return {
        "host": (total.rows.host_bytes + total.lists.host_bytes) / steps,
        "link": total.link_bytes / steps,
        "peers": (total.rows.peer_bytes + total.lists.peer_bytes) / steps,
        "expected": expected and {name: getattr(expected, name) for name in names},
    }


def _cache(run: TrainResult) -> dict[str, Any] | None:
    """Return predicted and measured hit rates and transactions of the caches, means per epoch.

    ``measured`` covers the epochs of ``predicted``, ``whole_run`` all epochs. None: no caches.
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


def _utc(seconds: float | None) -> str | None:
    """Return a time since 1970 in ISO 8601, UTC, with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _measured(history: Sequence[EpochRecord]) -> dict[str, Any]:
    """Return hit rates and link traffic of the epochs in ``history``, means per epoch."""
    epochs = len(history)
    total = sum((device.traffic for epoch in history for device in epoch.devices), Traffic())
    return {
        **_hit_rates(total),
        "transactions": _per_epoch(total.link_requests, epochs),
        "link_bytes": _per_epoch(total.link_bytes, epochs),
        "num_epochs": epochs,
    }


def _per_epoch(count: int, epochs: int) -> int | None:
    return round(count / epochs) if epochs else None


def _device(
    device: Device, epochs_of: Mapping[int, DeviceEpoch], run: TrainResult
) -> dict[str, Any]:
    """Return the results of one device: means per epoch; hit rates, memory, counters of the run."""
    epochs = list(epochs_of.values())
    seconds = sum(epoch.epoch_time_s for epoch in run.history if epoch.epoch in epochs_of)
    last = epochs[-1] if epochs else None
    sent = mean_present(epoch.host_to_device_bytes for epoch in epochs)
    return {
        "name": device.label,
        "kind": device.kind,
        "figures": device.figures,
        "batch_share": mean_present(epoch.batch_share for epoch in epochs),
        "threads": None if last is None else last.threads,
        "stage_times_s": {
            name: mean_present(epoch.stage_times_s[name] for epoch in epochs) for name in STAGES
        },
        "host_to_device_bytes": None if sent is None else round(sent),
        "traffic": _mean_traffic(epochs),
        **_all_hit_rates(sum((epoch.traffic for epoch in epochs), Traffic())),
        "peak_rss_bytes": max((epoch.peak_rss_bytes for epoch in epochs), default=None),
        "pss_bytes": None if last is None else last.pss_bytes,
        "gpu": _gpu(epochs, seconds),
        "counters": _counters(epochs),
        "csim": _csim(device, epochs, run.steps_per_epoch or 0),
    }


def _gpu(epochs: Sequence[DeviceEpoch], seconds: float) -> dict[str, float | int | None] | None:
    """Return sums of GPU counters, and mean watts over ``seconds`` of training; None: no GPU."""
    usages = [epoch.gpu for epoch in epochs if epoch.gpu is not None]
    if not usages:
        return None
    total = sum(usages[1:], usages[0])
    watts = total.energy_j / seconds if total.energy_j is not None and seconds > 0 else None
    return {**asdict(total), "power_w": watts}


def _csim(
    device: Device, epochs: Sequence[DeviceEpoch], steps_per_epoch: int
) -> dict[str, Any] | None:
    """Return ``csim_figures`` over a device's epochs in C simulation; None: no such epoch."""
    if not isinstance(device, Fpga):
        return None
    simulated = [
        epoch for epoch in epochs if any(name.startswith(SIMULATED) for name in epoch.counters)
    ]
    return csim_figures(
        _counters(simulated), num_steps=len(simulated) * steps_per_epoch, clock_hz=device.clock_hz
    )


def _mean_traffic(epochs: Sequence[DeviceEpoch]) -> dict[str, dict[str, int]] | None:
    """Return counts of traffic by data, such as ``rows``, means per epoch; None: no epoch."""
    if not epochs:
        return None
    return {
        part: {name: round(count / len(epochs)) for name, count in counts.items()}
        for part, counts in asdict(sum((epoch.traffic for epoch in epochs), Traffic())).items()
    }


def _hit_rates(traffic: Traffic) -> dict[str, float | None]:
    return {"feature_hit_rate": traffic.rows.hit_rate, "topology_hit_rate": traffic.lists.hit_rate}


def _all_hit_rates(traffic: Traffic) -> dict[str, float | None]:
    """Return hit rates of caches, and of host memory in front of a disk or other machines."""
    return {
        **_hit_rates(traffic),
        "memory_hit_rate": traffic.tier.hit_rate,
        "neighbor_hit_rate": traffic.neighbors.hit_rate,
    }


def _counters(epochs: Sequence[DeviceEpoch]) -> dict[str, float]:
    """Return the counters that a device's backend reports, by name, summed over ``epochs``."""
    total: Counter[str] = Counter()
    for epoch in epochs:
        total.update(epoch.counters)
    return dict(total)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` to ``file`` as JSON, atomically."""
    write_atomically(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_metrics(directory: Path, epochs: Sequence[EpochRecord]) -> None:
    """Replace ``metrics.jsonl`` by a file with one line for each of ``epochs``."""
    lines = (_line(epoch).encode() for epoch in epochs)
    # Durable: no checkpoint contains these lines.
    write_atomically(directory / METRICS_FILE, lines, durable=bool(epochs))


def append_metrics(directory: Path, epoch: EpochRecord) -> None:
    """Append the line of ``epoch`` to ``metrics.jsonl``."""
    with (directory / METRICS_FILE).open("a") as file:
        file.write(_line(epoch))


def _line(epoch: EpochRecord) -> str:
    devices = [{**asdict(device), **_all_hit_rates(device.traffic)} for device in epoch.devices]
    values = {
        **epoch.to_dict(),
        "devices": devices,
        "mteps": mteps(epoch.num_edges, epoch.epoch_time_s),
        "nvtps": nvtps(epoch.num_vertices, epoch.epoch_time_s),
    }
    return json.dumps(values, allow_nan=False) + "\n"
