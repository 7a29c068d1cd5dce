"""Neighbour sampling with relabelling: millions of sampled edges a second.

Every system samples the same seeds at the same fan-outs. DGL is measured with its default 64-bit
ids and with 32-bit ids, PyG with each of the libraries that it samples with. PyG's sampler expands
only newly found vertices at each hop, so it draws fewer edges a batch; the rate is what compares.
The systems with ``weighted`` draw by weights of the edges, which are random; they are compared with
each other. A system that is not installed is left out.
"""

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.runner import FANOUTS, Measure, interleave, open_graph, seeds_of, show, take, timed

SYSTEMS = ["gnnscale", "dgl", "dgl-int32", "pyg-lib", "torch-sparse"]
WEIGHTED = ["gnnscale-weighted", "dgl-weighted"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None, avx2=False)


def worker(system: str, options: argparse.Namespace) -> Measure:
    graph = open_graph(options.store)
    return rate_of(SAMPLERS[system](graph, options.threads), graph, options.steps)


def rate_of(sample: Any, graph: Any, steps: int) -> Measure:
    """Return the measure of ``sample``, which returns the edges of a mini-batch."""

    def measure(number: int) -> dict[str, float]:
        first = number * steps
        batches = [(seeds_of(graph, first + step), first + step) for step in range(steps)]
        seconds, edges = timed(lambda: sum(sample(*batch) for batch in batches))
        return {"edges_per_s": edges / seconds, "edges": edges / steps, "s": seconds / steps}

    return measure


def edge_weights(graph: Any) -> Any:
    return 1 - np.random.default_rng(0).random(graph.num_edges, np.float32)


def own_sampler(graph: Any, threads: int, *, weighted: bool = False) -> Any:
    from gnnscale.graph import EdgeData
    from gnnscale.sampling import NeighborSampler, WeightedSampler

    if weighted:
        graph = replace(graph, edges=EdgeData(weights=edge_weights(graph)))
    kind = WeightedSampler if weighted else NeighborSampler
    sampler = kind(graph, fanouts=FANOUTS, num_threads=threads)
    return lambda seeds, step: sampler.sample(seeds, step).num_edges


def dgl_sampler(graph: Any, threads: int, dtype: Any = torch.int64, weighted: bool = False) -> Any:
    import dgl

    from benchmarks.peers import dgl_graph

    topology = dgl_graph(graph, dtype)
    prob = "weight" if weighted else None
    if weighted:
        topology.edata[prob] = torch.from_numpy(edge_weights(graph))
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], prob=prob)

    def sample(seeds: Any, step: int) -> int:
        blocks = sampler.sample_blocks(topology, torch.from_numpy(seeds).to(dtype))[2]
        return sum(block.num_edges() for block in blocks)

    return sample


def pyg_sampler(graph: Any, threads: int, library: str) -> Any:
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    from benchmarks.peers import pyg_data, sample_with

    sample_with(library)
    sampler = NeighborSampler(pyg_data(graph), FANOUTS, is_sorted=True)

    def sample(seeds: Any, step: int) -> int:
        chosen = NodeSamplerInput(input_id=None, node=torch.from_numpy(seeds).long())
        return len(sampler.sample_from_nodes(chosen).row)

    return sample


SAMPLERS = {
    **{"gnnscale": own_sampler, "gnnscale-weighted": partial(own_sampler, weighted=True)},
    **{"dgl": dgl_sampler, "dgl-weighted": partial(dgl_sampler, weighted=True)},
    "dgl-int32": partial(dgl_sampler, dtype=torch.int32),
    **{name: partial(pyg_sampler, library=name) for name in ("pyg-lib", "torch-sparse")},
}


def run(options: argparse.Namespace) -> Any:
    rows, results = [], {}
    for threads in (1, 2):
        options.threads, results[threads] = threads, {}
        for systems in (SYSTEMS, WEIGHTED):
            found = interleave(systems, options)
            results[threads] |= found
            rates = {name: each["edges_per_s"] for name, each in found.items()}
            for name, rate in rates.items():
                ratio = f"{rates[systems[0]] / rate:.1f}x"
                rows.append([name, str(threads), f"{rate / 1e6:.1f}", ratio])
    show("Neighbour sampling", ["system", "threads", "M edges/s", "gnnscale is"], rows)
    return results
