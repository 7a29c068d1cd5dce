"""Seconds of pre-sampling, of reading rows through a cache, and of planning; and its memory."""

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.cases.caches.runs import CacheTask, gpus, graphs, run_of
from benchmarks.cases.partition import resident
from benchmarks.runner import FANOUTS, in_subprocess, medians, show, timed
from gnnscale.cache import Legion
from gnnscale.cache.hotness.presampled import DeviceReads, Presampled, presample
from gnnscale.features import HostFeatures
from gnnscale.features.cached import CachedFeatures, rank_slots
from gnnscale.sampling import NeighborSampler

#: The most that pre-sampling may take, as a part of sampling.
MAX_PRESAMPLING = 1.0
#: The most that a cache may add, as a part of half a gather without one.
MAX_OVERHEAD = 0.2
_BATCHES = 5
#: Rows of a batch at most.
_ROWS = 129_000


def in_turn(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of each of ``works``, in turn, and those of CPUs."""
    times: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            cpu = time.process_time()
            seconds, _ = timed(work)
            times[name].append({"seconds": seconds, "cpu": time.process_time() - cpu})
    return {name: medians(each[1:]) for name, each in times.items()}  # the first warms up


def compared(
    options: argparse.Namespace,
    columns: list[str],
    limit: float,
    figure: Callable[[float, float], float],
    cases: Iterator[tuple[dict[str, Any], list[str], dict[str, Callable[[], Any]]]],
    unit: float = 1.0,
) -> dict[str, Any]:
    """Time two works of each case in turn; show seconds in ``unit``, and what ``figure`` makes.

    A figure of the seconds of both works may be ``limit`` at most.
    """
    found, rows, missed = [], [], []
    for label, cells, works in cases:
        took = in_turn(works, options.rounds)
        first, second = took.values()
        figures = {key: figure(first[key], second[key]) for key in ("seconds", "cpu")}
        found.append({**label, **took, "figures": figures})
        times = [f"{took[name][key] / unit:.2f}" for key in figures for name in works]
        rows.append([*cells, *times, *(f"{each:+.3f}" for each in figures.values())])
        if figures["seconds"] > limit:
            missed.append(f"{', '.join(cells)}: {figures['seconds']:.3f}")
    show(f"medians of {options.rounds} rounds", columns, rows)
    return {"figures": found, "missed": missed}


def presampling(options: argparse.Namespace) -> dict[str, Any]:
    """Pre-sample an epoch of one device, and sample the same epoch step by step."""

    def cases() -> Iterator[Any]:
        for graph, num_threads in product(graphs(options.store), (1, 2)):
            run = run_of(graph, None, num_devices=1, num_threads=num_threads)
            sampler = NeighborSampler(graph, fanouts=FANOUTS, seed=0, num_threads=num_threads)
            works = {
                "sampling": partial(sample, run, sampler),
                "pre-sampling": partial(presample, run.draws, [1], devices=(0,)),
            }
            steps = run.draws.steps_per_epoch
            label = {"graph": graph.name, "threads": num_threads, "steps": steps}
            yield label, [graph.name, str(num_threads), str(steps)], works

    columns = ["graph", "threads", "steps", "sampling s", "pre-sampling s", "sampling CPU s"]
    columns += ["pre-sampling CPU s", "ratio", "by CPU"]
    return compared(options, columns, MAX_PRESAMPLING, lambda a, b: b / a, cases())


def sample(run: CacheTask, sampler: NeighborSampler) -> None:
    for number, step in enumerate(run.draws._order.epoch(1), run.draws.steps_per_epoch):
        sampler.sample(step.seeds, number)


def lookup(options: argparse.Namespace) -> dict[str, Any]:
    """Read the same batches with half of their rows in a cache, and without one."""

    def cases() -> Iterator[Any]:
        for graph in graphs(options.store):
            run = run_of(graph, None, num_devices=1, num_threads=2)
            drawn = islice(run.draws.epoch(0), _BATCHES)
            batches = [draw.batch.input_vertices[:_ROWS] for draw in drawn]
            host = HostFeatures.of(graph)
            cached, rate = half_cached(host, batches)
            size = statistics.mean(map(len, batches))
            for num_threads in (1, 2):
                works = {
                    "host": partial(gather, host, batches, num_threads),
                    "cached": partial(gather, cached, batches, num_threads),
                }
                label = {"graph": graph.name, "threads": num_threads, "rows": size}
                cells = [graph.name, str(num_threads), f"{size:,.0f}", f"{rate:.1%}"]
                yield label | {"hit_rate": rate}, cells, works

    columns = ["graph", "threads", "rows", "hits", "host ms", "cached ms", "host CPU ms"]
    columns += ["cached CPU ms", "of half a gather", "by CPU"]
    over, unit = (lambda a, b: 2 * (b / a - 1)), _BATCHES / 1000
    return compared(options, columns, MAX_OVERHEAD, over, cases(), unit)


def half_cached(host: HostFeatures, batches: list[Any]) -> tuple[CachedFeatures, float]:
    """Return a store that has the vertices of most batches, as many as make half of all rows."""
    counts = np.bincount(np.concatenate(batches), minlength=host.num_rows)
    order = np.argsort(-counts, kind="stable")
    kept = order[: np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)]
    stored, _ = host.stored
    caches, slots = [np.ascontiguousarray(stored[kept])], rank_slots(host.num_rows, [kept])
    return CachedFeatures(host, caches, slots, own=0), counts[kept].sum() / counts.sum()


def gather(store: Any, batches: list[Any], num_threads: int) -> None:
    for batch in batches:
        store.gather(batch, dtype=torch.float32, num_threads=num_threads)


_FEATURES = 100
_MIN_DEGREE = 8
#: Vertices whose numbers are made at once.
_SLICE = 1 << 22
MAX_SECONDS, MAX_BYTES = 10, 80


def planning(options: argparse.Namespace) -> dict[str, Any]:
    """Plan in processes of their own, so that their peak memory is that of the plan."""
    found, missed = [], []
    for ratio in options.ratios or [0.05, 0.1, 0.25, 0.5, 1]:
        given = (ratio, options.vertices, options.clique, options.threads)
        rounds = [in_subprocess(worker, *given) for _ in range(options.rounds)]
        best = sorted(rounds, key=lambda each: each["seconds"])[len(rounds) // 2]
        found.append({"ratio": ratio, **best, "rounds": rounds})
        if best["seconds"] > MAX_SECONDS:
            missed.append(f"{ratio}: {best['seconds']:.1f} s")
        if best["plan_bytes"] > MAX_BYTES:
            missed.append(f"{ratio}: {best['plan_bytes']:.1f} bytes a vertex")
    columns = ["rows a device", "s", "CPU s", "bytes a vertex", "with degrees", "with hotness"]
    rows = []
    for each in found:
        seconds = (f"{each[key]:.2f}" for key in ("seconds", "cpu"))
        sizes = (f"{each[key]:.1f}" for key in ("plan_bytes", "degree_bytes", "all_bytes"))
        rows.append([f"{100 * each['ratio']:.4g} %", *seconds, *sizes])
    title = f"planning {options.vertices:,} vertices, a clique of {options.clique}"
    show(f"{title}, medians of {options.rounds}", columns, rows)
    return {"figures": found, "missed": missed}


def worker(ratio: float, num: int, size: int, num_threads: int) -> dict[str, float]:
    """Plan once as Legion does; return figures."""
    before = resident(os.getpid())
    task = synthetic(num, ratio, tuple(range(size)), num_threads)
    inputs = resident(os.getpid())
    matrices = sum(each.rows.nbytes + each.lists.nbytes for each in task.presampled.reads.values())
    cpu = time.process_time()
    seconds, _ = timed(Legion(nvlink="dgx_a100").plan, task)
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        **{"seconds": seconds, "cpu": cpu, "plan_bytes": (peak - inputs) / num},
        **{"degree_bytes": (peak - before - matrices) / num, "all_bytes": (peak - before) / num},
    }


def synthetic(num: int, ratio: float, clique: tuple[int, ...], num_threads: int) -> CacheTask:
    """Return a task with Zipf counts in random order, and degrees that go with them."""
    generator = np.random.Generator(np.random.Philox(0))
    degrees, reads = np.empty(num, np.int32), {}
    for device in clique:
        reads[device] = DeviceReads(rows=np.empty(num, np.int32), lists=np.empty(num, np.int32))
    for first in range(0, num, _SLICE):
        part = slice(first, min(first + _SLICE, num))
        size = part.stop - part.start
        # The counts of ranks 1, 2, ... of a Zipf law, in random order.
        heat = num / generator.integers(1, num, size)
        degrees[part] = np.minimum(heat + _MIN_DEGREE, 100_000)
        for each in reads.values():
            luck = generator.random(size, np.float32)
            each.rows[part] = np.minimum(heat * luck / 2, 2_000)
            each.lists[part] = np.minimum(heat * luck * 2, 50_000)
    for each in reads.values():
        each.num_rows = int(each.rows.sum(dtype=np.int64))
        each.num_list_reads = int(each.lists.sum(dtype=np.int64))
    indptr = np.zeros(num + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    rows = {"num_features": _FEATURES, "row_bytes": 4 * _FEATURES, "feature_dtype": "float32"}
    lists = {"indptr": indptr, "indices": np.empty(0, np.int32)}
    graph: Any = SimpleNamespace(name="synthetic", num_vertices=num, **lists, **rows)
    draws: Any = SimpleNamespace(exact=True, num_threads=num_threads)
    unused: Any = dict.fromkeys(("parts", "fanouts", "aggregated_row_bytes"))
    task = CacheTask(
        graph=graph,
        devices=gpus(clique, budget_bytes=int(ratio * num) * _FEATURES * 4),
        cliques=(clique,),
        draws=draws,
        **{"num_devices": len(clique), "num_epochs": 1, "batch_size": 1, "seed": 0},
        **unused,
    )
    vars(task).update(out_degrees=degrees)
    vars(task)["presampled"] = Presampled(reads=reads, num_epochs=1, num_threads=num_threads)
    return task
