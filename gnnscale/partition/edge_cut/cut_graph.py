"""An undirected graph with vertex weights, as edge-cut libraries take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.sampler.seed_order import labelled_vertices


@dataclass(frozen=True, kw_only=True)
class Undirected:
    """A graph without loops and repeated edges, each edge in both directions."""

    indptr: NDArray[np.int64]  #: ``[num_vertices + 1]`` int64
    #: neighbours of each vertex, ascending; the graph's own if nothing had to change
    indices: NDArray[np.integer[Any]]
    #: ``[num_vertices, 3]`` int64, what parts are to be balanced in: 1, the in-degree that the
    #: graph has (not this one), and 1 for a training vertex
    weights: NDArray[np.int64]
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
class Improved:
    """Improved parts."""

    owner: NDArray[np.int32]  #: ``[num_vertices]`` int32
    cut: int  #: undirected edges between parts
    within: bool  #: whether no part has more than it may


def max_weights(
    weights: NDArray[np.int64], shares: NDArray[np.float64], limits: tuple[float, ...] = LIMITS
) -> NDArray[np.int64]:
    """Return ``[num_parts, num_weights]``, the max weight of each part: its share times ``limits``.

    It is at least the share. ``weights`` are ``[num_vertices, num_weights]``, ``shares``
    ``[num_parts]`` of any sum, ``limits`` one factor per weight.
    """
    wanted = shares[:, None] / shares.sum() * weights.sum(axis=0)
    # A share's product may lie a little above the whole number that it stands for.
    least = np.ceil(np.round(wanted, 6))
    most = np.maximum(np.floor(np.array(limits) * wanted), least)
    return np.ascontiguousarray(most.astype(np.int64))


def balances(
    weights: NDArray[np.int64], owner: NDArray[np.integer[Any]], num_parts: int
) -> tuple[float, ...]:
    """Return the largest over the mean part, for each weight; 1 if all weigh nothing."""
    found = []
    for column in weights.T:
        parts = np.bincount(owner, column, num_parts)
        found.append(float(parts.max() / parts.mean()) if parts.any() else 1.0)
    return tuple(found)


def improve(
    graph: Undirected,
    owner: NDArray[np.int32],
    most: NDArray[np.int64],
    *,
    num_rounds: int,
    num_threads: int,
) -> Improved:
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
    return Improved(owner=moved, cut=refined.cut, within=refined.within)
