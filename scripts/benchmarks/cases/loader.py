"""A PyG training loop with only its loader replaced, and the loaders alone.

Both loaders run without worker processes; this project's has one thread in the background. PyG
samples with pyg-lib or with torch-sparse.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.runner import FANOUTS, SEEDS, Measure, clock, interleave, open_graph, show, take
from benchmarks.training import HIDDEN, with_adam

LOADERS = ["gnnscale", "pyg-lib", "torch-sparse"]


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None, avx2=False)


def worker(system: str, options: argparse.Namespace) -> Measure:
    name = system.removesuffix("-loop")
    graph = open_graph(options.store)
    batches = endless(make_loader(name, graph))
    work = (lambda step: next(batches)) if name == system else training_loop(graph, batches)
    return lambda number: {"s": clock(work, range(options.steps))}


def make_loader(system: str, graph: Any) -> Any:
    from benchmarks.peers import pyg_loader, sample_with
    from gnnscale import NeighborLoader

    seeds = torch.tensor(graph.train_idx, dtype=torch.int64)
    if system != "gnnscale":
        sample_with(system)
    make = NeighborLoader if system == "gnnscale" else pyg_loader
    options: Any = {"input_nodes": seeds, "batch_size": SEEDS, "shuffle": True}
    return make(graph, num_neighbors=FANOUTS, **options)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def training_loop(graph: Any, batches: Iterator[Any]) -> Any:
    from benchmarks.peers import pyg_loss, pyg_sage

    model = pyg_sage(graph.num_features, graph.num_classes, HIDDEN)
    return with_adam(model, lambda step: pyg_loss(model, next(batches)))


def run(options: argparse.Namespace) -> Any:
    figures = interleave([*LOADERS, *(f"{name}-loop" for name in LOADERS)], options)
    rows = []
    for name, each in figures.items():
        loader = name.removesuffix("-loop")
        what, own = ("alone", "gnnscale") if loader == name else ("training loop", "gnnscale-loop")
        ratio = f"{each['s'] / figures[own]['s']:.1f}x"
        rows.append([what, loader, f"{each['s'] * 1e3:.1f}", ratio])
    columns = ["PyG GraphSAGE", "loader", "ms", "gnnscale is"]
    show(f"NeighborLoader, {options.threads} threads", columns, rows)
    return figures
