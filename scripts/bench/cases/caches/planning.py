"""Seconds and memory of planning Legion's caches for a large graph of synthetic hotness."""

import argparse
import resource
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.cases.caches.runs import gpus
from bench.runner import in_subprocess, show, timed
from gnnscale.cache import CacheTask, Legion
from gnnscale.cache.hotness.presampled import DeviceReads, Presampled
from gnnscale.cache.legion.cost_model import best_num_lists, curve
from gnnscale.cache.legion.cslp import candidates
from gnnscale.cache.legion.legion import clique_cost

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
    parts = [key for key in found[0] if key.startswith("s_")]
    columns = ["rows a device", "s", "CPU s", *(f"{key[2:]} CPU s" for key in parts)]
    columns += ["bytes a vertex", "with degrees", "with hotness"]
    rows = []
    for each in found:
        seconds = (f"{each[key]:.2f}" for key in ("seconds", "cpu", *parts))
        sizes = (f"{each[key]:.1f}" for key in ("plan_bytes", "degree_bytes", "all_bytes"))
        rows.append([f"{100 * each['ratio']:.4g} %", *seconds, *sizes])
    title = f"planning {options.vertices:,} vertices, a clique of {options.clique}"
    show(f"{title}, medians of {options.rounds}", columns, rows)
    return {"figures": found, "missed": missed}


def worker(ratio: float, num: int, size: int, num_threads: int) -> dict[str, float]:
    """Plan once as Legion does, and once more in steps; return figures."""
    before = resident()
    task = synthetic(num, ratio, tuple(range(size)), num_threads)
    inputs = resident()
    matrices = sum(each.rows.nbytes + each.lists.nbytes for each in task.presampled.reads.values())
    cpu = time.process_time()
    seconds, _ = timed(Legion(nvlink="dgx_a100").plan, task)
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        **{"seconds": seconds, "cpu": cpu, "plan_bytes": (peak - inputs) / num},
        **{"degree_bytes": (peak - before - matrices) / num, "all_bytes": (peak - before) / num},
    }
    return figures | in_steps(task)


def in_steps(task: CacheTask) -> dict[str, float]:
    times = [time.process_time()]

    def lap() -> None:
        times.append(time.process_time())

    (clique,) = task.cliques
    found = candidates(task, clique, task.presampled)
    lap()
    cost = clique_cost(task, clique, found)
    lap()
    num_lists = best_num_lists(cost)
    curve(cost)
    lap()
    rooms = np.array([device.budget_bytes for device in task.devices], np.int64)
    lists = found.share_lists(task, clique, num_lists, rooms)
    found.share_rows(task, clique, rooms - lists.bytes)
    lap()
    names = ("s_candidates", "s_cost", "s_search", "s_share")
    return dict(zip(names, np.diff(times).tolist(), strict=True))


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
    graph = SimpleNamespace(
        **{"name": "synthetic", "num_vertices": num, "indptr": indptr},
        **{"indices": np.empty(0, np.int32), "num_features": _FEATURES},
        feature_dtype="float32",
    )
    devices = gpus(clique, budget_bytes=int(ratio * num) * _FEATURES * 4)
    task = CacheTask(
        **{"graph": graph, "devices": devices, "num_devices": len(clique), "cliques": (clique,)},
        **{"parts": None, "draws": SimpleNamespace(exact=True, num_threads=num_threads)},
        **{"num_epochs": 1, "batch_size": 1, "fanouts": None},
        **{"aggregated_row_bytes": None, "seed": 0},
    )
    vars(task).update(out_degrees=degrees)
    vars(task)["presampled"] = Presampled(reads=reads, num_epochs=1, num_threads=num_threads)
    return task


def resident() -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
