"""Link prediction with its candidates, evaluated by mean reciprocal rank and Hits@k, as in OGB."""

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnscale.core import Array, ConfigError, Float64Array, IntArray, brief
from gnnscale.data.tables.selection import find_kinds
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.nn import GNN, ModelConfig
from gnnscale.nn import base as trainable
from gnnscale.nn import link_decoder as links
from gnnscale.run.tasks.edge_split import PARTS, EdgeSplit
from gnnscale.sampling import Candidates, LinkSampling, SamplerConfig, SeedOrder


def ranks(scores: NDArray[np.floating]) -> Float64Array:
    """Return the rank of each edge among its candidates, ``[n]``, from 1; ties get their mean rank.

    ``scores`` are ``[n, 1 + k]``: the edges' in column 0, then the scores of k candidates. An edge
    of score NaN ranks last.
    """
    edge, candidates = scores[:, :1], scores[:, 1:]
    num_greater = np.count_nonzero(candidates > edge, axis=1)
    num_equal = np.count_nonzero(candidates == edge, axis=1)
    # NaN ranks last.
    num_before_nan = np.isnan(edge[:, 0]) * candidates.shape[1]
    result: Float64Array = 1 + np.maximum(num_greater + num_equal / 2, num_before_nan)
    return result


def mean_reciprocal_rank(edge_ranks: Float64Array) -> float:
    """Return the mean of 1 / rank over ranks ``[n]``."""
    return float(np.mean(1 / edge_ranks))


def hits_at(edge_ranks: Float64Array, k: int) -> float:
    """Return the share of ranks ``[n]`` that are at most ``k``."""
    return float(np.mean(edge_ranks <= k))


def build_model(
    model: ModelConfig, decoder: str, *, num_features: int, num_edge_features: int = 0
) -> links.LinkGNN:
    """Build a GNN with output rows of ``model.hidden`` features, and ``decoder`` of row pairs."""
    assert model.row_width is not None  # other models are refused before
    gnn = model.build(
        num_features=num_features, num_classes=model.row_width, num_edge_features=num_edge_features
    )
    assert isinstance(gnn, GNN)
    links.initialize_rows(gnn)
    return links.LinkGNN(gnn, links.make_decoder(decoder, gnn.widths[-1]))


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LinkTask:
    """Link prediction over an edge split.

    Attributes:
        num_negatives, decoder, hits, num_candidates: as in ``LinkPrediction``.
    """

    split: EdgeSplit
    num_negatives: int
    decoder: str
    hits: int
    num_candidates: int
    candidates: Candidates | None = None  #: negatives and candidates; None: all vertices
    seed: int  #: seed of the candidates

    @property
    def graph(self) -> Graph:
        """Graph without validation and test edges."""
        return self.split.graph

    def over(self, graph: Graph) -> "LinkTask":
        """Return a copy of the task with ``graph``: equal edges, other storage or feature rows."""
        return replace(self, split=replace(self.split, graph=graph))

    def log_split(self) -> None:
        """Warn if the graph is bipartite but all vertices are candidates, so negatives are easy."""
        if self.split.bipartite and self.candidates is None:
            _LOG.warning(
                f"task=links: {self.graph.name} is bipartite, or nearly so, and negatives and "
                "candidates of an edge are drawn among all vertices, those of its source's kind "
                "too, which are easily recognized; task.candidates=FILE names the destinations, "
                "and task.candidate_column=COLUMN a column of kinds in it"
            )

    def has_part(self, split: str) -> bool:
        """Whether part ``split`` (train, valid, test) has an edge."""
        return len(getattr(self.split, split)) > 0

    @property
    def seeds(self) -> Array:
        """``[n]`` indices of the training edges."""
        return np.arange(len(self.split.train))

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics: mean reciprocal rank and Hits@k."""
        return "mrr", f"hits@{self.hits}"

    @property
    def objective(self) -> trainable.Objective:
        """Function from scores to the binary cross-entropy of positive and negative edges."""
        return links.link_objective

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return the options of a sampler of training edges with their negatives.

        ``vertices`` samples around all their ends; ``order`` has the edges of each step.
        """
        return LinkSampling(
            vertices=vertices,
            edges=self.split.train,
            num_negatives=self.num_negatives,
            candidates=self.candidates,
            drop_reverses=not self.split.directed,
            order=order,
        )

    def build(self, model: ModelConfig) -> GNN:
        """Build a GNN with output rows of ``model.hidden`` features, and a decoder of row pairs."""
        return build_model(
            model,
            self.decoder,
            num_features=self.graph.num_features,
            num_edge_features=self.graph.num_edge_features,
        )


def read_candidates(file: str, column: str | None, graph: Graph) -> Candidates:
    """Read from ``file`` the vertices that may be an edge's negatives and ranking candidates.

    ``column`` of the file has the vertices' kinds; None: all are of one kind.
    """
    kinds = find_kinds(file, column, graph, read_ids(graph), option="task.candidates")
    return Candidates.from_kinds(kinds)


def with_candidate_destinations(split: EdgeSplit, candidates: Candidates, file: str) -> EdgeSplit:
    """Return ``split`` with only candidates as destinations; ConfigError if other edges remain.

    Edges of an undirected graph are reversed if only their source is a candidate. In another graph,
    a mutual edge to a non-candidate is dropped: its reverse, in the same part, is predicted. With
    ``split.directed`` all edges stay as they are. Errors name ``file``.
    """
    edges_by_part = {
        part: _orient(np.asarray(getattr(split, part)), candidates, split.undirected)
        for part in PARTS
    }
    if not split.undirected and not split.directed:
        edges_by_part = {
            part: _drop_mutual(edges, candidates) for part, edges in edges_by_part.items()
        }
    for part, edges in edges_by_part.items():
        missing = candidates.kinds[edges[:, 1]] < 0
        if missing.any():
            first = edges[int(missing.argmax()), 1]
            raise ConfigError(
                f"task.candidates={brief(file)}: expected all destinations of predicted edges, "
                f"{int(missing.sum())} of {len(edges)} {part} edges lead to another vertex, such "
                f"as number {first}"
            )
    return replace(
        split,
        train=edges_by_part["train"],
        valid=edges_by_part["valid"],
        test=edges_by_part["test"],
    )


def _orient(edges: IntArray, candidates: Candidates, undirected: bool) -> IntArray:
    """Return ``edges``; if ``undirected``, reversed where only the source is a candidate."""
    is_candidate = candidates.kinds[edges] >= 0
    wrong = undirected & is_candidate[:, 0] & ~is_candidate[:, 1]
    return np.where(wrong[:, None], edges[:, ::-1], edges) if wrong.any() else edges


def _drop_mutual(edges: IntArray, candidates: Candidates) -> IntArray:
    """Return ``edges`` without edges to a non-candidate whose reverse leads to a candidate."""
    num_vertices = len(candidates.kinds)
    src, dst = edges.astype(np.int64).T
    is_candidate = candidates.kinds >= 0
    reversible = np.flatnonzero(~is_candidate[dst] & is_candidate[src])
    is_mutual = np.isin(dst[reversible] * num_vertices + src[reversible], src * num_vertices + dst)
    return np.delete(edges, reversible[is_mutual], axis=0) if is_mutual.any() else edges
