"""Native operations of edge-cut partitioners: undirected graphs, coarse graphs, better parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array

__all__ = [
    "Contracted",
    "Refined",
    "UndirectedLists",
    "contract",
    "find_clusters",
    "make_undirected",
    "refine",
    "write_metis",
]

#: Weights of a vertex.
_MAX_WEIGHTS = 8


class UndirectedLists(NamedTuple):
    """Neighbour lists without loops and duplicates, in both directions of every edge.

    Attributes:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[2 * undirected edges]``, of the type given, each list ascending.
        num_loops: entries dropped since they were loops.
        num_duplicates: further entries dropped since they stood there before.
        num_one_way: edges whose reverse was added.
    """

    indptr: NDArray[np.int64]
    indices: Array
    num_loops: int
    num_duplicates: int
    num_one_way: int


def make_undirected(indptr: NDArray[np.int64], indices: Array, num_threads: int) -> UndirectedLists:
    """Return the undirected simple graph below a topology.

    Lists that are such already are returned as they are, found so in one pass with 8 bytes a
    vertex. Otherwise the result is a copy, and two for a moment where something is dropped as well
    as added.

    Raises:
        ValueError: an offset or an id is none.
    """
    lists, *dropped = _native.undirected(indptr, indices, num_threads)
    return UndirectedLists(*(lists or (indptr, indices)), *dropped)


def write_metis(
    fd: int,
    indptr: NDArray[np.int64],
    indices: Array,
    *,
    vertex_weights: NDArray[np.int64] | None = None,
    edge_weights: NDArray[np.int32] | None = None,
    num_threads: int,
) -> int:
    """Write an undirected graph to the open file ``fd`` in the text format of METIS's manual.

    Args:
        fd: descriptor of the file, at the place to write to.
        indptr: ``[num_vertices + 1]``.
        indices: both directions of every edge.
        vertex_weights: ``[num_vertices]``; None leaves them out.
        edge_weights: the same of ``[len(indices)]``.
        num_threads: threads to use; each holds some MiB of text.

    Returns:
        The number of bytes.

    Raises:
        OSError: the file cannot be written.
        ValueError: an offset or an id is none.
    """
    return int(_native.write_metis(fd, indptr, indices, vertex_weights, edge_weights, num_threads))


class Refined(NamedTuple):
    """What became of a cut, the weight of undirected edges between parts.

    Attributes:
        cut_before: as it was.
        cut_balanced: after vertices were moved for balance.
        cut: after moves that lower it; never above ``cut_balanced``.
        within: no part weighs more than it may.
    """

    cut_before: int
    cut_balanced: int
    cut: int
    within: bool


def refine(
    indptr: NDArray[np.int64],
    indices: Array,
    *,
    vertex_weights: NDArray[np.int64],
    max_weights: NDArray[np.int64],
    owner: NDArray[np.int32],
    edge_weights: NDArray[np.int32] | None = None,
    labels: NDArray[np.int32] | None = None,
    num_clusters: int = 0,
    num_rounds: int,
    num_threads: int,
) -> Refined:
    """Move vertices between parts, in place, for balance and then for a lower cut.

    First, while a part weighs more than it may, the moves that cost least cut for what they bring.
    Then rounds of moves that fit and lower the cut, best first, and of hill climbing where its
    table of connections is small (2^24 entries). The answer does not depend on ``num_threads``.

    Args:
        indptr: ``[num_vertices + 1]`` of an undirected graph.
        indices: both directions of every edge.
        vertex_weights: ``[num_vertices, num_weights]``, from 0 to 2^31, up to 8 weights.
        max_weights: ``[num_parts, num_weights]``, what parts may weigh.
        owner: ``[num_vertices]``, changed in place.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        labels: ``[num_vertices]``, the cluster of each vertex: clusters move as wholes, each of one
            owner, and climb no hills; None for single vertices.
        num_clusters: number of clusters, 0 without.
        num_rounds: most rounds of the second phase.
        num_threads: threads to use.

    Raises:
        ValueError: an offset, an id, a weight or an owner is none.
    """
    num_parts, num_weights = _shape(max_weights, "max_weights")
    if num_parts == 0:
        raise ValueError("max_weights: no row, allowed is one for each part")
    return Refined(
        *_native.refine(
            *(indptr, indices, edge_weights),
            *(_flat(vertex_weights, "vertex_weights", num_weights), num_weights),
            *(_flat(max_weights, "max_weights", num_weights), owner, num_parts),
            *(labels, num_clusters, num_rounds, num_threads),
        )
    )


def find_clusters(
    indptr: NDArray[np.int64],
    indices: Array,
    *,
    vertex_weights: NDArray[np.int64],
    max_weights: NDArray[np.int64],
    edge_weights: NDArray[np.int32] | None = None,
    owner: NDArray[np.int32] | None = None,
    num_rounds: int,
) -> tuple[NDArray[np.int32], int]:
    """Put vertices that are much connected into clusters by size-constrained label propagation.

    Meyerhenke, Sanders and Schulz, SEA 2014. Takes some 50 bytes a vertex.

    Args:
        indptr: ``[num_vertices + 1]`` of an undirected graph.
        indices: both directions of every edge.
        vertex_weights: ``[num_vertices, num_weights]``.
        max_weights: ``[num_weights]``, what a cluster of several vertices may weigh.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        owner: ``[num_vertices]``, parts that clusters are to stay within; None for none.
        num_rounds: how often every vertex may go to another cluster.

    Returns:
        ``(labels, num_clusters)``: ``[num_vertices]``, clusters numbered from 0.

    Raises:
        ValueError: an offset, an id or a weight is none.
    """
    if not isinstance(max_weights, np.ndarray):
        raise TypeError(f"max_weights: {type(max_weights).__name__}, allowed is int64")
    num_weights = _shape(vertex_weights, "vertex_weights")[1]
    result: tuple[NDArray[np.int32], int] = _native.clusters(
        *(indptr, indices, edge_weights),
        *(_flat(vertex_weights, "vertex_weights", num_weights), num_weights, max_weights),
        *(num_rounds, owner),
    )
    return result


class Contracted(NamedTuple):
    """A graph of clusters.

    Attributes:
        indptr: ``[num_clusters + 1]`` int64.
        indices: int32, both directions of every edge.
        edge_weights: int32, of each.
        vertex_weights: ``[num_clusters, num_weights]`` int64.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    edge_weights: NDArray[np.int32]
    vertex_weights: NDArray[np.int64]


def contract(
    indptr: NDArray[np.int64],
    indices: Array,
    *,
    vertex_weights: NDArray[np.int64],
    edge_weights: NDArray[np.int32] | None = None,
    labels: NDArray[np.int32],
    num_clusters: int,
    threshold: int = 1,
    num_threads: int,
) -> Contracted:
    """Make each cluster one vertex, with the weights of its vertices and edges added up.

    With a ``threshold``, lighter edges stay with the probability of their weight over it and then
    weigh as much: cuts keep their weight on average, and there are at most about as many edges as
    all weigh over the threshold. Which ones stay is a function of the clusters' numbers.

    Args:
        indptr: ``[num_vertices + 1]`` of an undirected graph.
        indices: both directions of every edge.
        vertex_weights: ``[num_vertices, num_weights]``.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        labels: ``[num_vertices]``, the cluster of each vertex.
        num_clusters: number of clusters.
        threshold: see above; 1 keeps all edges.
        num_threads: threads to use.

    Raises:
        ValueError: an offset, an id, a weight or a label is none.
    """
    num_weights = _shape(vertex_weights, "vertex_weights")[1]
    new_indptr, new_indices, new_edges, weights = _native.contract(
        *(indptr, indices, edge_weights),
        *(_flat(vertex_weights, "vertex_weights", num_weights), num_weights, labels),
        *(num_clusters, threshold, num_threads),
    )
    return Contracted(new_indptr, new_indices, new_edges, weights.reshape(-1, num_weights))


def _shape(table: Any, name: str) -> tuple[int, int]:
    if not isinstance(table, np.ndarray):
        raise TypeError(f"{name}: {type(table).__name__}, allowed is int64")
    if table.ndim != 2:
        raise ValueError(f"{name}: shape {list(table.shape)}, allowed are arrays of two axes")
    if not 1 <= table.shape[1] <= _MAX_WEIGHTS:
        raise ValueError(f"{name}: {table.shape[1]} weights, allowed are 1 to {_MAX_WEIGHTS}")
    return table.shape[0], table.shape[1]


def _flat(table: Any, name: str, width: int) -> Array:
    """Return rows of ``width`` weights one after another, in place."""
    if _shape(table, name)[1] != width:
        raise ValueError(
            f"{name}: {table.shape[1]} weights, must be {width}, as vertex_weights and max_weights "
            "have"
        )
    if not table.flags.c_contiguous:
        raise ValueError(f"{name}: rows with gaps, allowed are contiguous arrays")
    row: Array = table.reshape(-1)
    return row
