"""Neighbours drawn by the weights of edges: millions of sampled edges a second.

Weights are uniform, or with ``--skewed`` of a Pareto distribution of infinite mean. Ratios are
beside our uniform sampling, which reads no weights, and DGL's sampling by the same weights.
"""

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases.sampler import dgl_sampler, own_sampler, rate_of
from benchmarks.runner import Measure, interleave, open_graph, seeds_of, show, take

SYSTEMS = ["gnnscale", "gnnscale-uniform", "dgl"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=9, steps=20, threads=2, store=None)
    parser.add_argument("--skewed", action="store_true", help="few edges have most of the weight")
    parser.add_argument("--replace", action="store_true", help="draw with replacement")


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale.graph import EdgeData
    from gnnscale.sampling import NeighborSampler, WeightedSampler

    graph = open_graph(options.store)
    weights = 1 - np.random.default_rng(0).random(graph.num_edges, np.float32)
    weights = 1 / weights if options.skewed else weights
    how: Any = {"threads": options.threads, "replace": options.replace}
    if system == "dgl":
        sample = dgl_sampler(graph, weights=weights, **how)
    elif system == "gnnscale":
        weighted = replace(graph, edges=EdgeData(weights=weights))
        sample = own_sampler(WeightedSampler, weighted, **how)
    else:
        sample = own_sampler(NeighborSampler, graph, **how)
    return rate_of(sample, options.steps, partial(seeds_of, graph))


def run(options: argparse.Namespace) -> Any:
    found = interleave(SYSTEMS, options)
    rates = {name: each["edges_per_s"] for name, each in found.items()}
    own = rates["gnnscale"]
    rows = [[name, f"{rate / 1e6:.1f}", f"{own / rate:.2f}x"] for name, rate in rates.items()]
    title = f"Sampling by weight, {options.threads} threads"
    show(title, ["system", "M edges/s", "by weight is"], rows)
    return found
