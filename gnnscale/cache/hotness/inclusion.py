"""SALIENT++'s measure of hotness: the probability that a mini-batch includes a vertex."""

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
    """What a mini-batch is expected to read of each vertex."""

    #: ``[num_vertices]`` float32, that its input vertices have the vertex
    probability: Float32Array
    #: ``[num_vertices]`` float32, mean of its reads of the list of the vertex: of each edge that it
    #: traverses, and of the offsets, once a visit
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
    """Return what a batch of neighbour sampling is expected to read of each vertex.

    The vertex-inclusion probability of SALIENT++ (Kaler et al. 2023, "Communication-efficient
    graph neural networks with probabilistic neighborhood expansion analysis and caching"): a vertex
    is missed if none of the vertices that it is an in-neighbour of picks it. These are taken to be
    independent, which holds if the graph is a tree, and nearly if probabilities are small.

    There, a hop expands what the hop before it reached. Here, hop h expands every vertex reached
    so far, so that one vertex may pick at several hops. With q_h(v) the probability that v is
    reached in h hops, c_h(v) that it was reached and picked a given in-neighbour by then, and
    t_h(v) that one expansion picks it, which is ``min(1, fanout / degree)``,

        c_h(v) = c_{h-1}(v) + t_h(v) (q_{h-1}(v) - c_{h-1}(v))
        q_h(u) = 1 - (1 - q_0(u)) * product over v with u in N(v) of (1 - c_h(v))

    from ``q_0 = batch_size / number of training vertices`` for these and 0 for others, and
    ``c_0 = 0``. Hop h traverses m_h(v) edges from v, ``min(degree, fanout)``, and reads the offsets
    of its list, if v was reached before it. With ``replace``, ``t = 1 - (1 - 1 / degree)^fanout``.

    Args:
        graph: whose in-neighbours are sampled; takes 24 bytes per vertex, and 8 for the result.
        train: ``[n]`` distinct vertices, at least one.
        fanouts: neighbours per vertex, from the seeds outwards; -1 takes all.
        batch_size: mean of the seeds of a batch, drawn from ``train``.
        replace: whether neighbours are drawn with replacement.
        num_threads: does not change the result.

    Raises:
        GraphError: the topology is damaged.
    """
    num_vertices = graph.num_vertices
    seeded = min(1.0, batch_size / len(train))
    reached, picked, missed = (np.zeros(num_vertices) for _ in range(3))
    reached[train] = seeded
    lists = np.zeros(num_vertices, np.float32)
    with np.errstate(divide="ignore"):  # what is certain is missed with probability exp(-inf)
        for fanout in fanouts:
            for rows in slices(num_vertices):
                degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
                lists[rows] += reached[rows] * (_num_picked(degrees, fanout, replace) + 1)
                share = _share_picked(degrees, fanout, replace)
                picked[rows] += share * (reached[rows] - picked[rows])
                np.log1p(-np.minimum(picked[rows], 1), out=missed[rows])
            reached[:] = 0
            reached[train] = np.log1p(-seeded)
            _add_to_neighbors(graph, missed, reached, num_threads)
            np.subtract(0, np.expm1(reached, out=reached), out=reached)
    return Inclusion(probability=reached.astype(np.float32), lists=lists)


def _add_to_neighbors(
    graph: Graph, values: Float64Array, sums: Float64Array, num_threads: int
) -> None:
    with naming_graph(graph.path or graph.name):
        ops.scatter_to_neighbors(graph.indptr, graph.indices, values, sums, num_threads=num_threads)


def _num_picked(degrees: Int64Array, fanout: int, replace: bool) -> Int64Array:
    """Return m, the edges that one expansion traverses from each vertex."""
    if fanout == -1:
        return degrees
    if replace:
        return np.where(degrees, fanout, 0)
    return np.minimum(degrees, fanout)


def _share_picked(degrees: Int64Array, fanout: int, replace: bool) -> NDArray[np.floating[Any]]:
    """Return the probability that an expanded vertex picks a given one of its in-neighbours."""
    inverse: Float64Array = 1 / np.maximum(degrees, 1)
    if fanout == -1:
        return np.ones_like(inverse)
    missed: Float64Array = 1 - fanout * inverse
    if replace:
        missed = (1 - inverse) ** fanout
    return 1 - np.maximum(missed, 0)
