"""In-neighbours with weights, as words of 64 bits that are sorted as ids are.

The upper half of a word is the source, the lower half the bits of its weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import GraphError

__all__ = ["EDGE_BYTES", "added_up", "packed", "unpacked"]

#: Bytes of memory an edge, while words are taken apart and edges that repeat are added up.
EDGE_BYTES = 40
_WEIGHT_BITS = 32


def packed(src: NDArray[np.int64], weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return words of sources and weights, ordered as pairs of them are.

    Args:
        src: ``[num_edges]`` below 2^31.
        weights: ``[num_edges]``, finite and not negative, so that their bits rise as they do.
    """
    # Minus zero has the highest bit set; plus zero added to it is plus zero.
    words: NDArray[np.int64] = (src << _WEIGHT_BITS) | (weights + np.float32(0)).view(np.int32)
    return words


def unpacked(words: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the sources and the weights of ``words``."""
    return (words >> _WEIGHT_BITS).astype(np.int32), words.astype(np.uint32).view(np.float32)


def added_up(
    offsets: NDArray[np.int64], lists: NDArray[np.int32], weights: NDArray[np.float32], first: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Keep each neighbour once, with the sum of its weights; ``first`` is the first list's vertex.

    Sums are taken in float64 in ascending order, so that they depend on nothing but the weights.
    """
    begins = np.empty(len(lists), np.bool_)
    begins[:1] = True
    np.not_equal(lists[1:], lists[:-1], out=begins[1:])
    begins[offsets[:-1][offsets[:-1] < len(lists)]] = True
    if begins.all():
        return offsets, lists, weights
    places = np.flatnonzero(begins)
    del begins
    with np.errstate(over="ignore"):  # refused below
        sums = np.add.reduceat(weights, places, dtype=np.float64).astype(np.float32)
    if not np.isfinite(sums).all():
        place = places[np.isinf(sums).argmax()]
        owner = first + int(np.searchsorted(offsets, place, side="right")) - 1
        raise GraphError(
            f"edge {lists[place]} to {owner}: it repeats, and its weights sum up to more than "
            "float32 holds"
        )
    # Where a list begins, a run of equal neighbours does; an empty one begins with the next.
    new_offsets: NDArray[np.int64] = np.searchsorted(places, offsets)
    return new_offsets, lists[places], sums
