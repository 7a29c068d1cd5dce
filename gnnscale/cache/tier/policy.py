"""Rows that stay in memory for the whole run, as a policy of a tier."""

from __future__ import annotations

from collections import deque

import numpy as np

from gnnscale.cache.belady import Counts, Replaced
from gnnscale.core import Array, Int32Array

_NOTHING = np.zeros(0, np.int32)


class StaticRows:
    """Keeps the same rows from the first batch to the last."""

    def __init__(self, num_vertices: int, rows: Array) -> None:
        """Keep ``rows``, ``[k]`` distinct vertices; row ``rows[i]`` has place ``i``."""
        self._places = np.full(num_vertices, -1, np.int32)
        self._places[rows] = np.arange(len(rows), dtype=np.int32)
        self._expected: deque[Array] = deque()

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        self._expected.append(vertices)

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        return self._places[self._expected[0]]

    def advance(self) -> Replaced:
        """Serve the oldest batch expected; nothing is replaced."""
        places = self._places[self._expected.popleft()]
        hits = int((places >= 0).sum())
        counts = Counts(num_hits=hits, num_misses=len(places) - hits)
        return Replaced(counts=counts, positions=_NOTHING, slots=_NOTHING)
