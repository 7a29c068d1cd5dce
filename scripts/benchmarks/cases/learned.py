"""Training iterations with learned rows of the vertices, beside those with stored features.

GraphSAGE as in the case ``epoch``, over an R-MAT graph of a million vertices with 128 features.
Learned rows are updated by row-wise Adagrad or lazy Adam; torch's are those of ``nn.Embedding``
with ``SparseAdam``, or with ``Adam``, which updates all rows.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks import runner
from benchmarks.runner import Measure, open_graph
from benchmarks.training import HIDDEN, OwnTrainer, timed_steps, with_adam

GRAPH = ("dataset=rmat", "dataset.num_vertices=1000000", "dataset.num_edges=10000000")


def options(parser: argparse.ArgumentParser) -> None:
    runner.take(parser, rounds=5, steps=8, threads=2, store=None)


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale.nn import GraphSAGE

    graph = open_graph(options.store)
    trainer = OwnTrainer(graph, GraphSAGE(hidden=HIDDEN, dropout=0.0), options.threads)
    return timed_steps(SYSTEMS[system](graph, trainer), options.steps)


def stored(graph: Any, trainer: OwnTrainer) -> Callable[[int], None]:
    return with_adam(trainer.model, trainer.loss)


def learned(graph: Any, trainer: OwnTrainer, kind: str) -> Callable[[int], None]:
    """As ``CpuBackend`` and ``TrainStep`` do it."""
    from gnnscale.features import LearnedFeaturesConfig
    from gnnscale.nn.learned_embeddings import LearnedEmbedding, LearnedFeatureStore
    from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS, PlainAdam

    table = LearnedFeaturesConfig(dim=graph.num_features).draw(graph.num_vertices, seed=0)
    rows = LearnedEmbedding(torch.from_numpy(table), ROW_OPTIMIZERS[kind])
    optimizer = PlainAdam(trainer.model.parameters(), lr=0.003, fused=True)
    optimizer.add_param_group({"params": [rows.weight]})
    trainer.loader.store = LearnedFeatureStore(rows)

    def iteration(step: int) -> None:
        loss = trainer.loss(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.update(optimizer)

    return iteration


def embedding(graph: Any, trainer: OwnTrainer, *, sparse: bool) -> Callable[[int], None]:
    table = torch.nn.Embedding(graph.num_vertices, graph.num_features, sparse=sparse)
    kind: Any = torch.optim.SparseAdam if sparse else torch.optim.Adam
    of_rows = kind(table.parameters(), lr=0.003)

    def load(batch: Any) -> Any:
        rows = table(torch.from_numpy(batch.input_vertices))
        return replace(trainer.loader.without_rows(batch), x=rows)

    trainer.load = load
    of_model = with_adam(trainer.model, trainer.loss)

    def iteration(step: int) -> None:
        of_rows.zero_grad()
        of_model(step)
        of_rows.step()

    return iteration


SYSTEMS = {
    "gnnscale-stored": stored,
    "gnnscale-adagrad": lambda graph, trainer: learned(graph, trainer, "adagrad"),
    "gnnscale-adam": lambda graph, trainer: learned(graph, trainer, "adam"),
    "torch-sparse": lambda graph, trainer: embedding(graph, trainer, sparse=True),
    "torch-dense": lambda graph, trainer: embedding(graph, trainer, sparse=False),
}


def run(options: argparse.Namespace) -> Any:
    store = options.store or runner.prepared(*GRAPH, "dataset.num_features=128")
    command = [sys.executable, *sys.argv, "--store", str(store)]
    figures = runner.interleave(SYSTEMS, options, command)
    seconds = {name: each["s"] for name, each in figures.items()}
    columns = ["rows", "ms an iteration", "of stored"]
    title = f"GraphSAGE, {options.threads} threads"
    runner.show_beside(title, columns, seconds, "gnnscale-stored")
    return figures
