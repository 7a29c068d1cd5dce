"""Vertex-inclusion probability of a mini-batch, SALIENT++'s measure of hotness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.hotness.degree import slices
from gnnscale.core import Float32Array, Float64Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.ops import naming_graph


@dataclass(frozen=True, kw_only=True)
class Inclusion:
    """Expected reads of each vertex by a mini-batch."""

    #: ``[num_vertices]`` float32 probability that the vertex is an input vertex
    probability: Float32Array
    #: ``[num_vertices]`` float32 mean reads of the vertex's list: one per traversed edge, and one
    #: per visit for the offsets
    lists: Float32Array


def inclusion(
    graph: Graph,
    train: IntArray,
    fanouts: Sequence[int],
    *,
    batch_size: float,
    replace: bool = False,
    num_threads: int,
) -> Inclusion:
    """Return the expected reads of each vertex by a batch of neighbor sampling.

    This is the vertex-inclusion probability of SALIENT++ (Kaler et al. 2023,
    "Communication-efficient graph neural networks with probabilistic neighborhood expansion
    analysis and caching"): a vertex is missed if no vertex with it as an in-neighbor picks it. The
    picks are assumed independent, which is exact on a tree, and nearly so for small probabilities.

    In the paper, a hop expands the vertices that the previous hop reached. Here, hop h expands
    every vertex reached before it, so a vertex may pick at several hops. Let q_h(v) be the
    probability that v is reached in h hops, c_h(v) that v has been reached and has picked a given
    in-neighbor by then, and t_h(v) that one expansion picks it, which is ``min(1, fanout /
    degree)``. Then

        c_h(v) = c_{h-1}(v) + t_h(v) (q_{h-1}(v) - c_{h-1}(v))
        q_h(u) = 1 - (1 - q_0(u)) * product over v with u in N(v) of (1 - c_h(v))

    with ``c_0 = 0``, and ``q_0 = batch_size / number of training vertices`` for training vertices
    and 0 for all other vertices. If v was reached before hop h, the hop traverses m_h(v) =
    ``min(degree, fanout)`` edges from v, and reads the offsets of its list. With ``replace``, ``t =
    1 - (1 - 1 / degree)^fanout``. Takes 24 bytes per vertex, and 8 for the result.

    Args:
        train: ``[n]`` distinct vertices, at least one.
        fanouts: neighbors per vertex, from the seeds outwards; -1 takes all.
        batch_size: mean of the seeds of a batch, drawn from ``train``.
        replace: whether neighbors are sampled with replacement.
    """
    num_vertices = graph.num_vertices
    seeded = min(1.0, batch_size / len(train))
    probability, picked, missed = (np.zeros(num_vertices) for _ in range(3))
    probability[train] = seeded
    lists = np.zeros(num_vertices, np.float32)
    with np.errstate(divide="ignore"):  # a certain vertex has log1p(-1) = -inf
        for fanout in fanouts:
            for rows in slices(num_vertices):
                degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
                lists[rows] += probability[rows] * (_num_picked(degrees, fanout, replace) + 1)
                share = _share_picked(degrees, fanout, replace)
                picked[rows] += share * (probability[rows] - picked[rows])
                np.log1p(-np.minimum(picked[rows], 1), out=missed[rows])
            probability[:] = 0
            probability[train] = np.log1p(-seeded)
            with naming_graph(graph.path or graph.name):
                topology = graph.indptr, graph.indices
                ops.scatter_to_neighbors(*topology, missed, probability, num_threads=num_threads)
            np.subtract(0, np.expm1(probability, out=probability), out=probability)
    return Inclusion(probability=probability.astype(np.float32), lists=lists)


def _num_picked(degrees: Int64Array, fanout: int, replace: bool) -> Int64Array:
    """Return m, the edges that an expansion traverses from each vertex."""
    if fanout == -1:
        return degrees
    if replace:
        return np.where(degrees, fanout, 0)
    return np.minimum(degrees, fanout)


def _share_picked(degrees: Int64Array, fanout: int, replace: bool) -> NDArray[np.floating[Any]]:
    """Return the probability that an expanded vertex picks a given in-neighbor."""
    inverse: Float64Array = 1 / np.maximum(degrees, 1)
    if fanout == -1:
        return np.ones_like(inverse)
    missed: Float64Array = 1 - fanout * inverse
    if replace:
        missed = (1 - inverse) ** fanout
    return 1 - np.maximum(missed, 0)
