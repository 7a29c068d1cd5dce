"""Multilevel partitioning: coarsen a graph, cut the coarsest graph, and refine on the way back.

Coarsening is size-constrained label propagation (Meyerhenke, Sanders and Schulz, SEA 2014). Graphs
that do not become sparser, such as social networks, are sampled: heavy edges are kept, and light
edges are sampled with equal expected weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnscale import ops
from gnnscale.core import Float64Array, GraphError, Int32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampling.seed_order import labeled_vertices

#: Weights of a vertex apart from its type: 1, the in-degree, 1 for a training vertex.
NUM_COMMON = 3
#: Largest number of types that are balanced: native code balances 8 weights.
_MAX_TYPES = 5


@dataclass(frozen=True, kw_only=True)
class Undirected:
    """Graph without loops and repeated edges, with both directions of each edge."""

    indptr: Int64Array  #: ``[num_vertices + 1]`` int64
    #: neighbors of each vertex, ascending; the graph's own array if it is unchanged
    indices: IntArray
    #: ``[num_vertices, num_weights]`` int64 weights to balance: 1, the in-degree, 1 for a training
    #: vertex, and 1 for a vertex of each of ``balanced_types``
    weights: Int64Array
    notes: tuple[str, ...]  #: dropped and added edges, a line each

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2


def balanced_types(graph: Graph) -> list[slice]:
    """Return the vertices of each type to balance: of the five largest, if there are several."""
    if len(graph.vertex_types) < 2:
        return []
    sizes = np.diff(graph.schema.first_vertices)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:_MAX_TYPES])
    return [graph.schema.vertices(number) for number in largest.tolist()]


def make_undirected(graph: Graph, tool: str, *, num_threads: int) -> Undirected:
    """Return ``graph`` without loops and repeated edges, with both directions of each edge.

    Edges of all types become one. Arrays that stay equal are the graph's own. Notes say what
    changed for ``tool``.
    """
    merged = graph.without_types()
    try:
        lists = ops.make_undirected(merged.indptr, merged.indices, num_threads)
    except ValueError as error:
        raise GraphError(f"{graph.path or graph.name}: damaged, {error}") from None
    types = balanced_types(graph)
    weights = np.zeros((graph.num_vertices, NUM_COMMON + len(types)), np.int64)
    weights[:, 0] = 1
    np.subtract(merged.indptr[1:], merged.indptr[:-1], out=weights[:, 1])
    weights[labeled_vertices(graph, "train"), 2] = 1
    for column, vertices in enumerate(types, NUM_COMMON):
        weights[vertices, column] = 1
    notes = []
    if lists.num_loops or lists.num_duplicates:
        notes.append(
            f"left out for {tool}: {lists.num_loops:,} self-loops, {lists.num_duplicates:,} "
            "repeated edges"
        )
    if lists.num_one_way:
        notes.append(f"made symmetric for {tool}: {lists.num_one_way:,} edges had no reverse")
    return Undirected(
        indptr=lists.indptr, indices=lists.indices, weights=weights, notes=tuple(notes)
    )


#: Largest vertices, edges and training vertices of a part, over its share.
LIMITS = (1.05, 1.05, 1.05)


@dataclass(frozen=True, kw_only=True)
class RefinedParts:
    """Part of each vertex after refinement, number of cut edges, and whether limits are kept."""

    owner: Int32Array  #: ``[num_vertices]`` int32
    cut: int  #: number of undirected edges between parts
    within: bool  #: whether no part exceeds its largest weights


def max_weights(
    weights: Int64Array, shares: Float64Array, limits: tuple[float, ...] = LIMITS
) -> Int64Array:
    """Return the largest allowed weights of each part, ``[num_parts, num_weights]``.

    A part may have its share of a weight's total, rounded up, or if larger, ``limits`` times the
    share. Vertices of a type have the limit of all vertices, the first one.
    """
    limits = (*limits, *limits[:1] * (weights.shape[1] - len(limits)))
    fair = shares[:, None] / shares.sum() * weights.sum(axis=0)
    # Rounding removes the error of a product that should be an integer.
    lower = np.ceil(np.round(fair, 6))
    upper = np.maximum(np.floor(np.array(limits) * fair), lower)
    return np.ascontiguousarray(upper.astype(np.int64))


def balances(weights: Int64Array, owner: IntArray, num_parts: int) -> tuple[float, ...]:
    """Return for each weight the heaviest part over the mean of the parts; 1 for a total of 0."""
    by_weight = []
    for column in weights.T:
        parts = np.bincount(owner, column, num_parts)
        by_weight.append(float(parts.max() / parts.mean()) if parts.any() else 1.0)
    return tuple(by_weight)


def improve(
    graph: Undirected,
    owner: Int32Array,
    limit_weights: Int64Array,
    *,
    num_rounds: int,
    num_threads: int,
) -> RefinedParts:
    """Balance a copy of ``owner``, then reduce its edge cut in up to ``num_rounds`` rounds.

    ``limit_weights`` ``[num_parts, num_weights]`` are the largest weights that a part should have;
    ``RefinedParts.within`` says whether all parts keep them.
    """
    moved = np.array(owner, np.int32)
    refined = ops.refine(
        graph.indptr,
        graph.indices,
        vertex_weights=graph.weights,
        max_weights=limit_weights,
        owner=moved,
        num_rounds=num_rounds,
        num_threads=num_threads,
    )
    return RefinedParts(owner=moved, cut=refined.cut, within=refined.within)


#: Undirected edges up to which a graph is cut without coarsening.
SMALL_EDGES = 3_000_000
#: Vertices per vertex of the next coarser level; largest weight of a cluster over the mean.
_SHRINK = 8
_HEAVIEST = 2
#: Largest weight of a cluster, as a share of a part.
_LARGEST = 1 / 8
#: Vertices of the coarsest graph, in total and per part: communities merge below. Coarsening ends
#: at a level that keeps more than ``_NO_STEP`` of the vertices.
_LEAST_VERTICES = 2048
_LEAST_VERTICES_OF_PARTS = 256
_NO_STEP = 0.95
_MOVES_OF_LABELS = 2
#: Largest number of refinement rounds of a graph, and of clusters with the full graph's edges.
_ROUNDS = 20
_ROUNDS_OF_CLUSTERS = 3
#: Sampled graphs of more vertices, with fewer entries per vertex, are too sparse to refine.
_MAX_SPARSE_VERTICES = 1 << 14
_MIN_ENTRIES_PER_VERTEX = 128
#: Approximate entries that all cycles read in total, and the largest number of cycles.
_ENTRIES = 50_000_000
_MAX_CYCLES = 8
#: Weights that the first cut balances, by the sum of their shares. Small graphs try both, since
#: the better start varies: parts of equal degrees are often nearly balanced in all weights.
_STARTS = ([0, 1, 2], [1])
NUM_STARTS = len(_STARTS)
#: Cuts a small graph into parts ``[num_vertices]`` int32 that balance one integer weight.
Cut = Callable[["Level", Int64Array], Int32Array]


class Level(NamedTuple):
    """Graph at one level of coarsening: the given graph, or one of clusters of the finer level.

    ``labels`` map each vertex of the finer level to its cluster, a vertex of this graph.
    ``sampled``: some of the light edges of a finer level were left out.
    """

    indptr: Int64Array
    indices: IntArray
    edge_weights: Int32Array | None
    vertex_weights: Int64Array
    labels: Int32Array | None
    sampled: bool = False

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2


def edge_budget(num_edges: int) -> int:
    """Return about how many of a graph's ``num_edges`` undirected edges a coarse graph may have."""
    return max(SMALL_EDGES, num_edges // 5)


def num_cycles(num_entries: int) -> int:
    """Return the number of refinement cycles, by the total length of a graph's adjacency lists."""
    return max(1, min(_MAX_CYCLES, _ENTRIES // max(1, num_entries)))


def cut_multilevel(
    graph: Undirected, max_weights: Int64Array, cut: Cut, *, num_threads: int
) -> RefinedParts:
    """Cut ``graph`` so that parts weigh at most ``max_weights``, if possible.

    ``max_weights`` are ``[num_parts, num_weights]``. ``cut`` balances the weights that all graphs
    have, and refinement those of types as well: a vertex of a small type would outweigh many.

    ``cut`` cuts a small graph as it is, a large graph after coarsening. Then follow cycles:
    clustering within parts, and refinement of the parts from the coarsest graph to the full graph.
    Parts of coarse graphs may exceed their weights by the heaviest vertex. Large graphs get one
    cycle. Small graphs get two starting cuts, each unchanged and balanced, and up to eight cycles
    from each of these four. The best result is returned.
    """
    full = Level(graph.indptr, graph.indices, None, graph.weights, None)
    results: list[RefinedParts] = []
    starts: list[Int32Array | None] = [None]
    if full.num_edges <= SMALL_EDGES:
        cuts = [cut(full, full.vertex_weights[:, columns]) for columns in _STARTS]
        results = [
            improve(graph, owner, max_weights, num_rounds=_ROUNDS, num_threads=num_threads)
            for owner in cuts
        ]
        starts = [*cuts, *(result.owner for result in results)]
    for owner in starts:
        for _ in range(num_cycles(len(graph.indices))):
            levels = _coarsen(full, owner, max_weights, num_threads=num_threads)
            if owner is None:
                owner = cut(levels[-1], levels[-1].vertex_weights[:, :NUM_COMMON])
            else:
                for level in levels[1:]:
                    assert level.labels is not None
                    owner = _cluster_owners(owner, level.labels, level.num_vertices)
            results.append(_refine_back(levels, owner, max_weights, num_threads=num_threads))
            owner = results[-1].owner
    return min(results, key=lambda result: (not result.within, result.cut))


def _coarsen(
    full: Level, owner: Int32Array | None, max_weights: Int64Array, *, num_threads: int
) -> list[Level]:
    """Return ``full`` and ever coarser graphs, whose vertices are clusters of the finer graph.

    A cluster stays within a part of ``owner``, if given. A cluster of several vertices weighs at
    most a fraction of the parts' ``max_weights`` ``[num_parts, num_weights]``.
    """
    levels = [full]
    part = max_weights.min(axis=0)
    budget = edge_budget(full.num_edges)
    enough = max(_LEAST_VERTICES, _LEAST_VERTICES_OF_PARTS * len(max_weights))
    while levels[-1].num_vertices > enough:
        fine = levels[-1]
        mean = fine.vertex_weights.sum(axis=0) / fine.num_vertices
        heaviest = np.minimum(_LARGEST * part, _HEAVIEST * _SHRINK * mean)
        labels, num_clusters = ops.find_clusters(
            fine.indptr,
            fine.indices,
            vertex_weights=fine.vertex_weights,
            edge_weights=fine.edge_weights,
            max_weights=np.maximum(heaviest, 1).astype(np.int64),
            owner=owner,
            num_rounds=_MOVES_OF_LABELS,
        )
        if num_clusters > _NO_STEP * fine.num_vertices:
            break
        entries = len(fine.indices) if fine.edge_weights is None else int(fine.edge_weights.sum())
        # The weight below which edges are sampled, so that about ``budget`` remain.
        threshold = max(1, -(-entries // (2 * budget)))
        coarse = ops.contract(
            fine.indptr,
            fine.indices,
            vertex_weights=fine.vertex_weights,
            edge_weights=fine.edge_weights,
            labels=labels,
            num_clusters=num_clusters,
            threshold=threshold,
            num_threads=num_threads,
        )
        sampled = fine.sampled or threshold > 1
        levels.append(Level(*coarse, labels, sampled))
        if owner is not None:
            owner = _cluster_owners(owner, labels, num_clusters)
    return levels


def _cluster_owners(owner: Int32Array, labels: Int32Array, num_clusters: int) -> Int32Array:
    owners = np.empty(num_clusters, np.int32)
    owners[labels] = owner
    return owners


def _refine_back(
    levels: list[Level], owner: Int32Array, max_weights: Int64Array, *, num_threads: int
) -> RefinedParts:
    """Return the full graph's parts, refined level by level from the coarsest graph's ``owner``.

    Each level is removed from ``levels`` after its refinement.
    """
    full = levels[0]
    # The fair share of each part, without the factors of its limits.
    fair = max_weights / np.maximum(max_weights.sum(axis=0), 1) * full.vertex_weights.sum(axis=0)
    while True:
        level = levels[-1]
        allowed = max_weights
        if level is not full:
            slack = fair + level.vertex_weights.max(axis=0)
            allowed = np.maximum(max_weights, np.ceil(slack).astype(np.int64))
        is_large = level.num_vertices > _MAX_SPARSE_VERTICES
        is_sparse = len(level.indices) < _MIN_ENTRIES_PER_VERTEX * level.num_vertices
        if level.sampled and is_large and is_sparse:
            labels = _compose_labels(levels)
            moved = np.ascontiguousarray(owner[labels])
            _refine(full, moved, allowed, labels=labels, num_threads=num_threads)
            owner = _cluster_owners(moved, labels, level.num_vertices)
        else:
            owner = np.array(owner, np.int32)
            refined = _refine(level, owner, allowed, num_threads=num_threads)
        levels.pop()
        if level.labels is None:
            return RefinedParts(owner=owner, cut=refined.cut, within=refined.within)
        owner = owner[level.labels]


def _compose_labels(levels: list[Level]) -> Int32Array:
    """Return the vertex of the coarsest graph for each vertex of the full graph."""
    labels = levels[1].labels
    assert labels is not None
    for level in levels[2:]:
        assert level.labels is not None
        labels = level.labels[labels]
    return labels


def _refine(
    level: Level,
    owner: Int32Array,
    max_weights: Int64Array,
    *,
    labels: Int32Array | None = None,
    num_threads: int,
) -> ops.Refined:
    """Balance ``owner`` in place and reduce its cut; return the cut, and whether weights are kept.

    Vertices with equal ``labels`` (a cluster) move together.
    """
    return ops.refine(
        level.indptr,
        level.indices,
        vertex_weights=level.vertex_weights,
        edge_weights=level.edge_weights,
        max_weights=max_weights,
        owner=owner,
        labels=labels,
        num_clusters=0 if labels is None else int(labels.max()) + 1,
        num_rounds=_ROUNDS if labels is None else _ROUNDS_OF_CLUSTERS,
        num_threads=num_threads,
    )
