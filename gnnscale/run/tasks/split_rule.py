"""Rule that splits the edges of a graph for link prediction, and the arrays that follow from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import BoolArray, Float64Array, Int64Array
from gnnscale.core.artifact import NpyWriter
from gnnscale.graph import Graph, Relation
from gnnscale.graph.store_format import EDGE_TIMES
from gnnscale.partition.store import GraphIdentity
from gnnscale.run.tasks import edge_structure as structure

#: Parts of the split, in the order of their intervals in [0, 1).
PARTS = ("test", "valid", "train")
#: Array of the feature rows of message edges.
ROWS = "edge_rows"

#: Random numbers have 53 bits; bit 20 orients an undirected edge, independently of its part.
_ORIENTATION = float(1 << 20)


@dataclass(frozen=True, kw_only=True)
class SplitIdentity:
    """Options and graph that determine an edge split."""

    graph: GraphIdentity  #: graph whose edges are split
    valid_fraction: float  #: share of the validation edges
    test_fraction: float  #: share of the test edges
    seed: int  #: seed of the split
    directed: bool = False  #: whether an edge and its reverse are split independently
    edge_type: str | None = None  #: edge type whose edges are split; None: edges have no types


@dataclass(frozen=True)
class SplitRule:
    """Rule by which the edges of a graph are split into parts."""

    graph: Graph
    identity: SplitIdentity
    relation: Relation
    undirected: bool  #: whether every edge has its reverse in its edge type
    by_source: Graph  #: ``graph`` with lists sorted by source

    @classmethod
    def of(cls, graph: Graph, identity: SplitIdentity) -> "SplitRule":
        """Return the rule of ``identity``, with the structure that ``graph`` has."""
        relation, directed = Relation(), identity.directed
        by_source = structure.by_source(graph)
        if identity.edge_type is not None:
            names = [str(edges) for edges in graph.schema.edge_types]
            relation = structure.find_relation(by_source, names.index(identity.edge_type))
        undirected = not directed and structure.is_undirected(by_source, relation.edge_type)
        return cls(graph, identity, relation, undirected, by_source)

    @property
    def edges(self) -> str:
        """Name of the edges that are split."""
        edge_type = self.identity.edge_type
        return self.graph.name if edge_type is None else f"type {edge_type} of {self.graph.name}"

    def mutual(self, src: Int64Array, dst: Int64Array) -> BoolArray:
        """Return a mask ``[n]`` of edges whose reverse has the same edge type."""
        edge_type = self.relation.edge_type
        if self.undirected or not self.graph.schema.joins_one_type(edge_type):
            return np.full(len(src), self.undirected)
        return structure.has_reverse(self.by_source, src, dst, edge_type)

    def draw(self, src: Int64Array, dst: Int64Array, mutual: BoolArray) -> Float64Array:
        """Return a number in [0, 1) for each edge, by its pair of ends."""
        paired = mutual & (not self.identity.directed)
        low = np.where(paired, np.minimum(src, dst), src)
        high = np.where(paired, np.maximum(src, dst), dst)
        return ops.draw_of_pairs(low, high, seed=self.identity.seed)

    def part(self, draws: Float64Array) -> Int64Array:
        """Return the position in ``PARTS`` of each edge's part."""
        bounds = np.cumsum([self.identity.test_fraction, self.identity.valid_fraction])
        return np.searchsorted(bounds, draws, side="right")


def write_edges(
    writers: dict[str, NpyWriter], rule: SplitRule, action: str
) -> structure.MutualCounts:
    """Write message edges to the graph's arrays, and each predicted edge once to its part's array.

    ``action`` names the progress in the log.
    """
    graph, relation = rule.graph, rule.relation
    indptr = np.zeros(len(graph.indptr), np.int64)
    last, counts = structure.NO_EDGE, structure.MutualCounts()
    is_first, times = structure.first_copies(graph), graph.times
    for src, rows, edge_slice in structure.edge_slices(graph, action):
        sends = np.ones(len(src), np.bool_)
        for edges, is_turned in _edges_by_type(graph, rows, relation):
            ends = src[edges], rows[edges]
            if graph.types is not None:
                ends = src[edges], graph.types.vertex_of(rows[edges])
            ends = ends[::-1] if is_turned else ends
            mutual = rule.mutual(*ends)
            draws = rule.draw(*ends, mutual)
            part, loop = rule.part(draws), ends[0] == ends[1]
            sends[edges] = loop | (part == PARTS.index("train"))
            if not is_turned:
                unique = structure.is_no_copy(*ends, last)
                last = ends[0][-1], ends[1][-1]
                unique = unique if is_first is None else is_first[edge_slice][edges]
                counts = counts.plus(~loop, unique, mutual)
                _write_predicted(writers, rule, ends, unique, draws)
        writers["indices"].append(graph.indices[edge_slice][sends])
        if graph.edge_weights is not None:
            writers["edge_weights"].append(graph.edge_weights[edge_slice][sends])
        if graph.edge_rows is not None:
            writers[ROWS].append(graph.edge_rows[edge_slice][sends])
        if times is not None:
            writers[EDGE_TIMES].append(times.edges[edge_slice][sends])
        ops.count_in_degrees(rows[sends], indptr[1:])
    writers["indptr"].append(np.cumsum(indptr))
    return counts


def _edges_by_type(
    graph: Graph, rows: Int64Array, relation: Relation
) -> Iterator[tuple[Any, bool]]:
    """Yield the positions of edges in ``rows`` of each type of ``relation``, unless there are none.

    With each, whether the edge type is a reverse.
    """
    if graph.types is None:
        yield slice(None), False
        return
    types = graph.types.edge_type_of(rows)
    for edge_type, is_turned in relation.turns():
        edges = np.flatnonzero(types == edge_type)
        if len(edges):
            yield edges, is_turned


def _write_predicted(
    writers: dict[str, NpyWriter],
    rule: SplitRule,
    ends: tuple[Int64Array, Int64Array],
    unique: BoolArray,
    draws: Float64Array,
) -> None:
    """Write the predicted ones of edges, which are no copies if ``unique``, to their parts."""
    src, dst = ends
    part = rule.part(draws)
    # Copies are predicted once; of mutual edges of an undirected graph one direction is.
    once = unique & (src < dst if rule.undirected else src != dst)
    pairs = np.stack([src, dst], axis=1)
    turned = rule.undirected & (np.floor(draws * _ORIENTATION) % 2 == 1)
    pairs[turned] = pairs[turned][:, ::-1]
    for number, name in enumerate(PARTS):
        predicted = pairs[once & (part == number)]
        writers[name].append(predicted.astype(rule.graph.indices.dtype))
