"""Training iterations with learned rows of the vertices, beside those with stored features.

GraphSAGE of two layers, 256 hidden features, 1,024 seeds, fan-outs [25, 10], over an R-MAT graph of
a million vertices with 128 features: sample, load, forward, backward, Adam. Learned rows are as
wide as the features, and updated by row-wise Adagrad or lazy Adam. torch's rows are
``torch.nn.Embedding(sparse=True)`` in their place, with ``torch.optim.SparseAdam``, over the same
sampler and model; one that updates all of a million rows (``Embedding`` and ``Adam``) is beside it.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import runner
from benchmarks.runner import FANOUTS, Measure, open_graph, seeds_of

HIDDEN = 256
GRAPH = ("dataset=rmat", "dataset.num_vertices=1000000", "dataset.num_edges=10000000")


def options(parser: argparse.ArgumentParser) -> None:
    runner.take(parser, rounds=5, steps=8, threads=2, store=None)


def worker(system: str, options: argparse.Namespace) -> Measure:
    iteration = SYSTEMS[system](open_graph(options.store), options.threads)
    steps = options.steps
    return lambda number: {
        "s": runner.clock(iteration, range(number * steps, (number + 1) * steps))
    }


def parts(graph: Any, threads: int) -> Any:
    from gnnscale import ops
    from gnnscale.backend.feature_loading import FeatureLoader
    from gnnscale.nn import GraphSAGE
    from gnnscale.nn.optim.update_rules import PlainAdam
    from gnnscale.sampling import NeighborSampler

    ops.keep_freed_memory()
    torch.manual_seed(0)
    sampler = NeighborSampler(graph, fanouts=FANOUTS, num_threads=threads)
    config = GraphSAGE(hidden=HIDDEN, dropout=0.0)
    model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
    loader = FeatureLoader(graph, model, num_threads=threads)
    return sampler, model, loader, PlainAdam(model.parameters(), lr=0.003, fused=True)


def stored(graph: Any, threads: int) -> Callable[[int], None]:
    from gnnscale.nn.base import seed_loss

    sampler, model, loader, optimizer = parts(graph, threads)

    def iteration(step: int) -> None:
        batch = sampler.sample(seeds_of(graph, step), step)
        loss = seed_loss(graph, model(batch, loader.load(batch)), batch.seeds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return iteration


def learned(graph: Any, threads: int, kind: str) -> Callable[[int], None]:
    """As ``CpuBackend`` and ``TrainStep`` do it."""
    from gnnscale.features import LearnedFeaturesConfig
    from gnnscale.nn.base import seed_loss
    from gnnscale.nn.learned_embeddings import LearnedEmbedding, LearnedFeatureStore
    from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS

    sampler, model, loader, optimizer = parts(graph, threads)
    table = LearnedFeaturesConfig(dim=graph.num_features).draw(graph.num_vertices, seed=0)
    rows = LearnedEmbedding(torch.from_numpy(table), ROW_OPTIMIZERS[kind])
    optimizer.add_param_group({"params": [rows.weight]})
    loader.store = LearnedFeatureStore(rows)

    def iteration(step: int) -> None:
        batch = sampler.sample(seeds_of(graph, step), step)
        loss = seed_loss(graph, model(batch, loader.load(batch)), batch.seeds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.update(optimizer)

    return iteration


def embedding(graph: Any, threads: int, *, sparse: bool) -> Callable[[int], None]:
    from dataclasses import replace

    from gnnscale.nn.base import seed_loss

    sampler, model, loader, optimizer = parts(graph, threads)
    table = torch.nn.Embedding(graph.num_vertices, graph.num_features, sparse=sparse)
    kind: Any = torch.optim.SparseAdam if sparse else torch.optim.Adam
    of_rows = kind(table.parameters(), lr=0.003)

    def iteration(step: int) -> None:
        batch = sampler.sample(seeds_of(graph, step), step)
        inputs = loader.without_rows(batch)
        inputs = replace(inputs, x=table(torch.from_numpy(batch.input_vertices)))
        loss = seed_loss(graph, model(batch, inputs), batch.seeds)
        optimizer.zero_grad()
        of_rows.zero_grad()
        loss.backward()
        optimizer.step()
        of_rows.step()

    return iteration


SYSTEMS = {
    "gnnscale-stored": stored,
    "gnnscale-adagrad": lambda graph, threads: learned(graph, threads, "adagrad"),
    "gnnscale-adam": lambda graph, threads: learned(graph, threads, "adam"),
    "torch-sparse": lambda graph, threads: embedding(graph, threads, sparse=True),
    "torch-dense": lambda graph, threads: embedding(graph, threads, sparse=False),
}


def run(options: argparse.Namespace) -> Any:
    if options.store is None:
        options.store = runner.prepared(*GRAPH, "dataset.num_features=128")
    command = [runner.sys.executable, *runner.sys.argv, "--store", str(options.store)]
    figures = runner.interleave(SYSTEMS, options, command)
    seconds = {name: each["s"] for name, each in figures.items()}
    base = seconds["gnnscale-stored"]
    rows = [[name, f"{s * 1e3:.1f}", f"{s / base:.2f}x"] for name, s in seconds.items()]
    runner.show(
        f"GraphSAGE, {options.threads} threads", ["rows", "ms an iteration", "of stored"], rows
    )
    return figures
