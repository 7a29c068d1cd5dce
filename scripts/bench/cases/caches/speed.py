"""Seconds of pre-sampling against sampling, and of reading rows through a cache against none."""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from bench import runner
from bench.cases.caches.runs import CacheTask, graphs, run_of
from bench.runner import FANOUTS, medians, show
from gnnscale.cache.cached_features import CachedFeatures, slots_of
from gnnscale.cache.hotness.presampled import presample
from gnnscale.feature import HostFeatures
from gnnscale.sampler import NeighborSampler

#: The most that pre-sampling may take, as a part of sampling.
MAX_PRESAMPLING = 1.0
#: The most that a cache may add, as a part of half a gather without one.
MAX_OVERHEAD = 0.2
_BATCHES = 5
#: Rows of a batch at most.
_ROWS = 129_000


def timed(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of each of ``works``, in turn, and those of CPUs."""
    times: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            cpu = time.process_time()
            seconds, _ = runner.timed(work)
            times[name].append({"seconds": seconds, "cpu": time.process_time() - cpu})
    return {name: medians(each[1:]) for name, each in times.items()}  # the first warms up


def presampling(options: argparse.Namespace) -> dict[str, Any]:
    """Pre-sample an epoch of one device, and sample the same epoch step by step."""
    found, rows, missed = [], [], []
    for graph in graphs(options.store):
        for num_threads in (1, 2):
            run = run_of(graph, None, num_devices=1, num_threads=num_threads)
            sampler = NeighborSampler(graph, fanouts=FANOUTS, seed=0, num_threads=num_threads)
            works = {
                "sampling": partial(sample, run, sampler),
                "pre-sampling": partial(presample, run.draws, [1], devices=(0,)),
            }
            took = timed(works, options.rounds)
            ratios = {k: took["pre-sampling"][k] / took["sampling"][k] for k in ("seconds", "cpu")}
            steps = run.draws.steps_per_epoch
            label = {"graph": graph.name, "threads": num_threads, "steps": steps}
            found.append({**label, **took, "ratios": ratios})
            cells = [graph.name, str(num_threads), str(steps)]
            for key, ratio in ratios.items():
                cells += [*(f"{took[name][key]:.2f}" for name in works), f"{ratio:.3f}"]
            rows.append(cells)
            if ratios["seconds"] > MAX_PRESAMPLING:
                missed.append(f"{graph.name}, {num_threads} threads: {ratios['seconds']:.3f}")
    columns = ["threads", "steps", "sampling s", "pre-sampling s", "ratio"]
    cpu = ["sampling CPU s", "pre-sampling CPU s", "ratio"]
    show(f"an epoch, medians of {options.rounds} rounds", ["graph", *columns, *cpu], rows)
    return {"figures": found, "missed": missed}


def sample(run: CacheTask, sampler: NeighborSampler) -> None:
    for number, step in enumerate(run.draws._order.epoch(1), run.draws.steps_per_epoch):
        sampler.sample(step.seeds, number)


def lookup(options: argparse.Namespace) -> dict[str, Any]:
    """Read the same batches with half of their rows in a cache, and without one."""
    found, rows, missed = [], [], []
    for graph in graphs(options.store):
        run = run_of(graph, None, num_devices=1, num_threads=2)
        drawn = islice(run.draws.epoch(0), _BATCHES)
        batches = [draw.batch.input_vertices[:_ROWS] for draw in drawn]
        host = HostFeatures.of(graph)
        cached, rate = half_cached(host, batches)
        for num_threads in (1, 2):
            works = {
                "host": partial(gather, host, batches, num_threads),
                "cached": partial(gather, cached, batches, num_threads),
            }
            took = timed(works, options.rounds)
            over = {k: 2 * (took["cached"][k] / took["host"][k] - 1) for k in ("seconds", "cpu")}
            size = statistics.mean(map(len, batches))
            label = {"graph": graph.name, "threads": num_threads, "rows": size, "hit_rate": rate}
            found.append({**label, **took, "overhead": over})
            cells = [graph.name, str(num_threads), f"{size:,.0f}", f"{rate:.1%}"]
            cells += [f"{1000 * took[name]['seconds'] / _BATCHES:.2f}" for name in works]
            rows.append([*cells, *(f"{each:+.1%}" for each in over.values())])
            if over["seconds"] > MAX_OVERHEAD:
                missed.append(f"{graph.name}, {num_threads} threads: {over['seconds']:.1%}")
    columns = ["threads", "rows", "hits", "host ms", "cached ms", "of half a gather", "by CPU"]
    show(f"a gather, medians of {options.rounds} rounds", ["graph", *columns], rows)
    return {"figures": found, "missed": missed}


def half_cached(host: HostFeatures, batches: list[Any]) -> tuple[CachedFeatures, float]:
    """Return a store that has the vertices of most batches, as many as make half of all rows."""
    counts = np.bincount(np.concatenate(batches), minlength=host.num_rows)
    order = np.argsort(-counts, kind="stable")
    kept = order[: np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)]
    stored, _ = host.stored
    caches, slots = [np.ascontiguousarray(stored[kept])], slots_of(host.num_rows, [kept])
    store = CachedFeatures(host, caches, slots, own=0)
    return store, counts[kept].sum() / counts.sum()


def gather(store: Any, batches: list[Any], num_threads: int) -> None:
    for batch in batches:
        store.gather(batch, dtype=torch.float32, num_threads=num_threads)
