"""Words of a source and what its edge carries, sorted as one; and edges that repeat."""

from dataclasses import dataclass

import numpy as np

from gnnscale.core import BoolArray, Float32Array, GraphError, Int32Array, Int64Array, UInt32Array

#: Bytes of memory an edge, while words are taken apart and edges that repeat become one.
EDGE_BYTES = 40
_CARRIED_BITS = 32


@dataclass(frozen=True)
class EdgePayload:
    """What edges carry, ``[num_edges]`` each, or None."""

    weights: Float32Array | None = None
    rows: UInt32Array | None = None  #: of the features of edges


def weight_bits(weights: Float32Array) -> UInt32Array:
    """Return the bits of finite, not negative ``weights``, which rise as they do."""
    # Minus zero has the highest bit set; plus zero added to it is plus zero.
    bits: UInt32Array = (weights + np.float32(0)).view(np.uint32)
    return bits


def packed(src: Int64Array, carried: UInt32Array) -> Int64Array:
    """Return words of sources below 2^31 and 32 bits each, ordered as pairs of them are."""
    words: Int64Array = (src << _CARRIED_BITS) | carried
    return words


def unpacked(words: Int64Array) -> tuple[Int32Array, UInt32Array]:
    """Return the sources and the 32 bits of ``words``."""
    return (words >> _CARRIED_BITS).astype(np.int32), words.astype(np.uint32)


def merged(
    offsets: Int64Array, lists: Int32Array, carried: EdgePayload, first: int
) -> tuple[Int64Array, Int32Array, EdgePayload]:
    """Keep each neighbour once, with its first row and the sum of its weights.

    ``first`` is the first list's vertex. Sums are taken in float64, in the order of the edges:
    ascending if words carried the weights, so that they depend on these alone; else by rows.
    """
    begins = _run_begins(offsets, lists)
    if begins.all():
        return offsets, lists, carried
    places = np.flatnonzero(begins)
    del begins
    weights = None if carried.weights is None else _sums(carried.weights, places)
    if weights is not None and not np.isfinite(weights).all():
        place = places[np.isinf(weights).argmax()]
        owner = first + int(np.searchsorted(offsets, place, side="right")) - 1
        raise GraphError(
            f"edge {lists[place]} to {owner}: it repeats, and its weights sum up to more than "
            "float32 holds"
        )
    rows = None if carried.rows is None else carried.rows[places]
    # Where a list begins, a run of equal neighbours does; an empty one begins with the next.
    new_offsets: Int64Array = np.searchsorted(places, offsets)
    return new_offsets, lists[places], EdgePayload(weights, rows)


def _run_begins(offsets: Int64Array, lists: Int32Array) -> BoolArray:
    """Return ``[num_edges]``, whether another neighbour, or another list, begins there."""
    begins = np.empty(len(lists), np.bool_)
    begins[:1] = True
    np.not_equal(lists[1:], lists[:-1], out=begins[1:])
    begins[offsets[:-1][offsets[:-1] < len(lists)]] = True
    return begins


def _sums(weights: Float32Array, places: Int64Array) -> Float32Array:
    """Return the sum of each run of weights; the caller refuses infinity."""
    with np.errstate(over="ignore"):
        sums: Float32Array = np.add.reduceat(weights, places, dtype=np.float64).astype(np.float32)
    return sums
