"""Calibration: rates of this machine, fitted to the times of the stages' own code."""

import logging
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from gnnscale import ops
from gnnscale.core import (
    cache_bytes,
    find_machine,
    multiplies_bfloat16,
    read_memory,
    track,
    usable_cores,
)
from gnnscale.core.artifact.files import check_space
from gnnscale.core.types import Float32Array
from gnnscale.graph import Graph
from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.calibration import probes
from gnnscale.planner.calibration.contention import PairTask, time_pair
from gnnscale.planner.calibration.fit import fit_rates, sync_rates
from gnnscale.planner.cost_model import load_work, product_seconds, propagation_work
from gnnscale.planner.platform import ESTIMATED, MachineIdentity, Platform
from gnnscale.planner.processor import Processor, Rates, Sharing

log = logging.getLogger(__name__)

#: Bytes of rows read per probe.
_READ_BYTES = 2**25
#: Bounds in bytes of the table of these rows, which has twice the size of the cache.
_MIN_TABLE, _MAX_TABLE = 2**20, 3 * 2**26
#: Approximate memory of a process with torch imported.
_PROCESS_BYTES = 350 << 20
#: Width of the square matrices of timed products.
_WIDTH = 256
#: Product bound by operand reads: features and outputs, repetitions, and rows, which exceed a
#: core's own cache if memory allows.
_OPERANDS, _OPERAND_REPEATS, _OPERAND_ROWS = (2048, 16), 4, 8192
#: Repetitions of a product: threads may share a core for the first tens of milliseconds.
_PRODUCTS = 16
_WEIGHTS = (1 << 12, 1 << 20)
#: All-reduces per size in ``_WEIGHTS``: the wake-up of a process takes 0.25 to 10 times the median.
_REDUCES = 100
#: Load by other programs, as a fraction of the cores, above which calibration warns.
_BUSY = 0.25
#: Rates that do not depend on the number of threads.
_PER_RUN = ("load_s", "lookups_per_s", "update_s", "update_bandwidth")


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """Extent of a measurement: repetitions, probes and sizes."""

    repeats: int  #: repetitions of each probe in a round
    rounds: int  #: rounds over all numbers of threads
    probes: tuple[probes.StepProbe, ...]  #: timed training steps
    product_rows: int  #: rows of timed products
    #: widths of separately read rows, needed if the graph's rows would fit into the cache
    widths: tuple[int, ...]
    num_vertices: int  #: vertices of the sampled graph
    table_bytes: int  #: bytes of the separately read rows
    processes: bool  #: whether two processes time contention and all-reduce


_FULL = _Effort(
    repeats=5,
    rounds=5,
    probes=probes.STEP_PROBES,
    product_rows=8192,
    widths=(),
    num_vertices=1 << 18,
    table_bytes=0,
    processes=True,
)
_QUICK = _Effort(
    repeats=2,
    rounds=1,
    probes=probes.ESTIMATE_PROBES,
    product_rows=2048,
    widths=(16, 256),
    num_vertices=1 << 14,
    table_bytes=1 << 26,
    processes=False,
)
#: Assumed contention in an estimate, which starts no processes.
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
    """Return a platform with rates measured here in tens of seconds; warn if other programs run."""
    check_space("calibrate=true", Path("/"), memory=_needed_bytes(_FULL))
    load = os.getloadavg()[0]
    if load > _BUSY * usable_cores():
        log.warning(
            f"other programs keep {load:.1f} of {usable_cores()} cores busy; "
            "the rates measured now will be too low"
        )
    return _measure(_FULL, name="this machine", doing="calibrating")


def _needed_bytes(effort: _Effort) -> int:
    """Return the bytes of memory of calibration, with both of its processes if two cores exist."""
    table = probes.table_bytes(effort.num_vertices, effort.probes)
    if usable_cores() < 2:
        return table
    return 3 * table + 2 * _PROCESS_BYTES


def estimate() -> Platform:
    """Return a platform with rough rates, measured in half a second, for uncalibrated runs."""
    doing = "estimating how fast this machine is"
    return _measure(_QUICK, name=ESTIMATED, doing=doing)


def _measure(effort: _Effort, *, name: str, doing: str) -> Platform:
    # As in training processes: otherwise every step maps new pages and appears slower.
    ops.keep_freed_memory()
    cores = usable_cores()
    counts = thread_counts(cores) if effort is _FULL else sorted({1, cores})
    with track(doing, total=effort.rounds + 1, unit="rounds") as advance:
        graphs = probes.probe_graphs(*_graph_sizes(effort))
        times = _times(effort, graphs, counts, advance)
        rates = [_rates(effort, t, count) for count, t in zip(counts, times, strict=True)]
        sharing = Sharing(**_pair_rates(effort, counts))
        advance(1)
    per_run: dict[str, Any] = {
        key: statistics.fmean(of_count.pop(key) for of_count in rates) for key in _PER_RUN
    }
    layer_s = [of_count.pop("layer_s") for of_count in rates]
    # Useless threads can be left idle, so that a decreasing rate is a measuring error.
    per_threads: dict[str, Any] = {
        key: list(accumulate((of_count[key] for of_count in rates), max)) for key in rates[0]
    }
    processor = Processor(
        name=find_machine().processor,
        cores=cores,
        cache_bytes=cache_bytes(),
        threads=counts,
        layer_s=layer_s,
        rates=Rates(**per_threads),
        sharing=sharing,
        **per_run,
    )
    return Platform(name=name, processor=processor, measured_on=MachineIdentity.current())


def thread_counts(cores: int) -> list[int]:
    """Return the numbers of threads to measure: powers of two up to ``cores``, and ``cores``."""
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({count for count in (*powers, cores) if count <= cores})


def _graph_sizes(effort: _Effort) -> tuple[int, int]:
    return effort.num_vertices, 8 * effort.num_vertices


@dataclass(frozen=True, kw_only=True)
class _Times:
    """Measured seconds for one number of threads."""

    steps: list[probes.StepTimes]  #: one per probe
    product_s: float  #: seconds of a product; see ``time_products``
    bfloat16_s: float | None  #: seconds of a bfloat16 product. None: unsupported by the processor
    #: seconds per row of the product bound by operand reads; see ``time_operands``
    operand_s: float
    sample_s: float  #: seconds per sampled edge


def _times(
    effort: _Effort,
    graphs: tuple[Graph, Graph],
    counts: Sequence[int],
    advance: Callable[[int], None],
) -> list[_Times]:
    """Time all probes with each number of threads in ``counts``; return medians over the rounds."""
    table = probes.probe_table(graphs[0], effort.probes)
    rounds = []
    for _ in range(effort.rounds):
        rounds.append([_time_round(effort, graphs, table, count) for count in counts])
        advance(1)
    return [_median(of_count) for of_count in zip(*rounds, strict=True)]


def _time_round(
    effort: _Effort, graphs: tuple[Graph, Graph], table: Float32Array, threads: int
) -> _Times:
    edges, seconds = probes.time_sampling(graphs[0], threads=threads, repeats=effort.repeats)
    products = partial(
        probes.time_products, _WIDTH, effort.product_rows, threads=threads, repeats=_PRODUCTS
    )
    return _Times(
        steps=[
            probes.time_steps(
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
    """Time a product bound by operand reads, in <= 1/8 of free memory; return seconds per row."""
    width, outputs = _OPERANDS
    allowed = read_memory().available // 8 // (width * BYTES_PER_FEATURE)
    rows = max(min(_OPERAND_ROWS, allowed), 1)
    return (
        probes.time_operands(rows, width, outputs, threads=threads, repeats=_OPERAND_REPEATS) / rows
    )


def _median(rounds: Sequence[_Times]) -> _Times:
    """Return the median over the rounds of each time; of a step, the step with median total."""
    middle = len(rounds) // 2
    steps = zip(*(times.steps for times in rounds), strict=True)
    bfloat16 = [times.bfloat16_s for times in rounds if times.bfloat16_s is not None]
    return _Times(
        steps=[sorted(times, key=attrgetter("step_s"))[middle] for times in steps],
        product_s=statistics.median(times.product_s for times in rounds),
        bfloat16_s=statistics.median(bfloat16) if bfloat16 else None,
        operand_s=statistics.median(times.operand_s for times in rounds),
        sample_s=statistics.median(times.sample_s for times in rounds),
    )


def _rates(effort: _Effort, times: _Times, threads: int) -> dict[str, float]:
    """Return rates and minimum seconds by name, fitted to the times for one number of threads."""
    rates = _propagation_rates(effort, times) | _update_rates(times.steps)
    rates |= _load_rates(effort, times.steps, threads)
    return rates | {"sampled_edges_per_s": 1 / times.sample_s}


def _load_rates(
    effort: _Effort, steps: Sequence[probes.StepTimes], threads: int
) -> dict[str, float]:
    """Return rates of loading and ``load_s``: seconds = ``load_s`` + sum of amounts / rates."""
    cache = cache_bytes()
    work, seconds = _table_loads(effort, threads) if effort.widths else ([], [])
    for step in steps:
        load = load_work(step.workload, step.size, cache=cache)
        amounts = (load.rows, load.missed_rows, load.cached_bytes, load.memory_bytes)
        work.append((*amounts, load.widened, load.written_bytes, load.lookups, 1))
        seconds.append(step.load_s)
    names = (
        *("rows_per_s", "memory_rows_per_s", "cache_bandwidth", "memory_bandwidth"),
        *("widened_per_s", "write_bandwidth", "lookups_per_s", "loads"),
    )
    rates = fit_rates(names, work, seconds)
    return rates | {"load_s": 1 / rates.pop("loads")}


def _table_loads(effort: _Effort, threads: int) -> tuple[list[tuple[float, ...]], list[float]]:
    """Time reads of tables in and out of cache; return amounts of work by rate, and seconds."""
    cache = cache_bytes()
    num_bytes = max(effort.table_bytes, min(2 * cache, _MAX_TABLE))
    buffer = probes.mapped(max(min(num_bytes, read_memory().available // 8), _MIN_TABLE) // 4)
    work: list[tuple[float, ...]] = []
    seconds = []
    for width in effort.widths:
        for cached in (True, False):
            table = buffer[: cache // 64 if cached else len(buffer)]
            table = table[: len(table) // width * width].reshape(-1, width)
            rows = min(_READ_BYTES // (4 * width), 100_000) // 10 * 10
            read = rows * width * 4
            amounts = (rows, 0, read, 0) if cached else (rows, rows, 0, read)
            # Ten rows are summed to one, into a buffer inside the cache.
            work.append((*amounts, 0, 0, 0, 0))
            seconds.append(
                probes.rows_seconds(
                    table, rows, threads=threads, repeats=effort.repeats, cold=not cached
                )
            )
    return work, seconds


def _propagation_rates(effort: _Effort, times: _Times) -> dict[str, float]:
    """Return rates by name, fitted to the probes' seconds of forward and backward propagation.

    Seconds = product seconds + amounts / rates + operations · ``layer_s``.
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
    totals = [sum(chain.from_iterable(of_step), LayerWork()) for of_step in layers]
    names = ("aggregate_bandwidth", "stream_bandwidth", "attention_per_s", "layers")
    work = [(t.read_bytes, t.stream_bytes, t.attention, t.operations) for t in totals]
    product_s = [product_seconds(of_step, **products) for of_step in layers]
    seconds = [step.propagate_s for step in times.steps]
    rates = fit_rates(names, work, seconds, fixed_s=product_s)
    rates |= products | {"layer_s": 1 / rates.pop("layers")}
    if times.bfloat16_s is not None:
        rates["bfloat16_macs_per_s"] = effort.product_rows * _WIDTH**2 / times.bfloat16_s
    return rates


def _update_rates(steps: Sequence[probes.StepTimes]) -> dict[str, float]:
    """Return ``update_s`` and ``update_bandwidth``; seconds = ``update_s`` + bytes / bandwidth."""
    work = [(1.0, step.workload.weight_bytes) for step in steps]
    rates = fit_rates(("updates", "update_bandwidth"), work, [step.update_s for step in steps])
    return rates | {"update_s": 1 / rates.pop("updates")}


def _pair_rates(effort: _Effort, counts: Sequence[int]) -> dict[str, float]:
    """Return the fields of ``Sharing``, measured by two processes, or assumed if there are none."""
    if not effort.processes or counts[-1] < 2:
        return _PAIR_ESTIMATE
    half = max(i for i, count in enumerate(counts) if 2 * count <= counts[-1])
    task = PairTask(
        num_values=_WEIGHTS,
        reduces=_REDUCES,
        probes=probes.STEP_PROBES,
        graph_sizes=_graph_sizes(effort),
        threads=counts[half],
        repeats=4 * effort.repeats,
    )
    pair = time_pair(task)
    per_byte = _seconds_per_byte(pair.sum_s)
    both = list(zip(pair.steps, pair.solo_steps, strict=True))
    return {
        "compute_contention": _slowdown([a.propagate_s / b.propagate_s for a, b in both]),
        "memory_contention": _slowdown([a.load_s / b.load_s for a, b in both]),
        "sync_bandwidth": 1 / per_byte,
        **sync_rates(pair.steps, per_byte),
        # A ring of two processes sends two messages, one after the other.
        "message_latency_s": pair.reduce_s[0] / 2,
        "message_bandwidth": 1 / _seconds_per_byte(pair.reduce_s),
    }


def _seconds_per_byte(seconds: Sequence[float]) -> float:
    """Return the seconds per byte of an all-reduce, from its seconds for both ``_WEIGHTS``."""
    small, large = seconds
    return max(large - small, 1e-9) / (4 * (_WEIGHTS[1] - _WEIGHTS[0]))


def _slowdown(ratios: Sequence[float]) -> float:
    return max(1.0, statistics.median(ratios))
