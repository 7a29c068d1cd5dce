"""What features of edges cost in a training iteration: GAT and GIN with them and without.

Two layers, 64 hidden features, 1,024 seeds, fan-outs [25, 10], 16 features of each edge. ``pyg``
are PyG's layers over batches of this project's loader, whose hops expand new vertices alone.
"""

import argparse
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import runner
from benchmarks.runner import FANOUTS, SEEDS, Measure, seeds_of
from benchmarks.training import OwnTrainer, Trainer, timed_steps, with_adam

HIDDEN, HEADS, WIDTH = 64, 4, 16
#: A twentieth of the sizes of ogbn-products.
GRAPH = ("dataset=rmat_products", "dataset.num_vertices=122451", "dataset.num_edges=3092957")


def options(parser: argparse.ArgumentParser) -> None:
    runner.take(parser, rounds=5, steps=6, threads=2, store=None)


def graph_with_features(store: Any) -> Any:
    """Open ``store``, or the default graph, and give its edges random features."""
    from gnnscale.graph import EdgeData, Graph

    graph = Graph.open(runner.prepared(*GRAPH) if store is None else store)
    generator = np.random.default_rng(0)
    num_rows = graph.num_edges // 2
    rows = generator.integers(0, num_rows, graph.num_edges, dtype=np.uint32)
    features = generator.standard_normal((num_rows, WIDTH), np.float32)
    return replace(graph, edges=EdgeData(rows=rows, features=features))


def worker(system: str, options: argparse.Namespace) -> Measure:
    trainer = TRAINERS[system](graph_with_features(options.store), options.threads)
    return timed_steps(with_adam(*trainer), options.steps)


def own(graph: Any, threads: int, *, kind: str, reads: bool) -> Trainer:
    from gnnscale.nn import GAT, GIN

    common: Any = {"hidden": HIDDEN, "dropout": 0.0, "edge_features": reads}
    config = GAT(num_heads=HEADS, **common) if kind == "gat" else GIN(**common)
    trainer = OwnTrainer(graph, config, threads)
    return trainer.model, trainer.loss


def pyg(graph: Any, threads: int, *, kind: str) -> Trainer:
    from torch_geometric import nn as layers

    from gnnscale import NeighborLoader

    widths = [graph.num_features, HIDDEN, graph.num_classes]
    convs = nn.ModuleList()
    for index, (a, b) in enumerate(pairwise(widths)):
        last = index == 1
        if kind == "gat":
            size = b if last else b // HEADS
            convs.append(layers.GATConv(a, size, HEADS, concat=not last, edge_dim=WIDTH))
        else:
            perceptron = nn.Sequential(nn.Linear(a, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, b))
            convs.append(layers.GINEConv(perceptron, edge_dim=WIDTH))
    # The loader takes each vertex once: as many whole batches as there are, and again.
    steps = len(graph.train_idx) // SEEDS - 1
    order = np.concatenate([seeds_of(graph, step) for step in range(steps)])
    how: Any = {"num_threads": threads, "num_workers": 0, "drop_last": True}
    loader = NeighborLoader(graph, FANOUTS, order, batch_size=SEEDS, **how)
    batches = chain.from_iterable(repeat(loader))

    def loss_of(step: int) -> torch.Tensor:
        batch = next(batches)
        x = convs[0](batch.x, batch.edge_index, batch.edge_attr).relu()
        x = convs[1](x, batch.edge_index, batch.edge_attr)[: batch.batch_size]
        return nn.functional.cross_entropy(x, batch.y[: batch.batch_size])

    return convs, loss_of


TRAINERS = {
    f"gnnscale-{kind}{'-edges' if reads else ''}": partial(own, kind=kind, reads=reads)
    for kind in ("gat", "gin")
    for reads in (False, True)
}
TRAINERS |= {f"pyg-{kind}-edges": partial(pyg, kind=kind) for kind in ("gat", "gin")}


def run(options: argparse.Namespace) -> Any:
    figures = runner.interleave(TRAINERS, options)
    for kind in ("gat", "gin"):
        seconds = {name: each["s"] for name, each in figures.items() if kind in name}
        columns = ["system", "ms an iteration", "of without"]
        title = f"Features of edges, {options.threads} threads"
        runner.show_beside(title, columns, seconds, f"gnnscale-{kind}")
    return figures
