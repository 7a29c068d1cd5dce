"""Rows that a memory misses: Belady over a window against LRU and SIEVE, on the same mini-batches.

Every policy serves the same rows, from an empty memory. LRU and SIEVE (Zhang et al., NSDI 2024) see
the rows of a step one after the other; Belady over a window is what ``features=disk`` does. The
second table is of two tiers: what a device lacks is what host memory is asked for. Its bound is
Belady over all steps, in one memory of both sizes.
"""

import argparse
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from benchmarks.runner import SEEDS, open_graph, seeds_of, show, take

PARTS = (0.1, 0.25, 0.5)
#: Of all rows, those of a device, and the steps that both tiers look ahead.
DEVICE_PARTS = (0.05, 0.1)
BOTH_WINDOWS = 8
POLICIES = ("pagraph", "belady", "belady_match")
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
    newer: dict[Any, Any] = {None: None}  # None stands beyond both ends
    older: dict[Any, Any] = {None: None}
    was_read: dict[int, bool] = {}
    hand, misses = None, 0
    for batch in batches:
        for row in batch.tolist():
            if row in was_read:
                was_read[row] = True
                continue
            misses += 1
            if len(was_read) == capacity:
                hand = newer[None] if hand is None else hand
                while was_read[hand]:
                    was_read[hand] = False
                    hand = newer[None] if newer[hand] is None else newer[hand]
                del was_read[hand]
                after, before = newer.pop(hand), older.pop(hand)
                newer[before], older[after] = after, before
                hand = after
            newest = older[None]
            newer[newest] = older[None] = row
            newer[row], older[row] = None, newest
            was_read[row] = False
    return misses


def missed(
    graph: Any, batches: Sequence[Any], part: float, window: int, threads: int, *, above: Any = None
) -> int:
    """Return the rows that Belady misses, in a memory of this part below the cache ``above``."""
    from gnnscale.cache.belady import count_hits
    from gnnscale.cache.hotness.degree import out_degree

    priority = out_degree(graph)
    counts = count_hits(
        batches,
        num_vertices=graph.num_vertices,
        capacity=int(part * graph.num_vertices),
        window=window,
        priority=priority if above is None else above.host_priority(priority),
        num_threads=threads,
    )
    return int(counts.num_misses)


def cache_of(graph: Any, part: float, policy: str, window: int) -> Any:
    """Return the cache of a device that has this part of all rows."""
    import numpy as np

    from gnnscale.cache.hotness.degree import out_degree
    from gnnscale.cache.plan import LookAhead
    from gnnscale.features.tiered.policies import DeviceCacheFilter

    num_rows, priority = int(part * graph.num_vertices), out_degree(graph)
    hottest = np.argsort(-priority, kind="stable")[:num_rows]
    ahead = LookAhead(window=window, num_rows=num_rows, match=policy == "belady_match")
    return DeviceCacheFilter(
        num_vertices=graph.num_vertices,
        kept=[np.sort(hottest).astype(graph.indices.dtype)] if policy == "pagraph" else [],
        look_ahead=None if policy == "pagraph" else ahead,
        priority=priority,
    )


def stacked(graph: Any, batches: Sequence[Any], threads: int) -> dict[str, dict[str, float]]:
    """Return the parts of all rows that are read from the disk, by sizes and policies.

    Those that fill a cache whose rows stay are read as well.
    """
    total, every = sum(map(len, batches)), len(batches) - 1
    found = {}
    for device in DEVICE_PARTS:
        caches = {each: cache_of(graph, device, each, BOTH_WINDOWS) for each in POLICIES}
        caches["belady, all steps"] = cache_of(graph, device, "belady", every)
        asked = {name: each.lacks(batches) for name, each in caches.items()}
        for host in PARTS:
            misses = {"host memory alone": missed(graph, batches, host, BOTH_WINDOWS, threads)}
            for name, rest in asked.items():
                above = caches[name]
                window = every if name not in POLICIES else BOTH_WINDOWS
                filled = sum(map(len, above.kept))
                misses[name] = filled + missed(graph, rest, host, window, threads, above=above)
            misses["bound"] = missed(graph, batches, device + host, every, threads)
            shares = {name: each / total for name, each in misses.items()}
            found[f"{device:.0%} over {host:.0%}"] = shares
    return found


def run(options: argparse.Namespace) -> Any:
    from gnnscale.sampling import NeighborSampler

    graph = open_graph(options.store)
    sampler = NeighborSampler(graph, fanouts=options.fanouts, num_threads=options.threads)
    batches = [
        sampler.sample(seeds_of(graph, step), step).input_vertices for step in range(options.steps)
    ]
    total = sum(map(len, batches))
    found: dict[str, dict[str, float]] = {}
    for part in PARTS:
        capacity = int(part * graph.num_vertices)
        each = found[f"{part:.0%}"] = {
            "LRU": lru(batches, capacity) / total,
            "SIEVE": sieve(batches, capacity) / total,
        }
        for window in (*WINDOWS, options.steps - 1):
            misses = missed(graph, batches, part, window, options.threads)
            each[f"Belady, {window} steps"] = misses / total
    _show(f"rows missed in {options.steps} steps of {SEEDS:,} seeds, by the part in memory", found)
    both = stacked(graph, batches, options.threads)
    _show("rows read from the disk, by a device's cache and its part over that of memory", both)
    return {"memory": found, "stacked": both}


def _show(title: str, found: dict[str, dict[str, float]]) -> None:
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{each[name]:.1%}" for each in found.values())] for name in names]
    show(title, ["policy", *found], rows)
