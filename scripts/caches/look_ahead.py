"""Look-ahead caches on one device against caches whose rows stay."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarking import show

from caches.runs import CacheTask, draw, graphs, plan, run_of, total_rows, with_caches
from gnnscale.cache.belady import Counts, count_hits

#: Policies whose rows stay; on one device Quiver is PaGraph, and Quiver-plus GNNLab.
STATIC = ("random", "aligraph", "pagraph", "pagerank", "inclusion", "gnnlab", "oracle_static")
WINDOW = 8
#: Bytes over the link must be so much less than those of every cache whose rows stay.
MIN_SAVED = 0.15


def belady(options: argparse.Namespace) -> dict[str, Any]:
    """Count hits over an epoch of one device."""
    found, missed = [], []
    for graph in graphs(options.store):
        run = draw(run_of(graph, None, num_devices=1, num_threads=options.threads))
        batches = [each.batch.input_vertices for each in run.draws.epoch(0)]
        for ratio in options.ratios or [0.05, 0.1]:
            task = with_caches(run, ratio)
            of = static(task) | dynamic(task, batches)
            rows = [[name, *cells(each, of["oracle_static"])] for name, each in of.items()]
            drawn = f"{task.batch_size:,} seeds x {len(batches)} steps"
            title = f"{graph.name}, 1 GPU, {100 * ratio:.4g} % of rows, {drawn}"
            show(title, ["policy", "hit rate", "GB over the link", "/ oracle_static"], rows)
            found.append({"graph": graph.name, "ratio": ratio, "policies": of})
            for name in (name for name in of if name.startswith("belady")):
                saved = {
                    each: 1 - of[name]["link_bytes"] / of[each]["link_bytes"] for each in STATIC
                }
                least = min(saved, key=lambda each: saved[each])
                line = f"{title}: {name} saves {saved[least]:.1%} of the bytes of {least}"
                print(line)
                if saved[least] < MIN_SAVED:
                    missed.append(line)
    return {"figures": found, "missed": missed}


def cells(figures: dict[str, float], bound: dict[str, float]) -> list[str]:
    return [
        f"{figures['hit_rate']:.2%}",
        f"{figures['link_bytes'] / 1e9:.3f}",
        f"{figures['link_bytes'] / bound['link_bytes']:.3f}",
    ]


def static(task: CacheTask) -> dict[str, dict[str, float]]:
    """Return the figures of caches whose rows stay; filling them is not counted."""
    found = {}
    for name in STATIC:
        _, traffic = plan(task, name)
        hits, misses = total_rows(traffic)
        found[name] = figures_of(task, hits, misses)
    return found


def dynamic(task: CacheTask, batches: list[Any]) -> dict[str, dict[str, float]]:
    """Return the figures of caches that are empty at first."""
    rows, whole = task.devices[0].budget_bytes // task.row_bytes, len(batches)
    kinds = {
        "match": (0, 1, True),
        f"belady, window {WINDOW}": (rows, WINDOW, False),
        "belady, whole epoch": (rows, whole, False),
        f"belady + match, window {WINDOW}": (rows, WINDOW, True),
        "belady + match, whole epoch": (rows, whole, True),
    }
    found = {}
    for name, (capacity, window, match) in kinds.items():
        counts: Counts = count_hits(
            batches,
            num_vertices=task.graph.num_vertices,
            capacity=capacity,
            window=window,
            priority=task.out_degrees,
            match=match,
            num_threads=task.num_threads,
        )
        found[name] = figures_of(task, counts.num_hits + counts.num_previous, counts.num_misses)
    return found


def figures_of(task: CacheTask, hits: int, misses: int) -> dict[str, float]:
    return {"hit_rate": hits / max(hits + misses, 1), "link_bytes": misses * task.row_bytes}
