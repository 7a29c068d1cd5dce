"""The task of predicting edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.model import GNN, ModelConfig
from gnnscale.model.links import LinkGNN, initialise_rows, link_objective, make_decoder
from gnnscale.model.options import LayeredModel
from gnnscale.model.trainable import Objective
from gnnscale.sampler import SamplerConfig, SeedOrder
from gnnscale.sampler.links import LinkSampling
from gnnscale.task.links.split import EdgeSplit

__all__ = ["LinkTask"]


@dataclass(frozen=True, kw_only=True)
class LinkTask:
    """Edges are predicted.

    Attributes:
        split: the edges, and the graph without those that are held out.
        num_negatives, decoder, hits, num_candidates: as in ``LinkPrediction``.
        seed: fixes the candidates.
    """

    split: EdgeSplit
    num_negatives: int
    decoder: str
    hits: int
    num_candidates: int
    seed: int

    @property
    def graph(self) -> Graph:
        """The graph without the edges that are validated and tested."""
        return self.split.graph

    @property
    def seeds(self) -> NDArray[Any]:
        """The numbers of all edges that are trained."""
        return np.arange(len(self.split.train))

    @property
    def measures(self) -> tuple[str, ...]:
        """Mean reciprocal rank, and Hits@k."""
        return "mrr", f"hits@{self.hits}"

    @property
    def objective(self) -> Objective:
        """Binary cross-entropy of edges and negatives."""
        return link_objective

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return how mini-batches of edges are sampled."""
        return LinkSampling(
            vertices=vertices,
            edges=self.split.train,
            num_negatives=self.num_negatives,
            undirected=self.split.undirected,
            order=order,
        )

    def build(self, model: ModelConfig) -> GNN:
        """Build a model whose output rows have ``model.hidden`` features, and the decoder."""
        assert isinstance(model, LayeredModel)
        gnn = model.build(num_features=self.graph.num_features, num_classes=model.hidden)
        initialise_rows(gnn)
        return LinkGNN(gnn, make_decoder(self.decoder, gnn.widths[-1]))
