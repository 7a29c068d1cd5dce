"""Link prediction with its negatives and candidates, evaluated by ranks of edges."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, ConfigError, Int64Array, IntArray, brief
from gnnscale.core.ranking import TOP_METRICS
from gnnscale.core.sorted_sets import contained, distinct
from gnnscale.data import GraphSource
from gnnscale.data.tables.selection import find_kinds, is_table, open_table, select_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph, GraphSchema, in_degrees
from gnnscale.nn import base as trainable
from gnnscale.nn.link_decoder import LINK_OBJECTIVES
from gnnscale.run.tasks.edge_split import EdgeSplit
from gnnscale.run.tasks.split_rule import PARTS
from gnnscale.sampling import Candidates, LinkSampling, SamplerConfig, SeedOrder

_LOG = logging.getLogger(__name__)
#: Power of in-degrees by which popular vertices are negatives, as of frequencies in word2vec.
_POPULARITY_POWER = 0.75
#: Largest number of edge types that an error lists.
_MAX_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class LinkTask:
    """Link prediction over an edge split.

    Attributes:
        num_negatives, negatives, loss, hits, k: as in ``LinkPrediction``.
    """

    split: EdgeSplit
    num_negatives: int
    negatives: str = "uniform"
    loss: str = "bce"
    hits: tuple[int, ...]
    k: tuple[int, ...] = ()
    num_candidates: int | None  #: vertices among which a destination is ranked; None: all
    filters_known: bool = True  #: whether a source's known edges are left out of a ranking of all
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
        """Name edge types that are held out too; warn if negatives of a bipartite graph are easy.

        They are if all vertices are candidates.
        """
        relation, names = self.split.relation, self.graph.schema.edge_types
        if relation.reverses:
            reverses = ", ".join(str(names[number]) for number in relation.reverses)
            _LOG.info(
                f"task.edge_type={names[relation.edge_type]}: its reverse is held out with it: "
                f"{reverses}"
            )
        if self.split.bipartite and self.candidates is None:
            _LOG.warning(
                f"task=links: {self.graph.name} is bipartite, or nearly so, and negatives and "
                "candidates of an edge are drawn among all vertices, those of its source's kind "
                "too, which are easily recognized; task.candidates=FILE names the destinations; "
                "or task.candidate_column=COLUMN, a column of kinds, and task.candidate_kind=KIND"
            )

    def has_part(self, split: str) -> bool:
        """Whether part ``split`` (train, valid, test) has an edge."""
        return len(getattr(self.split, split)) > 0

    @property
    def seeds(self) -> Array:
        """``[n]`` indices of the training edges."""
        return np.arange(len(self.split.train))

    @property
    def seed_vertices(self) -> Array:
        """``seeds``: links are never trained on a partition."""
        return self.seeds

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics: MRR and Hits@k, after metrics of sources if all are ranked."""
        names = ["mrr", *(f"hits@{k}" for k in self.hits)]
        if self.num_candidates is None:
            names = [*(f"{name}@{k}" for k in self.k for name in TOP_METRICS), *names]
        return tuple(names)

    @property
    def objective(self) -> trainable.Objective:
        """Function from scores to the mean loss of positive and negative edges."""
        return LINK_OBJECTIVES[self.loss]

    @property
    def popularity(self) -> Int64Array:
        """In-degree of each vertex by training edges, copies included, ``[num_vertices]``.

        With types, only edges of the predicted edge type count.
        """
        return in_degrees(self.graph, self.split.relation.edge_type)

    @property
    def held_out_pairs(self) -> list[IntArray]:
        """Arrays ``[n, 2]`` of validation and test edges; of an undirected graph, both ways."""
        parts = [self.split.valid, self.split.test]
        return parts + [pairs[:, ::-1] for pairs in parts if self.split.undirected]

    def known_pairs(self, part: str) -> list[IntArray]:
        """Return pairs ``[n, 2]`` that rankings of ``part`` leave out: earlier parts, reverses."""
        if not self.filters_known:
            return []
        names = ("train", "valid", "test")
        *earlier, ranked = [getattr(self.split, name) for name in names[: names.index(part) + 1]]
        reverses = [pairs[:, ::-1] for pairs in (*earlier, ranked)] if self.split.undirected else []
        return earlier + reverses

    def _negatives(self) -> Candidates | None:
        """Return the candidates with the distribution of the negatives; None: all, uniform."""
        if self.negatives == "uniform":
            return self.candidates
        everything = np.zeros(self.graph.num_vertices, np.int32)
        candidates = self.candidates or Candidates.from_kinds(everything)
        degrees = self.popularity.astype(np.float64)
        return candidates.weighted((1 + degrees) ** _POPULARITY_POWER)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return a sampler's options: edges in ``order``, negatives, ``vertices`` around both."""
        relation = self.split.relation
        has_reverses = self.graph.schema.joins_one_type(relation.edge_type)
        return LinkSampling(
            vertices=vertices,
            edges=self.split.train,
            num_negatives=self.num_negatives,
            candidates=self._negatives(),
            drop_reverses=has_reverses and not self.split.directed,
            order=order,
            relation=relation,
        )


def chosen_edge_type(name: str | None, graph: Graph) -> str | None:
    """Return the name of the edge type to predict: ``name``, or for None the only one.

    None: ``graph`` has no types. ConfigError: ``name`` is no edge type of ``graph``, or is needed.
    """
    option = f"task.edge_type={brief(name or 'null')}"
    if graph.types is None:
        if name is not None:
            raise ConfigError(
                f"{option}: expected null for {graph.name}, whose edges have no types"
            )
        return None
    edge_types = [str(edges) for edges in graph.types.edge_types]
    chosen = edge_types[0] if name is None and len(edge_types) == 1 else name
    if chosen not in edge_types:
        more = ", ..." if len(edge_types) > _MAX_LISTED else ""
        raise ConfigError(
            f"{option}: expected the edge type of {graph.name} to predict, one of "
            f"{', '.join(edge_types[:_MAX_LISTED])}{more}"
        )
    return chosen


def typed_candidates(schema: GraphSchema, edge_type: int) -> Candidates:
    """Return all vertices of the destination type of an edge type."""
    kinds = np.full(schema.num_vertices, -1, np.int32)
    kinds[schema.vertices(int(schema.destinations[edge_type]))] = 0
    return Candidates.from_kinds(kinds)


def read_candidates(
    file: str | None,
    column: str | None,
    kind: str | None,
    graph: Graph,
    dataset: GraphSource,
    edge_type: int = 0,
) -> tuple[Candidates, str]:
    """Read the vertices that may be an edge's negatives and ranking candidates.

    Args:
        file: selection of candidates, or a table with ``column``; None: the vertices' table of
            ``dataset``.
        column: column of the vertices' kinds; None: all candidates are of one kind.
        kind: the only kind that is a candidate; None: each kind is.
        edge_type: edge type that is predicted in a graph with types; candidates, without
            ``column``, are of its destination type.

    Returns:
        The candidates, and the option that names them in errors.

    Raises:
        ConfigError: an id or ``kind`` is unknown, or there is no table.
        GraphError: the table cannot be read, or has no such column.
    """
    ids = read_ids(graph)
    if column is None:
        assert file is not None
        kinds = np.full(graph.num_vertices, -1, np.int32)
        target = graph.schema.edge_types[edge_type].destination
        selected = select_vertices(file, graph, ids, target, option="task.candidates")
        kinds[selected.vertices] = 0
        return Candidates.from_kinds(kinds), f"task.candidates={brief(file)}"
    option = f"task.candidate_column={brief(column)}"
    if file is None:
        vertex_table = dataset.vertex_table()
        if vertex_table is None:
            raise ConfigError(f"{option}: expected task.candidates=FILE, a table with this column")
        table, id_column = vertex_table
    else:
        if not is_table(file):
            raise ConfigError(
                f"task.candidates={brief(file)}: expected a table (.csv, .csv.gz or .parquet) with "
                f"columns id and {brief(column)}"
            )
        option = f"task.candidates={brief(file)}"
        table, id_column = open_table(Path(file)), "id"
    kinds, names = find_kinds(table, (id_column, column), graph, ids, option=option)
    if kind is not None:
        if kind not in names:
            raise ConfigError(
                f"task.candidate_kind={brief(kind)}: {table.path} has no such kind in column "
                f"{brief(column)}, it has {', '.join(map(brief, names[:12]))}"
            )
        option = f"task.candidate_kind={brief(kind)}"
        kinds = np.where(kinds == names.index(kind), 0, -1).astype(np.int32)
    return Candidates.from_kinds(kinds), option


def with_candidate_destinations(split: EdgeSplit, candidates: Candidates, option: str) -> EdgeSplit:
    """Return ``split`` with only candidates as destinations; ConfigError if other edges remain.

    Edges of an undirected graph are reversed if only their source is a candidate. In another graph,
    a mutual edge to a non-candidate is dropped: its reverse, in the same part, is predicted. With
    ``split.directed`` all edges stay as they are. Errors name ``option``.
    """
    edges_by_part: dict[str, Any] = {
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
                f"{option}: expected all destinations of predicted edges, {int(missing.sum())} of "
                f"{len(edges)} {part} edges lead to another vertex, such as number {first}"
            )
    return replace(split, **edges_by_part)


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
    pairs = distinct(src * num_vertices + dst)
    is_mutual = contained(dst[reversible] * num_vertices + src[reversible], pairs)
    return np.delete(edges, reversible[is_mutual], axis=0) if is_mutual.any() else edges
