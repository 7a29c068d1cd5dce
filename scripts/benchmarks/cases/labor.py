"""LABOR sampling: millions of sampled edges a second, and input vertices of a mini-batch.

All systems sample the same seeds at the same fan-outs. GraphBolt, with 64-bit and with 32-bit ids,
is measured by ``--graphbolt PYTHON``, a Python that has DGL 2.1 and torch 2.2. Uniform sampling
stands beside, for its input vertices.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases.sampler import own_sampler, rate_of
from benchmarks.runner import (
    FANOUTS,
    SCRIPT,
    Measure,
    interleave,
    open_graph,
    prepared,
    seeds_of,
    show,
    take,
)

OWN = ["gnnscale", "gnnscale-dependent", "gnnscale-neighbor"]
PEERS = ["graphbolt", "graphbolt-int32"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None)
    parser.add_argument("--graphbolt", help="a Python that has DGL 2.1, beside torch 2.2")


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale.sampling import LaborSampler, NeighborSampler

    graph = open_graph(options.store)
    kind: Any = NeighborSampler if system == "gnnscale-neighbor" else LaborSampler
    how = {"layer_dependency": True} if system == "gnnscale-dependent" else {}
    sample = own_sampler(kind, graph, options.threads, **how)
    return rate_of(sample, options.steps, partial(seeds_of, graph))


def run(options: argparse.Namespace) -> Any:
    store = prepared("dataset=rmat_products") if options.store is None else options.store
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        others = _peers(options, store, Path(folder))
        for threads in (1, 2):
            options.threads = threads
            found = results[threads] = interleave([*OWN, *others], options, others=others)
            for name, each in found.items():
                ratios = [found["gnnscale"][key] / each[key] for key in ("edges_per_s", "inputs")]
                rate, inputs = f"{each['edges_per_s'] / 1e6:.1f}", f"{each['inputs']:.0f}"
                shown = [f"{ratio:.3g}x" for ratio in ratios]
                rows.append([name, str(threads), rate, inputs, *shown])
    columns = ["system", "threads", "M edges/s", "inputs", "gnnscale's rate", "its inputs"]
    show("LABOR sampling", columns, rows)
    return results


def _peers(options: argparse.Namespace, store: Path, folder: Path) -> dict[str, list[str]]:
    """Write the seeds of all rounds, and return the command of each of GraphBolt's workers."""
    if options.graphbolt is None:
        return {}
    graph, steps = open_graph(store), range((options.rounds + 1) * options.steps)
    seeds = np.array([seeds_of(graph, step) for step in steps])
    np.save(folder / "seeds.npy", seeds.reshape(options.rounds + 1, options.steps, -1))
    command = [options.graphbolt, str(SCRIPT / "graphbolt.py"), "--store", str(store)]
    command += ["--seeds", str(folder / "seeds.npy"), "--fanouts", json.dumps(FANOUTS)]
    return dict.fromkeys(PEERS, command)
