"""Batches sampled over the stores of PaGraph's parts, held against those over the whole graph.

Every array of every batch has to be the same. Shows what making the parts took beside what was
forecast, how even they are, and how much they replicate.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import FANOUTS, SEEDS, open_graph, take, timed
from gnnscale.core.hardware import usable_cores
from gnnscale.core.metrics import watch_peak
from gnnscale.graph import Graph
from gnnscale.partition import UNREACHED, PaGraph, Parts, write_part
from gnnscale.sampling import MiniBatch, NeighborSampler


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--batches", type=int, default=1000, help="for each part")
    take(parser, store=None, threads=usable_cores(), folder=None)


def run(options: argparse.Namespace) -> Any:
    graph = open_graph(options.store)
    parts, figures = make(graph, options.parts, options.threads)
    print_figures("parts", figures)
    batches, missed = [], []
    for index in range(parts.num_parts):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            seconds, _ = timed(write_part, graph, parts, index, Path(folder, "part"))
            part = Graph.open(Path(folder, "part"))
            found = compare(graph, part, options.batches, options.threads)
            found |= {"write_s": round(seconds, 1), "num_edges": part.num_edges}
            blocks = sum(file.stat().st_blocks for file in Path(folder).rglob("*.npy"))
            found["disk_bytes"] = 512 * blocks
            print_figures(f"part {index}", found)
            batches.append(found)
            missed += [f"part {index}: batches differ"] * bool(found["unequal_arrays"])
    return {"parts": figures, "batches": batches, "missed": missed}


def make(graph: Graph, num_parts: int, num_threads: int) -> tuple[Parts, dict[str, Any]]:
    """Make the parts; return them, and what that took and gave."""
    given = {"num_parts": num_parts, "num_hops": len(FANOUTS), "num_threads": num_threads}
    with watch_peak() as peak:
        before = peak.initial
        forecast = PaGraph().forecast(graph, **given)
        cpu = time.process_time()
        seconds, parts = timed(partial(PaGraph().assign, graph, **given))
        cpu = time.process_time() - cpu
    own = [len(each) for each in parts.train_vertices(graph.train_idx)]
    reached = parts.hops != UNREACHED
    took = {"seconds": seconds, "cpu_s": cpu, "forecast_s": forecast.seconds}
    replicated = float(reached.sum() / reached.any(axis=0).sum())
    return parts, {
        **{name: round(each, 1) for name, each in took.items()},
        **{"peak_rss_bytes": peak.bytes, "topology_bytes": graph.topology_bytes},
        "forecast_rss_bytes": None if before is None else before + forecast.memory_bytes,
        **{"train_balance": max(own) * len(own) / sum(own), "replication_factor": replicated},
        "notes": parts.notes,
    }


def compare(graph: Graph, part: Graph, num_batches: int, num_threads: int) -> dict[str, int]:
    """Sample the same batches of both; count the arrays, and those that differ."""
    samplers = [
        NeighborSampler(each, fanouts=FANOUTS, num_threads=num_threads) for each in (graph, part)
    ]
    num_arrays = num_unequal = num_edges = 0
    for step in range(num_batches):
        generator = np.random.default_rng(step)
        size = min(SEEDS, len(part.train_idx))
        seeds = part.train_idx[generator.choice(len(part.train_idx), size, replace=False)]
        whole, own = (sampler.sample(seeds, step) for sampler in samplers)
        for expected, found in zip(arrays_of(whole), arrays_of(own), strict=True):
            num_arrays += 1
            num_unequal += not np.array_equal(expected, found)
        num_edges += whole.num_edges
    counts = {"arrays": num_arrays, "unequal_arrays": num_unequal}
    return {"batches": num_batches, **counts, "sampled_edges": num_edges}


def arrays_of(batch: MiniBatch) -> list[Any]:
    of_blocks = [(each.indptr, each.indices, each.edge_vertices) for each in batch.blocks]
    arrays = [batch.input_vertices, *(array for each in of_blocks for array in each)]
    return [each for each in arrays if each is not None]


def print_figures(title: str, figures: dict[str, Any]) -> None:
    print(title, flush=True)
    for name, value in figures.items():
        print(f"  {name}: {value}", flush=True)
