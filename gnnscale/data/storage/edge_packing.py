"""Packing of a source vertex and 32 bits of edge data into one sortable word."""

from dataclasses import dataclass

import numpy as np

from gnnscale.core import BoolArray, Float32Array, GraphError, Int32Array, Int64Array, UInt32Array

#: Bytes of memory per edge while words are unpacked and repeated edges merged.
EDGE_BYTES = 40
_CARRIED_BITS = 32


@dataclass(frozen=True)
class EdgePayload:
    """Data of edges besides their ends, ``[num_edges]``."""

    weights: Float32Array | None = None  #: None: edges have no weights
    rows: UInt32Array | None = None  #: rows of edge features. None: edges have no features.


def weight_bits(weights: Float32Array) -> UInt32Array:
    """Return the bits of finite, non-negative ``weights``, which sort like the weights."""
    # Adding plus zero clears the sign bit of minus zero.
    bits: UInt32Array = (weights + np.float32(0)).view(np.uint32)
    return bits


def packed(src: Int64Array, carried: UInt32Array) -> Int64Array:
    """Return words of sources (below 2^31) and 32 bits, which sort like (source, bits) pairs."""
    words: Int64Array = (src << _CARRIED_BITS) | carried
    return words


def unpacked(words: Int64Array) -> tuple[Int32Array, UInt32Array]:
    """Return the sources and the 32 bits of ``words``."""
    return (words >> _CARRIED_BITS).astype(np.int32), words.astype(np.uint32)


def merged(
    offsets: Int64Array, lists: Int32Array, carried: EdgePayload, first: int
) -> tuple[Int64Array, Int32Array, EdgePayload]:
    """Merge repeated neighbors into one with the first row and the sum of the weights.

    Sums (GraphError beyond float32) are in float64 in the order of ``lists`` ``[num_edges]``, so
    that they are independent of the threads. ``first`` is the vertex of the first list.
    """
    begins = _run_begins(offsets, lists)
    if begins.all():
        return offsets, lists, carried
    first_edges = np.flatnonzero(begins)
    del begins
    weights = None if carried.weights is None else _sums(carried.weights, first_edges)
    if weights is not None and not np.isfinite(weights).all():
        edge = first_edges[np.isinf(weights).argmax()]
        owner = first + int(np.searchsorted(offsets, edge, side="right")) - 1
        raise GraphError(
            f"edge {lists[edge]} to {owner}: expected weights of repeated edges with a sum in the "
            "range of float32"
        )
    rows = None if carried.rows is None else carried.rows[first_edges]
    # Every list starts a run of equal neighbors; an empty list starts at the next run.
    new_offsets: Int64Array = np.searchsorted(first_edges, offsets)
    return new_offsets, lists[first_edges], EdgePayload(weights, rows)


def _run_begins(offsets: Int64Array, lists: Int32Array) -> BoolArray:
    """Return a mask ``[num_edges]`` of the edges that start a neighbor or a list."""
    begins = np.empty(len(lists), np.bool_)
    begins[:1] = True
    np.not_equal(lists[1:], lists[:-1], out=begins[1:])
    begins[offsets[:-1][offsets[:-1] < len(lists)]] = True
    return begins


def _sums(weights: Float32Array, first_edges: Int64Array) -> Float32Array:
    """Return the sum of each run of weights; infinity if it exceeds float32."""
    with np.errstate(over="ignore"):
        sums: Float32Array = np.add.reduceat(weights, first_edges, dtype=np.float64).astype(
            np.float32
        )
    return sums
