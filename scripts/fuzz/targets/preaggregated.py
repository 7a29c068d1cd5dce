"""Rows of an aggregation: damaged ones are opened and read as a run reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.feature import HostFeatures, PreaggregatedFeatures
from gnnscale.model import GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.runtime.preaggregation import open_rows, preaggregate
from gnnscale.sampler import NeighborSampler

from ..case import Input
from ..verdict import WrongResultError
from .artefact import Valid
from .stored import Stored, files_of, small_graph

__all__ = ["Preaggregated"]

_MODELS: tuple[ModelConfig, ...] = (
    GIN(hidden=4, num_layers=2),
    GCN(hidden=4, num_layers=2),
    GraphSAGE(hidden=4, num_layers=2),
)


class Preaggregated(Stored):
    """``open_rows``, and a step of the model whose first layer they are of."""

    name = "preaggregated"
    record = "preaggregated.json"

    def valid(self, folder: Path) -> list[Valid]:
        """Aggregate the features of a graph for several models."""
        graph = small_graph(60, 300)
        features = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
        graph = replace(graph, features=features)
        return [
            Valid(files_of(preaggregate(model, graph, num_threads=1)), (model, graph))
            for model in _MODELS
        ]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Open, and train a step on the rows."""
        config, graph = valid.made_for
        opened = open_rows(path, graph)
        if opened.rows.shape[0] != graph.num_vertices or opened.rows.dtype != np.float32:
            raise WrongResultError("not a row for each vertex")
        torch.manual_seed(0)
        model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
        batch = NeighborSampler(graph, fanouts=[3, 2]).sample(graph.train_idx[:16], 0)
        store = PreaggregatedFeatures(opened.rows, HostFeatures.of(graph))
        loaded = FeatureLoader(graph, model, num_threads=1, store=store).load(batch)
        model(batch, loaded).sum().backward()
