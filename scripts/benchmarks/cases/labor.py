"""LABOR sampling: millions of sampled edges a second, and input vertices of a mini-batch.

All systems sample the same seeds at the same fan-outs. GraphBolt is measured by
``--graphbolt PYTHON``, a Python that has DGL 2.1 and torch 2.2, with 64-bit ids
and with 32-bit ids; without it, it is left out. Its numbers of vertices are other ones than here,
so that sizes are equal on average alone. Uniform sampling stands beside, for its input vertices.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

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
    timed,
)

OWN = ["gnnscale", "gnnscale-dependent", "gnnscale-neighbor"]
PEERS = ["graphbolt", "graphbolt-int32"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None)
    parser.add_argument("--graphbolt", help="a Python that has DGL 2.1, beside torch 2.2")


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale.sampling import LaborSampler, NeighborSampler

    graph, steps = open_graph(options.store), options.steps
    given: Any = {"fanouts": FANOUTS, "num_threads": options.threads}
    sampler: Any = {
        "gnnscale": lambda: LaborSampler(graph, **given),
        "gnnscale-dependent": lambda: LaborSampler(graph, **given, layer_dependency=True),
        "gnnscale-neighbor": lambda: NeighborSampler(graph, **given),
    }[system]()

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        batch = sampler.sample(seeds, step)
        return batch.num_edges, len(batch.input_vertices)

    def measure(number: int) -> dict[str, float]:
        batches = [(seeds_of(graph, step), step) for step in _steps(number, steps)]
        seconds, sizes = timed(lambda: [sample(*batch) for batch in batches])
        edges, inputs = np.array(sizes).sum(0).tolist()
        return {"edges_per_s": edges / seconds, "edges": edges / steps, "inputs": inputs / steps}

    return measure


def _steps(number: int, steps: int) -> range:
    return range(number * steps, (number + 1) * steps)


def run(options: argparse.Namespace) -> Any:
    store = prepared("dataset=rmat_products") if options.store is None else options.store
    graph, rows, results = open_graph(store), [], {}
    with tempfile.TemporaryDirectory() as folder:
        others = _peers(options, store, graph, Path(folder))
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


def _peers(
    options: argparse.Namespace, store: Path, graph: Any, folder: Path
) -> dict[str, list[str]]:
    """Write the seeds of all rounds, and return the command of each of GraphBolt's workers."""
    if options.graphbolt is None:
        return {}
    rounds = [
        [seeds_of(graph, step) for step in _steps(number, options.steps)]
        for number in range(options.rounds + 1)
    ]
    np.save(folder / "seeds.npy", np.array(rounds))
    command = [options.graphbolt, str(SCRIPT / "graphbolt.py"), "--store", str(store)]
    command += ["--seeds", str(folder / "seeds.npy"), "--fanouts", json.dumps(FANOUTS)]
    return dict.fromkeys(PEERS, command)
