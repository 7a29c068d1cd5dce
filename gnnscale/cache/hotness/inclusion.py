"""SALIENT++'s measure of hotness: the probability that a mini-batch includes a vertex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.hotness.slices import slices
from gnnscale.graph import Graph
from gnnscale.ops.native import naming_graph

__all__ = ["inclusion_probability"]


def inclusion_probability(
    graph: Graph,
    train: NDArray[np.integer[Any]],
    fanouts: Sequence[int],
    *,
    batch_size: int,
    replace: bool = False,
    num_threads: int,
) -> NDArray[np.float32]:
    """Return the probability that a batch of neighbour sampling includes each vertex.

    The vertex-inclusion probability of SALIENT++ (Kaler et al. 2023, "Communication-efficient
    graph neural networks with probabilistic neighborhood expansion analysis and caching"): a vertex
    is missed if none of the vertices that it is an in-neighbour of picks it. These are taken to be
    independent of each other, which holds where the graph is a tree, and nearly so where
    probabilities are small.

    There, a hop expands what the hop before it reached. Here, hop h expands every vertex reached
    so far, so that one vertex may pick at several hops. With q_h(v) the probability that v is
    reached in h hops, c_h(v) that it was reached and picked a given in-neighbour by then, and
    t_h(v) that one expansion picks it, which is ``min(1, fanout / degree)``,

        c_h(v) = c_{h-1}(v) + t_h(v) (q_{h-1}(v) - c_{h-1}(v))
        q_h(u) = 1 - (1 - q_0(u)) * product over v with u in N(v) of (1 - c_h(v))

    from ``q_0 = batch_size / number of training vertices`` for these and 0 for others, and
    ``c_0 = 0``. Takes 24 bytes a vertex, and 4 for the result.

    Args:
        graph: whose in-neighbours are sampled.
        train: ``[n]`` distinct vertices, at least one.
        fanouts: neighbours a vertex, from the seeds outwards; -1 takes all.
        batch_size: seeds of a batch, drawn from ``train``.
        replace: neighbours are drawn with replacement: ``t = 1 - (1 - 1 / degree)^fanout``.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[num_vertices]`` float32.

    Raises:
        GraphError: the topology is damaged.
    """
    seeded = min(1.0, batch_size / len(train))
    reached = np.zeros(graph.num_vertices)
    reached[train] = seeded
    picked = np.zeros_like(reached)
    missed = np.empty_like(reached)
    with np.errstate(divide="ignore"):  # what is certain is missed with probability exp(-inf)
        for fanout in fanouts:
            for rows in slices(len(reached)):
                degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
                share = _share_picked(degrees, fanout, replace)
                picked[rows] += share * (reached[rows] - picked[rows])
                np.log1p(-np.minimum(picked[rows], 1), out=missed[rows])
            reached[:] = 0
            reached[train] = np.log1p(-seeded)
            with naming_graph(graph.path or graph.name):
                ops.scatter_to_neighbors(
                    graph.indptr, graph.indices, missed, reached, num_threads=num_threads
                )
            np.subtract(0, np.expm1(reached, out=reached), out=reached)
    return reached.astype(np.float32)


def _share_picked(
    degrees: NDArray[np.int64], fanout: int, replace: bool
) -> NDArray[np.floating[Any]]:
    """Return the probability that an expanded vertex picks a given one of its in-neighbours."""
    inverse: NDArray[np.float64] = 1 / np.maximum(degrees, 1)
    if fanout == -1:
        return np.ones_like(inverse)
    missed: NDArray[np.float64] = 1 - fanout * inverse
    if replace:
        missed = (1 - inverse) ** fanout
    return 1 - np.maximum(missed, 0)
