"""No measure of hotness: what any other one has to be better than."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.slices import slices
from gnnscale.partition.by_id import mixed

__all__ = ["uniform"]

#: Tells the stream of this module from others of the same seed.
_STREAM = 0x686F746E657373


def uniform(num_vertices: int, seed: int) -> NDArray[np.int32]:
    """Return uniform numbers from 0 to 2^31 - 1, each a pure function of ``seed`` and vertex.

    Args:
        num_vertices: number of vertices.
        seed: 0 to 2^64 - 1.

    Returns:
        ``[num_vertices]`` int32.
    """
    key = mixed(np.array([seed ^ _STREAM], np.uint64))
    hotness = np.empty(num_vertices, np.int32)
    for rows in slices(num_vertices):
        ids = np.arange(rows.start, rows.stop, dtype=np.uint64)
        # Keys that are close together must not give each other's numbers, shifted.
        hotness[rows] = (mixed(mixed(ids) ^ key) >> np.uint64(33)).astype(np.int32)
    return hotness
