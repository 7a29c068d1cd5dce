"""Calibration: the rates of this machine, fitted to short runs of the stages' own code."""

import logging
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import (
    cache_bytes,
    find_machine,
    find_memory,
    multiplies_bfloat16,
    track,
    usable_cores,
)
from gnnscale.core.artifact.files import check_space
from gnnscale.core.types import BoolArray, Float32Array, Float64Array
from gnnscale.graph import Graph
from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.calibration.contention import PairTask, time_pair
from gnnscale.planner.calibration.probes import (
    ESTIMATE_PROBES,
    STEP_PROBES,
    StepProbe,
    StepTimes,
    mapped,
    probe_graphs,
    probe_table,
    rows_seconds,
    table_bytes,
    time_operands,
    time_products,
    time_sampling,
    time_steps,
)
from gnnscale.planner.cost_model.equations import product_seconds
from gnnscale.planner.cost_model.stage_work import load_work, propagation_work
from gnnscale.planner.platform import (
    ESTIMATED,
    MachineIdentity,
    Platform,
    Processor,
    Rates,
    Sharing,
)

log = logging.getLogger(__name__)

#: Bytes of rows read in one go.
_READ_BYTES = 2**25
#: Bytes of the table that they are read from, which has twice those of the cache between these.
_MIN_TABLE, _MAX_TABLE = 2**20, 3 * 2**26
#: About what a process takes that has imported torch.
_PROCESS_BYTES = 350 << 20
#: Features of the products that are timed.
_WIDTH = 256
#: Features and outputs of one whose operands take most of its time; how often it is timed, and of
#: how many rows, if memory allows: they come from beyond a core's own cache.
_OPERANDS, _OPERAND_REPEATS, _OPERAND_ROWS = (2048, 16), 4, 8192
#: How often: threads may share a core for the first tens of milliseconds.
_PRODUCTS = 16
_WEIGHTS = (1 << 12, 1 << 20)
#: Sums of each of them: the wake-up of a process takes from a quarter to ten times the median.
_REDUCES = 100
#: Part of the cores that others may use before calibration warns.
_BUSY = 0.25
#: Rates that a processor has once, and not for each number of threads.
_PER_RUN = ("load_s", "lookups_per_s", "update_s", "update_bandwidth")


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """How much is measured."""

    repeats: int  #: of each probe in a round
    rounds: int  #: of everything that is timed with several numbers of threads
    probes: tuple[StepProbe, ...]  #: training steps that are timed
    product_rows: int  #: rows of the products that are timed
    #: of rows that are read by themselves, since the graph's would all be in the cache
    widths: tuple[int, ...]
    num_vertices: int  #: of the graph that is sampled
    table_bytes: int  #: of the rows that are read by themselves
    processes: bool  #: whether all-reduce is timed, in two processes


_FULL = _Effort(
    repeats=5,
    rounds=5,
    probes=STEP_PROBES,
    product_rows=8192,
    widths=(),
    num_vertices=1 << 18,
    table_bytes=0,
    processes=True,
)
_QUICK = _Effort(
    repeats=2,
    rounds=1,
    probes=ESTIMATE_PROBES,
    product_rows=2048,
    widths=(16, 256),
    num_vertices=1 << 14,
    table_bytes=1 << 26,
    processes=False,
)
#: What an estimate takes for what only processes can measure, which take seconds to start.
_PAIR_ESTIMATE = {
    "compute_contention": 1.1,
    "memory_contention": 1.2,
    "sync_latency_s": 1e-4,
    "sync_bandwidth": 5e9,
    "straggler_wait": 0.05,
    "message_latency_s": 3e-4,
    "message_bandwidth": 1e9,
}


def calibrate() -> Platform:
    """Measure this machine's processor; takes some tens of seconds, and shows its progress.

    Raises:
        NoSpaceError: there is less memory than the rows need that no cache holds.
    """
    check_space("calibrate=true", Path("/"), memory=_needed_bytes(_FULL))
    load = os.getloadavg()[0]
    if load > _BUSY * usable_cores():
        log.warning(
            f"other programs keep {load:.1f} of {usable_cores()} cores busy; "
            "the rates measured now will be too low"
        )
    return _measure(_FULL, name="this machine", doing="calibrating")


def _needed_bytes(effort: _Effort) -> int:
    """Return the memory that calibration takes: a table in this process, and in each of a pair."""
    table = table_bytes(effort.num_vertices, effort.probes)
    if usable_cores() < 2:
        return table
    return 3 * table + 2 * _PROCESS_BYTES


def estimate() -> Platform:
    """Measure what matters in half a second, for a first plan on a machine not yet calibrated."""
    doing = "estimating how fast this machine is"
    return _measure(_QUICK, name=ESTIMATED, doing=doing)


def _measure(effort: _Effort, *, name: str, doing: str) -> Platform:
    # As in processes that train: elsewhere every step gets new pages for its activations, and its
    # propagation appears slower than that of a run.
    ops.keep_freed_memory()
    cores = usable_cores()
    counts = thread_counts(cores) if effort is _FULL else sorted({1, cores})
    with track(doing, total=effort.rounds + 1, unit="rounds") as advance:
        graphs = probe_graphs(*_graph_sizes(effort))
        times = _times(effort, graphs, counts, advance)
        found = [_rates(effort, each, count) for count, each in zip(counts, times, strict=True)]
        sharing = Sharing(**_pair_rates(effort, counts))
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
        layer_s=per_threads.pop("layer_s"),
        rates=Rates(**per_threads),
        sharing=sharing,
        **per_run,
    )
    return Platform(name=name, processor=processor, measured_on=MachineIdentity.here())


def _growing(rates: Sequence[float], *, falls: bool) -> list[float]:
    """Return ``rates`` of more and more threads, none below one of fewer unless ``falls``.

    Threads that bring nothing can be left idle; a rate that falls was disturbed.
    """
    return list(rates) if falls else list(accumulate(rates, max))


def thread_counts(cores: int) -> list[int]:
    """Return the numbers of threads to measure: powers of two, and all cores."""
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({count for count in (*powers, cores) if count <= cores})


def _graph_sizes(effort: _Effort) -> tuple[int, int]:
    return effort.num_vertices, 8 * effort.num_vertices


@dataclass(frozen=True, kw_only=True)
class _Times:
    """What a number of threads took."""

    steps: list[StepTimes]  #: of each probe
    product_s: float  #: seconds of a product, see ``time_products``
    bfloat16_s: float | None  #: the same of bfloat16; None if it becomes float32
    operand_s: float  #: seconds of a row of a product that reads much, see ``time_operands``
    sample_s: float  #: seconds of an edge that is sampled


def _times(
    effort: _Effort,
    graphs: tuple[Graph, Graph],
    counts: Sequence[int],
    advance: Callable[[int], None],
) -> list[_Times]:
    """Time everything that has a figure for each number of threads.

    Everything is timed in rounds: what disturbs one of these is not in the median of all, and a
    machine that becomes slower does so for any number of threads.
    """
    table = probe_table(graphs[0], effort.probes)
    rounds = []
    for _ in range(effort.rounds):
        rounds.append([_time_round(effort, graphs, table, count) for count in counts])
        advance(1)
    return [_middle(of_one_count) for of_one_count in zip(*rounds, strict=True)]


def _time_round(
    effort: _Effort, graphs: tuple[Graph, Graph], table: Float32Array, threads: int
) -> _Times:
    edges, seconds = time_sampling(graphs[0], threads=threads, repeats=effort.repeats)
    products = partial(
        time_products, _WIDTH, effort.product_rows, threads=threads, repeats=_PRODUCTS
    )
    return _Times(
        steps=[
            time_steps(
                probe, graphs[probe.dense], threads=threads, repeats=effort.repeats, table=table
            )
            for probe in effort.probes
        ],
        product_s=products(),
        bfloat16_s=products(dtype=torch.bfloat16) if multiplies_bfloat16() else None,
        operand_s=_operand_seconds(threads),
        sample_s=seconds / edges,
    )


def _operand_seconds(threads: int) -> float:
    """Return the seconds of a row of the product that reads much, in an eighth of the memory."""
    width, outputs = _OPERANDS
    allowed = find_memory().available // 8 // (width * BYTES_PER_FEATURE)
    rows = max(min(_OPERAND_ROWS, allowed), 1)
    return time_operands(rows, width, outputs, threads=threads, repeats=_OPERAND_REPEATS) / rows


def _middle(rounds: Sequence[_Times]) -> _Times:
    """Return the median of each thing that was timed."""
    middle = len(rounds) // 2
    steps = zip(*(each.steps for each in rounds), strict=True)
    lower = [each.bfloat16_s for each in rounds if each.bfloat16_s is not None]
    return _Times(
        steps=[sorted(times, key=attrgetter("step_s"))[middle] for times in steps],
        product_s=statistics.median(each.product_s for each in rounds),
        bfloat16_s=statistics.median(lower) if lower else None,
        operand_s=statistics.median(each.operand_s for each in rounds),
        sample_s=statistics.median(each.sample_s for each in rounds),
    )


def _rates(effort: _Effort, times: _Times, threads: int) -> dict[str, float]:
    """Everything that has a figure for each number of threads."""
    rates = _propagation_rates(effort, times) | _update_rates(times.steps)
    rates |= _load_rates(effort, times.steps, threads)
    return rates | {"sampled_edges_per_s": 1 / times.sample_s}


def _load_rates(effort: _Effort, steps: Sequence[StepTimes], threads: int) -> dict[str, float]:
    """Seconds of loading = a constant + sum of amounts / rates: rows, bytes; cache, memory.

    The loads are those of training steps, whose results are new and whose other stages have used
    the cache; rows read by themselves into a buffer that stays are read faster than in any run.
    """
    cache = cache_bytes()
    work, seconds = _table_loads(effort, threads) if effort.widths else ([], [])
    for step in steps:
        asked = load_work(step.workload, step.size, cache=cache)
        amounts = (asked.rows, asked.missed_rows, asked.cached_bytes, asked.memory_bytes)
        work.append((*amounts, asked.widened, asked.written_bytes, asked.lookups, 1))
        seconds.append(step.load_s)
    read = ("rows_per_s", "memory_rows_per_s", "cache_bandwidth", "memory_bandwidth")
    made = ("widened_per_s", "write_bandwidth")
    rates = fit_rates((*read, *made, "lookups_per_s", "loads"), work, seconds)
    return rates | {"load_s": 1 / rates.pop("loads")}


def _table_loads(effort: _Effort, threads: int) -> tuple[list[tuple[float, ...]], list[float]]:
    """Read rows of tables that the cache has and of some that it has not: amounts, and seconds."""
    cache = cache_bytes()
    wanted = max(effort.table_bytes, min(2 * cache, _MAX_TABLE))
    buffer = mapped(max(min(wanted, find_memory().available // 8), _MIN_TABLE) // 4)
    work: list[tuple[float, ...]] = []
    seconds = []
    for width in effort.widths:
        for cached in (True, False):
            table = buffer[: cache // 64 if cached else len(buffer)]
            table = table[: len(table) // width * width].reshape(-1, width)
            rows = min(_READ_BYTES // (4 * width), 100_000) // 10 * 10
            read = rows * width * 4
            amounts = (rows, 0, read, 0) if cached else (rows, rows, 0, read)
            # Ten rows become one, into a buffer that the cache has.
            work.append((*amounts, 0, 0, 0, 0))
            took = rows_seconds(
                table, rows, threads=threads, repeats=effort.repeats, cold=not cached
            )
            seconds.append(took)
    return work, seconds


def _propagation_rates(effort: _Effort, times: _Times) -> dict[str, float]:
    """Seconds of propagation = products + amounts / rates, eq. 10 to 12, + layers · constant.

    The rates of products are measured by themselves, forward and for weights' gradients: in every
    layer it is hard to separate them from that of the rows they write. The fit gives these what
    small matrices lack.
    """
    macs_per_s = effort.product_rows * _WIDTH**2 / times.product_s
    width, outputs = _OPERANDS
    reading_s = times.operand_s - width * outputs / macs_per_s
    row_bytes = width * BYTES_PER_FEATURE
    products = {
        "macs_per_s": macs_per_s,
        "operand_bandwidth": row_bytes / reading_s if reading_s > 0 else math.inf,
    }
    layers = [propagation_work(step.workload, step.size) for step in times.steps]
    asked = [sum((each for pair in of_step for each in pair), LayerWork()) for of_step in layers]
    names = ("aggregate_bandwidth", "stream_bandwidth", "attention_per_s", "layers")
    work = [(each.read_bytes, each.stream_bytes, each.attention, each.operations) for each in asked]
    known = [product_seconds(each, **products) for each in layers]
    rates = fit_rates(names, work, [step.propagate_s for step in times.steps], known=known)
    rates |= products | {"layer_s": 1 / rates.pop("layers")}
    if times.bfloat16_s is not None:
        rates["bfloat16_macs_per_s"] = effort.product_rows * _WIDTH**2 / times.bfloat16_s
    return rates


def _update_rates(steps: Sequence[StepTimes]) -> dict[str, float]:
    """Seconds of the optimizer's step = a constant + bytes of weights / rate."""
    work = [(1.0, step.workload.weight_bytes) for step in steps]
    rates = fit_rates(("updates", "update_bandwidth"), work, [step.update_s for step in steps])
    return rates | {"update_s": 1 / rates.pop("updates")}


def fit_rates(
    names: Sequence[str],
    work: Sequence[Sequence[float]],
    seconds: Sequence[float],
    *,
    known: Sequence[float] | None = None,
) -> dict[str, float]:
    """Find the rates, none negative, whose times have the least relative errors squared."""
    took = np.asarray(seconds)
    rest = 1 - (np.zeros_like(took) if known is None else np.asarray(known)) / took
    relative = np.asarray(work, dtype=np.float64) / took[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)
    per_unit = least_squares(relative / scale, np.maximum(rest, 0.0)) / scale
    return {
        name: 1 / float(value) if value > 0 else float("inf")
        for name, value in zip(names, per_unit, strict=True)
    }


def least_squares(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return ``x``, none negative, with the least ``|a x - b|`` (Lawson and Hanson, NNLS).

    SciPy has it too. The library of products that comes with it takes memory for each thread, and
    waits without end for memory that a limit refuses.

    Args:
        a: ``[m, n]``, entries about 1.
        b: ``[m]``.
    """
    x = np.zeros(a.shape[1])
    passive = np.zeros(a.shape[1], np.bool_)  # those that are not held at zero
    tolerance = 10 * max(a.shape) * np.finfo(np.float64).eps * float(np.abs(a).sum(axis=0).max())
    for _ in range(3 * len(x)):
        gradient = np.where(passive, -np.inf, a.T @ (b - a @ x))
        entering = int(gradient.argmax())
        if gradient[entering] <= tolerance:
            break
        passive[entering] = True
        solution = _solved(a, b, passive)
        while (solution[passive] <= 0).any():
            falling = passive & (solution <= 0)
            x += np.min(x[falling] / (x[falling] - solution[falling])) * (solution - x)
            passive &= x > tolerance
            x[~passive] = 0.0
            solution = _solved(a, b, passive)
        x = solution
    return x


def _solved(a: Float64Array, b: Float64Array, passive: BoolArray) -> Float64Array:
    """Return the solution without bounds, of which only ``passive`` entries may differ from 0."""
    solution = np.zeros(a.shape[1])
    solution[passive] = np.linalg.lstsq(a[:, passive], b, rcond=None)[0]
    return solution


def _pair_rates(effort: _Effort, counts: Sequence[int]) -> dict[str, float]:
    """How workers slow each other down, and what their synchronisation takes."""
    if not effort.processes or counts[-1] < 2:
        return _PAIR_ESTIMATE
    half = max(i for i, count in enumerate(counts) if 2 * count <= counts[-1])
    pair = time_pair(
        PairTask(
            num_values=_WEIGHTS,
            reduces=_REDUCES,
            probes=STEP_PROBES,
            graph_sizes=_graph_sizes(effort),
            threads=counts[half],
            repeats=4 * effort.repeats,
        )
    )
    per_byte = _seconds_per_byte(pair.sum_s)
    both = list(zip(pair.steps, pair.alone, strict=True))
    return {
        "compute_contention": _slowdown([a.propagate_s / b.propagate_s for a, b in both]),
        "memory_contention": _slowdown([a.load_s / b.load_s for a, b in both]),
        "sync_bandwidth": 1 / per_byte,
        **sync_rates(pair.steps, per_byte),
        # Of two processes a ring is two messages, one after the other.
        "message_latency_s": pair.reduce_s[0] / 2,
        "message_bandwidth": 1 / _seconds_per_byte(pair.reduce_s),
    }


def _seconds_per_byte(seconds: Sequence[float]) -> float:
    """Return those of an all-reduce, from the seconds of ``_WEIGHTS`` values."""
    small, large = seconds
    return max(large - small, 1e-9) / (4 * (_WEIGHTS[1] - _WEIGHTS[0]))


def sync_rates(steps: Sequence[StepTimes], s_per_byte: float) -> dict[str, float]:
    """Seconds of a synchronisation = a constant + its bytes + a part of the step's other work.

    The last is what a worker waits for the other, whose step took longer this time.

    Args:
        steps: of two workers in step with each other.
        s_per_byte: seconds of a byte of weights.
    """
    rates = fit_rates(
        ("sums", "own_work"),
        [(1.0, step.load_s + step.propagate_s) for step in steps],
        [step.sync_s for step in steps],
        known=[step.workload.weight_bytes * s_per_byte for step in steps],
    )
    return {"sync_latency_s": 1 / rates["sums"], "straggler_wait": 1 / rates["own_work"]}


def _slowdown(ratios: Sequence[float]) -> float:
    return max(1.0, statistics.median(ratios))
