"""Native slots of cached rows that stay: some bits a vertex in the place of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous, naming

__all__ = ["RankedSlots"]


class RankedSlots:
    """The slot of every vertex whose row lies in a cache; see ``cached_rows``.

    A bitmap of the cached vertices, with the number of them before each 64 of its bits, gives a
    vertex's rank among them (Jacobson, "Space-efficient static trees and graphs", FOCS 1989). That
    is its slot, where all rows lie in ascending order of their vertices; otherwise a table of the
    cached vertices alone has the slots. So it takes 1/4 byte a vertex, and 4 a cached one where
    there is a table. What is read most stays in the processor's caches.

    It never changes, and may be used by several threads.
    """

    def __init__(self, num_vertices: int, members: Sequence[Array]) -> None:
        """Number the rows of all members, one member after the other.

        Args:
            num_vertices: of the graph.
            members: a list of at most 1024 ``[n_k]`` int32 or int64 vertices whose rows cache
                ``k`` keeps, in the order of these; at most 2^31 - 1 in all. A vertex that several
                rows are of has the slot of the last.

        Raises:
            ValueError: a vertex is none.
            MemoryError: there is not so much memory.
        """
        if isinstance(members, (list, tuple)):
            members = [contiguous(vertices) for vertices in members]
        with naming("num_vertices", num_vertices):
            self._native = _native.RankedSlots(num_vertices, members)

    @property
    def starts(self) -> NDArray[np.int64]:
        """``[K + 1]`` int64, the slot of each member's first row, and the number of all rows."""
        starts: NDArray[np.int64] = self._native.starts
        return starts

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return int(self._native.num_bytes)
