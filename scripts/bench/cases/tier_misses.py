"""Rows that a memory misses: Belady over a window against LRU and SIEVE, on the same mini-batches.

Nothing is timed. Every policy serves the same rows of the same steps, from an empty memory. LRU
and SIEVE (Zhang et al., NSDI 2024) see the rows of a step one after the other, as GraphBolt's
caches do; Belady over a window is what ``features=disk`` does, and over all steps no policy misses
fewer.
"""

import argparse
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from bench.runner import SEEDS, open_graph, seeds_of, show, take

PARTS = (0.1, 0.25, 0.5)
WINDOWS = (1, 2, 4, 8, 16)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    take(parser, steps=48, threads=2, store=None)


def lru(batches: Sequence[Any], capacity: int) -> int:
    """Return the misses if the row that was read least recently leaves."""
    memory: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for batch in batches:
        for row in batch.tolist():
            if row in memory:
                memory.move_to_end(row)
                continue
            misses += 1
            memory[row] = None
            if len(memory) > capacity:
                memory.popitem(last=False)
    return misses


def sieve(batches: Sequence[Any], capacity: int) -> int:
    """Return the misses if a hand passes from old rows to new, and takes the first unread one."""
    newer: dict[int, int | None] = {}
    older: dict[int, int | None] = {}
    was_read: dict[int, bool] = {}
    newest = oldest = hand = None
    misses = 0
    for batch in batches:
        for row in batch.tolist():
            if row in was_read:
                was_read[row] = True
                continue
            misses += 1
            if len(was_read) == capacity:
                at = oldest if hand is None else hand
                while was_read[at]:
                    was_read[at] = False
                    at = oldest if newer[at] is None else newer[at]
                after, before = newer.pop(at), older.pop(at)
                hand = after
                newest = before if after is None else newest
                oldest = after if before is None else oldest
                if after is not None:
                    older[after] = before
                if before is not None:
                    newer[before] = after
                del was_read[at]
            newer[row], older[row] = None, newest
            if newest is not None:
                newer[newest] = row
            newest = row
            oldest = row if oldest is None else oldest
            was_read[row] = False
    return misses


def run(options: argparse.Namespace) -> Any:
    from gnnscale.cache.belady import count_hits
    from gnnscale.cache.hotness.degree import out_degree
    from gnnscale.sampler import NeighborSampler

    graph = open_graph(options.store)
    sampler = NeighborSampler(graph, fanouts=options.fanouts, num_threads=options.threads)
    batches = [
        sampler.sample(seeds_of(graph, step), step).input_vertices for step in range(options.steps)
    ]
    total, priority = sum(map(len, batches)), out_degree(graph)
    found: dict[str, dict[str, float]] = {}
    for part in PARTS:
        capacity = int(part * graph.num_vertices)
        each = found[f"{part:.0%}"] = {
            "LRU": lru(batches, capacity) / total,
            "SIEVE": sieve(batches, capacity) / total,
        }
        for window in (*WINDOWS, options.steps - 1):
            counts = count_hits(
                batches,
                num_vertices=graph.num_vertices,
                capacity=capacity,
                window=window,
                priority=priority,
                num_threads=options.threads,
            )
            name = f"Belady, {window} steps"
            each[name] = counts.num_misses / total
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{each[name]:.1%}" for each in found.values())] for name in names]
    title = f"rows missed in {options.steps} steps of {SEEDS:,} seeds, by the part in memory"
    show(title, ["policy", *found], rows)
    return found
