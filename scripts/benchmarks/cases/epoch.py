"""Training iterations of GraphSAGE: sample, load, forward, backward, Adam.

Two layers, 256 hidden features, 1,024 seeds, fan-outs [25, 10], the same seeds for every system.
PyG samples with pyg-lib or with torch-sparse.
"""

import argparse
from functools import partial
from typing import Any

import torch

from benchmarks import runner
from benchmarks.runner import FANOUTS, SEEDS, Measure, open_graph, seeds_of
from benchmarks.training import HIDDEN, OwnTrainer, Trainer, timed_steps, with_adam


def options(parser: argparse.ArgumentParser) -> None:
    runner.take(parser, rounds=7, steps=10, threads=2, store=None, avx2=False)


def worker(system: str, options: argparse.Namespace) -> Measure:
    trainer = TRAINERS[system](open_graph(options.store), options.threads)
    return timed_steps(with_adam(*trainer), options.steps)


def gnnscale(graph: Any, threads: int, dtype: torch.dtype = torch.float32) -> Trainer:
    from gnnscale.nn import GraphSAGE

    config = GraphSAGE(hidden=HIDDEN, dropout=0.0)
    trainer = OwnTrainer(graph, config, threads, compute_dtype=dtype)
    return trainer.model, trainer.loss


def dgl(graph: Any, threads: int) -> Trainer:
    from dgl.dataloading import NeighborSampler

    from benchmarks.peers import DglSage, dgl_graph, features, labels

    topology, x, y = dgl_graph(graph), features(graph), labels(graph)
    sampler = NeighborSampler(FANOUTS[::-1])
    model = DglSage([graph.num_features, HIDDEN, graph.num_classes])

    def loss_of(step: int) -> torch.Tensor:
        seeds = torch.from_numpy(seeds_of(graph, step)).long()
        inputs, outputs, blocks = sampler.sample_blocks(topology, seeds)
        logits = model(blocks, torch.index_select(x, 0, inputs))
        return torch.nn.functional.cross_entropy(logits, y[outputs])

    return model, loss_of


def pyg(graph: Any, threads: int, library: str) -> Trainer:
    from benchmarks.peers import pyg_loader, pyg_loss, pyg_sage, sample_with

    sample_with(library)
    order = torch.cat([torch.from_numpy(seeds_of(graph, step)).long() for step in range(190)])
    batches = iter(pyg_loader(graph, num_neighbors=FANOUTS, input_nodes=order, batch_size=SEEDS))
    model = pyg_sage(graph.num_features, graph.num_classes, HIDDEN)
    return model, lambda step: pyg_loss(model, next(batches))


TRAINERS = {
    "gnnscale": gnnscale,
    "gnnscale-bf16": partial(gnnscale, dtype=torch.bfloat16),
    "dgl": dgl,
    **{name: partial(pyg, library=name) for name in ("pyg-lib", "torch-sparse")},
}


def run(options: argparse.Namespace) -> Any:
    figures = runner.interleave(TRAINERS, options)
    seconds = {name: each["s"] for name, each in figures.items()}
    columns = ["system", "ms an iteration", "gnnscale is"]
    runner.show_beside(f"GraphSAGE, {options.threads} threads", columns, seconds, "gnnscale")
    return figures
