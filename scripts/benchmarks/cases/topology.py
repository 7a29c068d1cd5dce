"""A topology that exceeds memory: steps of neighbour sampling from a cold disk.

Needs root, for control groups. Each system samples in a separate group, from a cold page cache, in
a process that computes nothing else.

- ``memory``: the file is in the page cache, without a limit.
- ``disk``: memory holds the lists that are read most a byte; the others are on the disk.
- ``nothing held``: the same, and memory holds no list.
- ``mapped``: the file is mapped, and its pages come and go as the system decides.

The last half of the steps counts. A process without a step after ``--limit-s`` seconds is stopped,
and makes fewer than one in that time.
"""

import argparse
import json
import os
import resource
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases.disk import last_half
from benchmarks.cold import MIB, forget_files, limited
from benchmarks.runner import SEEDS, in_subprocess, medians, prepared, seeds_of, show, take

#: Memory of a process beside the topology: interpreter and libraries, and each step on its way.
_PROCESS_MIB, _STEP_MIB = 160, 64


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", type=float, default=0.25, help="of the lists that memory has")
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--systems", default="memory,disk,nothing held,mapped")
    parser.add_argument("--callers", type=int, default=4, help="threads that sample a step each")
    parser.add_argument("--limit-s", type=float, default=60.0)
    take(parser, threads=2, rounds=3, steps=16, store=None)


def choose(store: str, fanouts: list[int], memory_bytes: int, file: str, threads: int) -> float:
    """Write the vertices whose lists memory holds; return the part of reads that is expected."""
    from gnnscale.cache.hotness import inclusion
    from gnnscale.features.disk import choose_resident_lists
    from gnnscale.graph import Graph

    graph = Graph.open(store)
    expected = inclusion(graph, graph.train_idx, fanouts, batch_size=SEEDS, num_threads=threads)
    held = choose_resident_lists(graph, expected.lists, memory_bytes=memory_bytes)
    np.save(file, held.rows)
    return held.expected_hits


def sample(
    store: str,
    fanouts: list[int],
    held: str | None,
    gap: int,
    steps: int,
    limit_s: float,
    threads: int,
    callers: int,
) -> dict[str, float]:
    """Sample steps in this process; ``held`` names the file of vertices, none of a mapped file."""
    from concurrent.futures import ThreadPoolExecutor

    from gnnscale.features.disk import open_lists
    from gnnscale.graph import Graph
    from gnnscale.sampling import NeighborSampler

    graph = Graph.open(store)
    if held is not None:
        vertices = np.load(held) if held else np.zeros(0, graph.indices.dtype)
        graph = replace(graph, lists=open_lists(graph, vertices, max_gap_bytes=gap))
    sampler = NeighborSampler(graph, fanouts=fanouts, num_threads=max(threads // callers, 1))
    start, ended = time.perf_counter(), []

    def give_up() -> None:
        if not ended:
            print(json.dumps({"steps_per_s": 1 / limit_s, "steps": 0}), flush=True)
            os._exit(0)

    watch = threading.Timer(limit_s, give_up)
    watch.daemon = True
    watch.start()

    def step(number: int) -> int:
        if time.perf_counter() - start > limit_s:
            return 0
        batch = sampler.sample(seeds_of(graph, number), number)
        ended.append(time.perf_counter() - start)
        return batch.num_edges

    with ThreadPoolExecutor(callers) as pool:
        edges = sum(pool.map(step, range(steps)))
    counters = {} if held is None else graph.lists.take_counters()
    return {
        "steps_per_s": 1 / last_half(ended),
        "steps": len(ended),
        "edges": edges,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **{f"{name}_a_step": each / len(ended) for name, each in counters.items()},
    }


def run(options: argparse.Namespace) -> Any:
    from gnnscale.features.disk import measure_disk

    store = options.store or prepared("dataset=rmat_products")
    fanouts = [int(each) for each in options.fanouts.split(",")]
    indices = Path(store) / "indices.npy"
    part = round(options.part * os.path.getsize(indices))
    limit = part + os.path.getsize(Path(store) / "indptr.npy") + _PROCESS_MIB * MIB
    limit += options.callers * _STEP_MIB * MIB
    held = Path(f"/tmp/bench-held-{os.getpid()}.npy")
    expected = in_subprocess(choose, store, fanouts, part, held, options.threads)
    gap = measure_disk(indices).max_gap_bytes
    files = {"memory": None, "mapped": None, "disk": held, "nothing held": ""}
    answers: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name in options.systems.split(","):
            given = (store, fanouts, files[name], gap, options.steps, options.limit_s)
            given = (*given, options.threads, options.callers)
            forget_files()
            if name == "memory":
                indices.read_bytes()
            with limited(None if name == "memory" else limit) as prefix:
                found = in_subprocess(sample, *given, prefix=prefix)
            answers.setdefault(name, []).append(found)
    held.unlink()
    figures = {name: medians(found) for name, found in answers.items()}
    slowest = min(each["steps_per_s"] for each in figures.values())
    rows = []
    for name, each in figures.items():
        rate, read = each["steps_per_s"], each.get("bytes_read_a_step")
        few = "" if each["steps"] else "< "
        row = [name, f"{few}{rate:.3g}", f"{rate / slowest:,.1f}x", f"{each['steps']:.0f}"]
        row += [f"{each['peak_mib']:,.0f}" if each["steps"] else ""]
        if read is not None:
            total = each["hits_a_step"] + each["misses_a_step"]
            row += [f"{each['hits_a_step'] / total:.0%}", f"{read / 1e6:,.0f}"]
            row += [f"{each['requests_a_step']:,.0f}", f"{each['waited_s_a_step']:.2f}"]
        rows.append([*row, *[""] * (9 - len(row))])
    columns = ["system", "steps a second", "ratio", "steps", "peak MiB", "in memory"]
    columns += ["MB a step", "requests", "waited s"]
    title = f"{os.path.getsize(indices) / 1e6:,.0f} MB of lists, group of {limit / 1e6:,.0f} MB"
    show(title, columns, rows)
    return {**figures, "expected_hits": expected}
