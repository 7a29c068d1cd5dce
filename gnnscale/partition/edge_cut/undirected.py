"""The undirected simple graph below a topology, as foreign partitioners want it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph import Graph, GraphError
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["Undirected", "make_undirected"]


@dataclass(frozen=True, kw_only=True)
class Undirected:
    """A graph without loops and repeated edges, each edge in both directions.

    Attributes:
        indptr: ``[num_vertices + 1]`` int64.
        indices: neighbours of each vertex, ascending; the graph's own where nothing had to change.
        weights: ``[num_vertices, 3]`` int64, what parts are to be balanced in: 1, the in-degree
            that the graph has (not this one), and 1 for a training vertex.
        notes: what had to be dropped and added.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.integer[Any]]
    weights: NDArray[np.int64]
    notes: tuple[str, ...]

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2


def make_undirected(graph: Graph, tool: str, *, num_threads: int) -> Undirected:
    """Return the undirected simple graph below ``graph``.

    Args:
        graph: the graph; its arrays serve as they are where they are such already.
        tool: who wants it; for the notes.
        num_threads: threads to use.

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
