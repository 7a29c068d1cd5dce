"""Data Tiering's measure of hotness: weighted reverse PageRank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.hotness.slices import slices
from gnnscale.graph import Graph
from gnnscale.ops import naming_graph

__all__ = ["pagerank"]


def pagerank(
    graph: Graph,
    train: NDArray[np.integer[Any]],
    *,
    damping: float = 0.85,
    num_iterations: int = 20,
    num_threads: int,
) -> NDArray[np.float32]:
    """Return the weighted reverse PageRank of each vertex (Data Tiering, Min et al. 2022).

    A walk from the training vertices goes from a vertex to one of its in-neighbours, as sampling
    does, and with probability ``1 - damping`` starts again. With T the training vertices and N(v)
    the in-neighbours of v, from ``r_0(u) = [u in T] / |T|``,

        r_{t+1}(u) = damping * sum over v with u in N(v) of r_t(v) / |N(v)| + [u in T] / |T| * s_t

    where ``s_t`` is what remains of 1: ``1 - damping``, and ``damping`` times the ranks of vertices
    without in-neighbours, whose walks start again. After ``n`` iterations, ranks are off by
    ``2 * damping^n`` in all at most. Takes 16 bytes a vertex, and 4 for the result.

    Args:
        graph: whose in-neighbours are walked to.
        train: ``[n]`` distinct vertices, at least one.
        damping: from 0 to 1.
        num_iterations: each reads all edges once.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[num_vertices]`` float32, which sum to 1.

    Raises:
        GraphError: the topology is damaged.
    """
    rank = np.zeros(graph.num_vertices)
    rank[train] = 1 / len(train)
    received = np.empty_like(rank)
    for _ in range(num_iterations):
        lost = _divide_by_degree(graph, rank)
        received[:] = 0
        with naming_graph(graph.path or graph.name):
            ops.scatter_to_neighbors(
                graph.indptr, graph.indices, rank, received, num_threads=num_threads
            )
        received *= damping
        received[train] += (1 - damping + damping * lost) / len(train)
        rank, received = received, rank
    return rank.astype(np.float32)


def _divide_by_degree(graph: Graph, rank: NDArray[np.float64]) -> float:
    """Turn ranks into what each in-neighbour gets, and return what has none to go to."""
    lost = 0.0
    for rows in slices(len(rank)):
        degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
        lost += float(rank[rows][degrees == 0].sum())
        rank[rows] /= np.maximum(degrees, 1)
    return lost
