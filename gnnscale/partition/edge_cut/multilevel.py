"""Multilevel partitioning: a graph is coarsened, cut once it is small, and refined on the way back.

Coarsening is size-constrained label propagation, as in Mt-KaHyPar's relatives (Meyerhenke,
Sanders and Schulz, SEA 2014), with three weights for each vertex. Graphs that do not get sparser,
such as social networks, are sampled: their heavy edges stay, and of the others a share that weighs
as much. So a coarse graph takes a fraction of the memory of the topology.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnscale import ops
from gnnscale.core import Float64Array, GraphError, Int32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampling.seed_order import labelled_vertices


@dataclass(frozen=True, kw_only=True)
class Undirected:
    """A graph without loops and repeated edges, each edge in both directions."""

    indptr: Int64Array  #: ``[num_vertices + 1]`` int64
    #: neighbours of each vertex, ascending; the graph's own if nothing had to change
    indices: IntArray
    #: ``[num_vertices, 3]`` int64, what parts are to be balanced in: 1, the in-degree that the
    #: graph has (not this one), and 1 for a training vertex
    weights: Int64Array
    notes: tuple[str, ...]  #: what had to be dropped and added

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2


def make_undirected(graph: Graph, tool: str, *, num_threads: int) -> Undirected:
    """Return the undirected simple graph of ``graph``, whose arrays are reused if they fit.

    ``tool`` is named in the notes.

    Raises:
        GraphError: the topology is damaged.
    """
    try:
        lists = ops.make_undirected(graph.indptr, graph.indices, num_threads)
    except ValueError as error:
        raise GraphError(f"{graph.path or graph.name}: damaged, {error}") from None
    weights = np.zeros((graph.num_vertices, 3), np.int64)
    weights[:, 0] = 1
    np.subtract(graph.indptr[1:], graph.indptr[:-1], out=weights[:, 1])
    weights[labelled_vertices(graph, "train"), 2] = 1
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


#: What parts may have of vertices, edges and training vertices, over their share.
LIMITS = (1.05, 1.05, 1.05)


@dataclass(frozen=True, kw_only=True)
class RefinedParts:
    """Improved parts."""

    owner: Int32Array  #: ``[num_vertices]`` int32
    cut: int  #: undirected edges between parts
    within: bool  #: whether no part has more than it may


def max_weights(
    weights: Int64Array, shares: Float64Array, limits: tuple[float, ...] = LIMITS
) -> Int64Array:
    """Return ``[num_parts, num_weights]``, the max weight of each part: its share times ``limits``.

    It is at least the share. ``weights`` are ``[num_vertices, num_weights]``, ``shares``
    ``[num_parts]`` of any sum, ``limits`` one factor per weight.
    """
    wanted = shares[:, None] / shares.sum() * weights.sum(axis=0)
    # A share's product may lie a little above the whole number that it stands for.
    least = np.ceil(np.round(wanted, 6))
    most = np.maximum(np.floor(np.array(limits) * wanted), least)
    return np.ascontiguousarray(most.astype(np.int64))


def balances(weights: Int64Array, owner: IntArray, num_parts: int) -> tuple[float, ...]:
    """Return the largest over the mean part, for each weight; 1 if all weigh nothing."""
    found = []
    for column in weights.T:
        parts = np.bincount(owner, column, num_parts)
        found.append(float(parts.max() / parts.mean()) if parts.any() else 1.0)
    return tuple(found)


def improve(
    graph: Undirected, owner: Int32Array, most: Int64Array, *, num_rounds: int, num_threads: int
) -> RefinedParts:
    """Balance parts by moving single vertices, then lower the cut.

    ``owner`` ``[num_vertices]`` is copied, ``max_weights`` are ``[num_parts, 3]``. At most
    ``num_rounds`` rounds lower the cut. The result does not depend on ``num_threads``.
    """
    moved = np.array(owner, np.int32)
    refined = ops.refine(
        graph.indptr,
        graph.indices,
        vertex_weights=graph.weights,
        max_weights=most,
        owner=moved,
        num_rounds=num_rounds,
        num_threads=num_threads,
    )
    return RefinedParts(owner=moved, cut=refined.cut, within=refined.within)


#: Undirected edges of a graph that is cut as it is.
SMALL_EDGES = 3_000_000
#: Vertices of a coarse graph, for each vertex of the next one; and what its clusters weigh at most,
#: over their mean.
_SHRINK = 8
_HEAVIEST = 2
#: The heaviest cluster, as a share of a part.
_LARGEST = 1 / 8
#: Vertices of the smallest graph, in all and for each part: fewer, and communities are no longer
#: told apart. A step that keeps more of them than this is none.
_LEAST_VERTICES = 2048
_LEAST_VERTICES_OF_PARTS = 256
_NO_STEP = 0.95
_MOVES_OF_LABELS = 2
#: Rounds of refinement at most: of a graph, and of clusters with the edges of the whole one.
_ROUNDS = 20
_ROUNDS_OF_CLUSTERS = 3
#: Sampled graphs of more vertices than this, with fewer entries for each, tell too little.
_TOLD_VERTICES = 1 << 14
_TELLING = 128
#: Entries that are read by all cycles together, about, and cycles at most.
_ENTRIES = 50_000_000
_MAX_CYCLES = 8
#: Weights that the first cut balances, their shares taken together; small graphs try each, since
#: what is best to begin with differs: parts of equal degrees are often near to balance in all.
_STARTS = ([0, 1, 2], [1])
NUM_STARTS = len(_STARTS)
#: Cuts a small graph into parts that are balanced in one weight, a column of whole numbers:
#: ``[num_vertices]`` int32.
Cut = Callable[["Level", Int64Array], Int32Array]


class Level(NamedTuple):
    """A graph of some size, and the vertex of it for each vertex of the larger one before it."""

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
    """Return the undirected edges that a coarse graph may have."""
    return max(SMALL_EDGES, num_edges // 5)


def num_cycles(num_entries: int) -> int:
    """Return how often a graph with ``num_entries`` in its lists is refined as a whole."""
    return max(1, min(_MAX_CYCLES, _ENTRIES // max(1, num_entries)))


def cut_multilevel(
    graph: Undirected, max_weights: Int64Array, cut: Cut, *, num_threads: int
) -> RefinedParts:
    """Cut a graph so that part p weighs at most ``max_weights[p]``, of ``[num_parts, 3]``.

    A small graph is cut as it is, a large one once it is coarse enough. Then come cycles: clusters
    inside of the parts, and parts refined from the coarsest graph back to the graph. Parts of
    coarse graphs may be too heavy by the heaviest vertex. Large graphs get one cycle. Small ones
    get two starting cuts, each as it is and balanced at once, and up to eight cycles from each of
    these four. The best counts. ``cut`` takes graphs of about ``SMALL_EDGES`` edges at most. The
    result does not depend on ``num_threads``.
    """
    whole = Level(graph.indptr, graph.indices, None, graph.weights, None)
    found: list[RefinedParts] = []
    starts: list[Int32Array | None] = [None]
    if whole.num_edges <= SMALL_EDGES:
        cuts = [cut(whole, whole.vertex_weights[:, columns]) for columns in _STARTS]
        found = [
            improve(graph, owner, max_weights, num_rounds=_ROUNDS, num_threads=num_threads)
            for owner in cuts
        ]
        starts = [*cuts, *(each.owner for each in found)]
    for owner in starts:
        for _ in range(num_cycles(len(graph.indices))):
            levels = _coarsen(whole, owner, max_weights, num_threads=num_threads)
            if owner is None:
                owner = cut(levels[-1], levels[-1].vertex_weights)
            else:
                owner = _projected(owner, levels)
            found.append(_refine_back(levels, owner, max_weights, num_threads=num_threads))
            owner = found[-1].owner
    return min(found, key=lambda each: (not each.within, each.cut))


def _coarsen(
    whole: Level, owner: Int32Array | None, max_weights: Int64Array, *, num_threads: int
) -> list[Level]:
    """Return the graph and ever smaller ones, whose clusters stay within parts."""
    levels = [whole]
    part = max_weights.min(axis=0)
    budget = edge_budget(whole.num_edges)
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
            owner = _of_clusters(owner, labels, num_clusters)
    return levels


def _of_clusters(owner: Int32Array, labels: Int32Array, num_clusters: int) -> Int32Array:
    owners = np.empty(num_clusters, np.int32)
    owners[labels] = owner
    return owners


def _projected(owner: Int32Array, levels: list[Level]) -> Int32Array:
    for level in levels[1:]:
        assert level.labels is not None
        owner = _of_clusters(owner, level.labels, level.num_vertices)
    return owner


def _refine_back(
    levels: list[Level], owner: Int32Array, max_weights: Int64Array, *, num_threads: int
) -> RefinedParts:
    """Refine the parts of every graph, the smallest first; ``levels`` is used up.

    If a sampled graph is too sparse, its vertices move as clusters of the whole graph.
    """
    whole = levels[0]
    # The share of each part that its limits stand for.
    fair = max_weights / np.maximum(max_weights.sum(axis=0), 1) * whole.vertex_weights.sum(axis=0)
    while True:
        level = levels[-1]
        allowed = max_weights
        if level is not whole:
            slack = fair + level.vertex_weights.max(axis=0)
            allowed = np.maximum(max_weights, np.ceil(slack).astype(np.int64))
        if _tells_little(level):
            labels = _composed(levels)
            moved = np.ascontiguousarray(owner[labels])
            _refine(whole, moved, allowed, labels=labels, num_threads=num_threads)
            owner = _of_clusters(moved, labels, level.num_vertices)
        else:
            owner = np.array(owner, np.int32)
            refined = _refine(level, owner, allowed, num_threads=num_threads)
        levels.pop()
        if level.labels is None:
            return RefinedParts(owner=owner, cut=refined.cut, within=refined.within)
        owner = owner[level.labels]


def _tells_little(level: Level) -> bool:
    large = level.num_vertices > _TOLD_VERTICES
    return level.sampled and large and len(level.indices) < _TELLING * level.num_vertices


def _composed(levels: list[Level]) -> Int32Array:
    """Return the vertex of the last graph for each vertex of the first one."""
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
    """Refine ``owner`` in place; ``labels`` are clusters that move as wholes."""
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
