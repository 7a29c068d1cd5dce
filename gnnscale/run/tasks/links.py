"""Link prediction, measured by mean reciprocal rank and Hits@k, as OGB counts them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnscale.core import Array, Float64Array
from gnnscale.graph import Graph
from gnnscale.nn import GNN, ModelConfig
from gnnscale.nn import base as trainable
from gnnscale.nn import link_decoder as links
from gnnscale.run.tasks.edge_split import EdgeSplit
from gnnscale.sampling import SamplerConfig, SeedOrder
from gnnscale.sampling.candidates import Candidates
from gnnscale.sampling.edge_batches import LinkSampling


def ranks(scores: NDArray[np.floating]) -> Float64Array:
    """Return the rank of each edge among its candidates, from 1.

    An edge shares the places of candidates with the same score, and gets the mean of them.

    Args:
        scores: ``[n, 1 + k]`` of the edges in the first column, of k candidates each in the others.

    Returns:
        ``[n]`` float64.
    """
    edge, others = scores[:, :1], scores[:, 1:]
    above = np.count_nonzero(others > edge, axis=1)
    equal = np.count_nonzero(others == edge, axis=1)
    # A score that is no number ranks last, not first.
    lost = np.isnan(edge[:, 0]) * others.shape[1]
    found: Float64Array = 1 + np.maximum(above + equal / 2, lost)
    return found


def mean_reciprocal_rank(found: Float64Array) -> float:
    """Return the mean of 1 / rank over ``found`` ``[n]``."""
    return float(np.mean(1 / found))


def hits_at(found: Float64Array, k: int) -> float:
    """Return the share of ranks ``found`` ``[n]`` that are at most ``k``."""
    return float(np.mean(found <= k))


def build_model(
    model: ModelConfig, decoder: str, *, num_features: int, num_edge_features: int = 0
) -> links.LinkGNN:
    """Build a model whose output rows have ``model.hidden`` features, and the decoder."""
    assert model.row_width is not None  # the settings refuse others
    gnn = model.build(
        num_features=num_features, num_classes=model.row_width, num_edge_features=num_edge_features
    )
    assert isinstance(gnn, GNN)
    links.initialise_rows(gnn)
    return links.LinkGNN(gnn, links.make_decoder(decoder, gnn.widths[-1]))


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LinkTask:
    """Edges are predicted.

    Attributes:
        num_negatives, decoder, hits, num_candidates: as in ``LinkPrediction``.
    """

    split: EdgeSplit  #: the edges, and the graph without those that are held out
    num_negatives: int
    decoder: str
    hits: int
    num_candidates: int
    candidates: Candidates | None = None  #: vertices that are compared; None for all
    seed: int  #: fixes the candidates

    @property
    def graph(self) -> Graph:
        """The graph without the edges that are validated and tested."""
        return self.split.graph

    def over(self, graph: Graph) -> LinkTask:
        """Return the same task over ``graph``, which is the same but for how it is read."""
        return replace(self, split=replace(self.split, graph=graph))

    def log_split(self) -> None:
        """Warn of candidates of another kind than the destinations."""
        if self.split.bipartite and self.candidates is None:
            _LOG.warning(
                f"task=links: {self.graph.name} is bipartite, or nearly so, and negatives and "
                "candidates of an edge are drawn among all vertices, those of its source's kind "
                "too, which are easily recognized; task.candidates=FILE names the destinations, "
                "and task.candidate_column=COLUMN a column of kinds in it"
            )

    @property
    def seeds(self) -> Array:
        """The numbers of all edges that are trained."""
        return np.arange(len(self.split.train))

    @property
    def measures(self) -> tuple[str, ...]:
        """Mean reciprocal rank, and Hits@k."""
        return "mrr", f"hits@{self.hits}"

    @property
    def objective(self) -> trainable.Objective:
        """Binary cross-entropy of edges and negatives."""
        return links.link_objective

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return how mini-batches of edges are sampled."""
        return LinkSampling(
            vertices=vertices,
            edges=self.split.train,
            num_negatives=self.num_negatives,
            candidates=self.candidates,
            leave_out_reverses=not self.split.directed,
            order=order,
        )

    def build(self, model: ModelConfig) -> GNN:
        """Build a model whose output rows have ``model.hidden`` features, and the decoder."""
        return build_model(
            model,
            self.decoder,
            num_features=self.graph.num_features,
            num_edge_features=self.graph.num_edge_features,
        )
