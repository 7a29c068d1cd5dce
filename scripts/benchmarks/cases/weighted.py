"""Neighbours drawn by the weights of edges: millions of sampled edges a second.

Weights are uniform, or with ``--skewed`` of a Pareto distribution, whose mean is infinite: few
edges of a list have most of its weight. Ratios are beside our uniform sampling, which reads no
weights, and DGL's sampling by the same weights. DGL is left out if it is not installed.
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.cases.sampler import rate_of
from benchmarks.runner import FANOUTS, Measure, interleave, open_graph, show, take

SYSTEMS = ["gnnscale", "gnnscale-uniform", "dgl"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=9, steps=20, threads=2, store=None)
    parser.add_argument("--skewed", action="store_true", help="few edges have most of the weight")
    parser.add_argument("--replace", action="store_true", help="draw with replacement")


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale import ops

    ops.keep_freed_memory()  # as every training run does; DGL has it, too
    graph = open_graph(options.store)
    return rate_of(SAMPLERS[system](graph, options), graph, options.steps)


def edge_weights(graph: Any, options: argparse.Namespace) -> Any:
    uniform = 1 - np.random.default_rng(0).random(graph.num_edges, np.float32)
    return 1 / uniform if options.skewed else uniform


def own_sampler(graph: Any, options: argparse.Namespace) -> Any:
    from gnnscale.graph import EdgeData
    from gnnscale.sampling import WeightedSampler

    graph = replace(graph, edges=EdgeData(weights=edge_weights(graph, options)))
    return _sampling(WeightedSampler, graph, options)


def own_uniform(graph: Any, options: argparse.Namespace) -> Any:
    from gnnscale.sampling import NeighborSampler

    return _sampling(NeighborSampler, graph, options)


def _sampling(kind: Any, graph: Any, options: argparse.Namespace) -> Any:
    sampler = kind(graph, fanouts=FANOUTS, replace=options.replace, num_threads=options.threads)
    return lambda seeds, step: sampler.sample(seeds, step).num_edges


def dgl_sampler(graph: Any, options: argparse.Namespace) -> Any:
    import dgl

    from benchmarks.peers import dgl_graph

    topology = dgl_graph(graph, torch.int64)
    topology.edata["weight"] = torch.from_numpy(edge_weights(graph, options))
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], prob="weight", replace=options.replace)

    def sample(seeds: Any, step: int) -> int:
        blocks = sampler.sample_blocks(topology, torch.from_numpy(seeds).long())[2]
        return sum(block.num_edges() for block in blocks)

    return sample


SAMPLERS = {"gnnscale": own_sampler, "gnnscale-uniform": own_uniform, "dgl": dgl_sampler}


def run(options: argparse.Namespace) -> Any:
    found = interleave(SYSTEMS, options)
    own = found["gnnscale"]["edges_per_s"]
    rates = {name: each["edges_per_s"] for name, each in found.items()}
    rows = [[name, f"{rate / 1e6:.1f}", f"{own / rate:.2f}x"] for name, rate in rates.items()]
    title = f"Sampling by weight, {options.threads} threads"
    show(title, ["system", "M edges/s", "by weight is"], rows)
    return found
