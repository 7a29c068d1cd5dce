"""GraphIdentity edges: damaged ones are opened, sampled, and trained one step on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GraphSAGE
from gnnscale.sampler import NeighborSampling, Shuffled
from gnnscale.task.links.split import PARTS, identify_split, make_split, open_split
from gnnscale.task.links.task import LinkTask
from gnnscale.task.options import LinkPrediction

from ..case import Input
from ..verdict import WrongResultError
from .artefact import Valid
from .stored import Stored, files_of, small_graph
from .training import sample_all

__all__ = ["LinkSplits"]

_NUM_VERTICES, _NUM_EDGES, _BATCH = 60, 300, 16
_OPTIONS = LinkPrediction(valid_fraction=0.2, test_fraction=0.2)


class LinkSplits(Stored):
    """``open_split``, every sampler, and a step of training with each decoder."""

    name = "links"
    record = "links.json"
    kinds = ("dot", "mlp")

    def valid(self, folder: Path) -> list[Valid]:
        """Divide a graph, one with weights, and one whose edges all have their reverse."""
        plain = small_graph(_NUM_VERTICES, _NUM_EDGES)
        weights = np.linspace(0, 3, _NUM_EDGES, dtype=np.float32)
        graphs = (plain, replace(plain, edge_weights=weights), _both_ways(plain))
        found = []
        for number, graph in enumerate(graphs):
            graph = replace(graph, content=f"{number}" * 32)
            identity = identify_split(graph, valid_fraction=0.2, test_fraction=0.2, seed=0)
            found.append(Valid(files_of(make_split(graph, identity)), graph))
        return found

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Open, look at every edge, and train."""
        split = open_split(path, valid.made_for)
        for part in PARTS:
            edges = getattr(split, part)
            if not (0 <= edges.min() <= edges.max() < valid.made_for.num_vertices):
                raise WrongResultError(f"{part} has an edge of no vertices")
        if split.graph.edge_weights is not None and not (split.graph.edge_weights >= 0).all():
            raise WrongResultError("a weight is negative, or no number")
        sample_all(split.graph)
        task = LinkTask(
            split=split, num_negatives=1, decoder=made.kind, hits=10, num_candidates=100, seed=0
        )
        _train_step(task)


def _both_ways(graph: Graph) -> Graph:
    destinations = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    pairs = np.stack([graph.indices, destinations])
    pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
    pairs = pairs[:, np.lexsort(pairs)]
    counts = np.bincount(pairs[1], minlength=graph.num_vertices)
    return replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=pairs[0].astype(np.int32),
    )


def _train_step(task: LinkTask) -> None:
    """Sample a mini-batch of edges, and train a step on it."""
    torch.manual_seed(0)
    order = Shuffled().order(task.seeds, batch_size=_BATCH, num_devices=1, seed=0)
    seeds = next(order.epoch(0)).seeds
    sampling = task.sampling(NeighborSampling(fanouts=[3, 2]), order)
    batch = sampling.sampler(task.graph, seed=0, num_threads=1).sample(seeds, 0)
    model = task.build(GraphSAGE(hidden=4, num_layers=2))
    scores = model(batch, FeatureLoader(task.graph, model, num_threads=1).load(batch))
    if not torch.isfinite(scores).all():
        raise WrongResultError("a score is no number")
    scores.sum().backward()
