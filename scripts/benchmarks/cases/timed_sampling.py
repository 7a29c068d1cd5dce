"""Neighbour sampling as of cut-offs: millions of sampled edges a second.

Times are uniform over the edges of an R-MAT graph of the sizes of ogbn-products. Beside the
sampler without cut-offs, over the same graph, seeds and fan-outs, stand one cut-off a mini-batch,
one a seed, and the rules that hand on times of edges. GraphBolt is measured by
``--graphbolt PYTHON``, a Python that has DGL 2.1 and torch 2.2: it bounds all hops by the time of a
seed, strictly, and has a tree for each seed, as the row ``disjoint`` has.

Rounds are long enough that caches are not those which the other systems leave behind.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import timed_graphs
from benchmarks.cases.sampler import rate_of
from benchmarks.runner import FANOUTS, SCRIPT, SEEDS, Measure, interleave, open_graph, show, take

#: Options of each system's rule, whether seeds have one cut-off, and whether trees are disjoint.
SYSTEMS: dict[str, Any] = {
    "gnnscale without times": None,
    "gnnscale one cut-off": ({"bound": "strict"}, True, False),
    "gnnscale": ({"bound": "strict"}, False, False),
    "gnnscale disjoint": ({"bound": "strict"}, False, True),
    "gnnscale last": ({"strategy": "last"}, False, False),
    "gnnscale destination": ({"rule": "destination"}, False, False),
    "gnnscale forward": ({"rule": "walk", "direction": "forward"}, False, False),
}


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=60, threads=2, store=None)
    parser.add_argument("--graphbolt", help="a Python that has DGL 2.1, beside torch 2.2")
    parser.add_argument("--vertices", type=int, help="a smaller R-MAT graph, of degree 50, instead")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


def units_of(num_vertices: int, step: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(step)
    seeds = generator.choice(num_vertices, SEEDS, replace=False)
    return seeds, generator.integers(0, timed_graphs.NUM_TIMES, SEEDS)


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale import ops
    from gnnscale.sampling import NeighborSampler, TimedSampler, TimeRule

    ops.keep_freed_memory()
    graph = timed_graphs.read(options.folder)
    plain = NeighborSampler(graph, fanouts=FANOUTS, num_threads=options.threads)
    rule, is_one, disjoint = SYSTEMS[system] or ({}, False, False)
    timed = TimedSampler(graph, fanouts=FANOUTS, rule=TimeRule(**rule), num_threads=options.threads)

    def sample(units: Any, step: int) -> tuple[int, int]:
        seeds, cutoffs = units
        if SYSTEMS[system] is None:
            batch = plain.sample(seeds, step)
        else:
            batch = timed.sample_units(seeds, cutoffs, step, disjoint=disjoint)
        return batch.num_edges, len(batch.input_vertices)

    def units(step: int) -> tuple[Any, Any]:
        seeds, cutoffs = units_of(graph.num_vertices, step)
        return seeds, np.full_like(cutoffs, np.median(cutoffs)) if is_one else cutoffs

    return rate_of(sample, options.steps, units)


def run(options: argparse.Namespace) -> Any:
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        indptr, indices = _lists(options)
        timed_graphs.write(options.folder, indptr, indices)
        others = _graphbolt(options, len(indptr) - 1)
        for threads in (1, 2):
            options.threads = threads
            command = (sys.executable, *sys.argv, "--folder", folder)
            found = results[threads] = interleave([*SYSTEMS, *others], options, command, others)
            base = found["gnnscale without times"]["edges_per_s"]
            for name, each in found.items():
                rate = each["edges_per_s"]
                figures = (f"{rate / 1e6:.1f}", f"{each['edges']:.0f}", f"{each['inputs']:.0f}")
                rows.append([name, str(threads), *figures, f"{rate / base:.2f}x"])
    columns = ["system", "threads", "M edges/s", "edges", "inputs", "of the rate without times"]
    show("Neighbour sampling as of cut-offs", columns, rows)
    return results


def _lists(options: argparse.Namespace) -> tuple[Any, Any]:
    if options.vertices is None:
        graph = open_graph(options.store)
        return graph.indptr, graph.indices
    return timed_graphs.rmat_lists(options.vertices, 50 * options.vertices)


def _graphbolt(options: argparse.Namespace, num_vertices: int) -> dict[str, list[str]]:
    """Write the units of all rounds, and return the command of GraphBolt's worker."""
    if options.graphbolt is None:
        return {}
    steps = range((options.rounds + 1) * options.steps)
    units = [units_of(num_vertices, step) for step in steps]
    for name, arrays in zip(("seeds", "cutoffs"), zip(*units, strict=True), strict=True):
        shape = (options.rounds + 1, options.steps, SEEDS)
        np.save(options.folder / f"{name}.npy", np.array(arrays).reshape(shape))
    command = [options.graphbolt, str(SCRIPT / "graphbolt_timed.py")]
    command += ["--folder", str(options.folder), "--fanouts", json.dumps(FANOUTS)]
    return {"graphbolt": command}
