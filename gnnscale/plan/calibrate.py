"""Calibration: the rates of this machine, fitted to short runs of the stages' own code."""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from scipy.optimize import nnls

from gnnscale.graph import Graph
from gnnscale.hardware import cache_bytes, find_machine, usable_cores
from gnnscale.plan.platform import Platform, Processor
from gnnscale.plan.probes import (
    STEP_PROBES,
    StepTimes,
    mapped,
    probe_graph,
    rows_seconds,
    time_all_reduce,
    time_sampling,
    time_steps,
)
from gnnscale.plan.workload import load_work, propagation_work
from gnnscale.progress import track

__all__ = ["calibrate", "estimate"]

log = logging.getLogger(__name__)

#: Widths of the rows read, in features; and bytes read in one go.
_WIDTHS = (16, 64, 256, 1024)
_READ_BYTES = 2**25
_WEIGHTS = (1 << 12, 1 << 20)
#: Part of the cores that others may use before calibration says so.
_BUSY = 0.25
#: Rates that a processor has once, and not for each number of threads.
_PER_RUN = ("load_s", "lookups_per_s", "update_s", "update_bandwidth")


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """How much is measured.

    Attributes:
        repeats: of each probe.
        rounds: of all training steps.
        step_probes: how many of ``STEP_PROBES``.
        widths: of rows read.
        num_vertices: of the graph that is sampled.
        table_bytes: of the features read.
        processes: whether all-reduce is timed, in two processes.
    """

    repeats: int
    rounds: int
    step_probes: int
    widths: tuple[int, ...]
    num_vertices: int
    table_bytes: int
    processes: bool


_FULL = _Effort(
    repeats=7,
    rounds=3,
    step_probes=len(STEP_PROBES),
    widths=_WIDTHS,
    num_vertices=1 << 16,
    table_bytes=1 << 30,
    processes=True,
)
_QUICK = _Effort(
    repeats=2,
    rounds=1,
    step_probes=6,
    widths=(16, 256),
    num_vertices=1 << 13,
    table_bytes=1 << 26,
    processes=False,
)
#: What an estimate takes for an all-reduce between two processes, which take seconds to start.
_SYNC_ESTIMATE = (1e-4, 1e9)


def calibrate() -> Platform:
    """Measure this machine's processor; takes some tens of seconds, and shows its progress."""
    load = os.getloadavg()[0]
    if load > _BUSY * usable_cores():
        log.warning(
            f"other programs keep {load:.1f} of {usable_cores()} cores busy; "
            "the rates measured now will be too low"
        )
    return _measure(_FULL, name="this machine")


def estimate() -> Platform:
    """Measure what matters in half a second, for a first plan on a machine not yet calibrated."""
    return _measure(_QUICK, name="this machine, estimated")


def _measure(effort: _Effort, *, name: str) -> Platform:
    cores = usable_cores()
    counts = _thread_counts(cores) if effort is _FULL else sorted({1, cores})
    with track("calibrating", total=3 * len(counts) + 1, unit="measurements") as advance:
        graph = probe_graph(effort.num_vertices, 8 * effort.num_vertices)
        found = [_rates(effort, graph, count, advance) for count in counts]
        latency, bandwidth = _all_reduce(effort)
        advance(1)
    per_run: dict[str, Any] = {
        key: statistics.fmean(rates.pop(key) for rates in found) for key in _PER_RUN
    }
    per_threads: dict[str, Any] = {
        key: _growing([rates[key] for rates in found], falls=key == "layer_s") for key in found[0]
    }
    processor = Processor(
        name=find_machine().processor,
        cores=cores,
        cache_bytes=cache_bytes(),
        threads=counts,
        sync_latency_s=latency,
        sync_bandwidth=bandwidth,
        **per_run,
        **per_threads,
    )
    return Platform(name=name, processor=processor)


def _growing(rates: Sequence[float], *, falls: bool) -> list[float]:
    """Return ``rates`` of more and more threads, none below one of fewer unless ``falls``.

    Threads that bring nothing can be left idle; a rate that falls was disturbed.
    """
    return list(rates) if falls else list(accumulate(rates, max))


def _thread_counts(cores: int) -> list[int]:
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({count for count in (*powers, cores) if count <= cores})


def _rates(
    effort: _Effort, graph: Graph, threads: int, advance: Callable[[int], None]
) -> dict[str, float]:
    """Everything that is measured for each number of threads."""
    edges, seconds = time_sampling(graph, threads=threads, repeats=effort.repeats)
    rates = {"sampled_edges_per_s": edges / seconds}
    advance(1)
    probes = STEP_PROBES[: effort.step_probes]
    rounds = [
        [time_steps(each, graph, threads=threads, repeats=effort.repeats) for each in probes]
        for _ in range(effort.rounds)
    ]
    # What disturbs one round, for seconds perhaps, is not in the median of all.
    steps = [
        sorted(each, key=_step_seconds)[len(rounds) // 2] for each in zip(*rounds, strict=True)
    ]
    rates |= _propagation_rates(steps) | _update_rates(steps)
    advance(1)
    rates |= _load_rates(effort, steps, threads)
    advance(1)
    return rates


def _step_seconds(step: StepTimes) -> float:
    return step.load_s + step.propagate_s + step.update_s


def _load_rates(effort: _Effort, steps: Sequence[StepTimes], threads: int) -> dict[str, float]:
    """Seconds of loading = a constant + sum of amounts / rates: rows, bytes; cache, memory."""
    cache = cache_bytes()
    table_bytes = max(min(effort.table_bytes, find_machine().memory.available // 8), 2 * cache)
    buffer = mapped(table_bytes // 4)
    work: list[tuple[float, ...]] = []
    seconds = []
    for width in effort.widths:
        for cached in (True, False):
            table = buffer[: cache // 64 if cached else len(buffer)]
            table = table[: len(table) // width * width].reshape(-1, width)
            rows = min(_READ_BYTES // (4 * width), 100_000) // 10 * 10
            read = rows * width * 4
            work.append((rows, 0, read, 0, 0, 0) if cached else (rows, rows, 0, read, 0, 0))
            took = rows_seconds(
                table, rows, threads=threads, repeats=effort.repeats, cold=not cached
            )
            seconds.append(took)
    for step in steps:
        asked = load_work(step.workload, step.size, cache=cache)
        amounts = (asked.rows, asked.missed_rows, asked.cached_bytes, asked.memory_bytes)
        work.append((*amounts, asked.lookups, 1))
        seconds.append(step.load_s)
    names = ("rows_per_s", "memory_rows_per_s", "cache_bandwidth", "memory_bandwidth")
    rates = _fit((*names, "lookups_per_s", "loads"), work, seconds)
    return rates | {"load_s": 1 / rates.pop("loads")}


def _propagation_rates(steps: Sequence[StepTimes]) -> dict[str, float]:
    """Seconds of propagation = sum of amounts / rates, eq. 10 to 12, + layers · constant."""
    asked = [propagation_work(step.workload, step.size) for step in steps]
    names = ("macs_per_s", "aggregate_bandwidth", "stream_bandwidth", "attention_per_s", "layers")
    work = [
        (each.macs, each.aggregate_bytes, each.stream_bytes, each.attention, each.num_layers)
        for each in asked
    ]
    rates = _fit(names, work, [step.propagate_s for step in steps])
    return rates | {"layer_s": 1 / rates.pop("layers")}


def _update_rates(steps: Sequence[StepTimes]) -> dict[str, float]:
    """Seconds of the optimizer's step = a constant + bytes of weights / rate."""
    work = [(1.0, step.workload.weight_bytes) for step in steps]
    rates = _fit(("updates", "update_bandwidth"), work, [step.update_s for step in steps])
    return rates | {"update_s": 1 / rates.pop("updates")}


def _fit(
    names: Sequence[str], work: Sequence[Sequence[float]], seconds: Sequence[float]
) -> dict[str, float]:
    """Find the rates, none negative, whose times have the least relative errors squared."""
    amounts = np.asarray(work, dtype=np.float64)
    relative = amounts / np.asarray(seconds)[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)
    import os

    if os.environ.get("DBG"):
        x = nnls(relative / scale, np.ones(len(seconds)))[0]
        print(names)
        print(np.array(seconds).round(5))
        print((relative / scale @ x).round(2))
    per_unit = nnls(relative / scale, np.ones(len(seconds)))[0] / scale
    return {
        name: 1 / float(value) if value > 0 else float("inf")
        for name, value in zip(names, per_unit, strict=True)
    }


def _all_reduce(effort: _Effort) -> tuple[float, float]:
    """Latency and bandwidth of a ring of two: each half of it moves half of the bytes."""
    if not effort.processes:
        return _SYNC_ESTIMATE
    small, large = time_all_reduce(_WEIGHTS, repeats=10 * effort.repeats)
    per_byte = max(large - small, 1e-9) / (4 * (_WEIGHTS[1] - _WEIGHTS[0]))
    return small / 2, 1 / per_byte
