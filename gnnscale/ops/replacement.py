"""Native replacement of cached rows by those of batches that are known ahead."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous, naming

__all__ = ["NativeReplacement", "Replacing"]

#: What serving a batch found and changed; see ``NativeReplacement.advance``.
Replacing: TypeAlias = "tuple[int, int, int, NDArray[np.int32], NDArray[np.int32]]"


class NativeReplacement:
    """Decides which rows a cache keeps, from the batches to come (Belady's MIN with bypass).

    Batches are expected in order, and served in that order. After a batch was served, its rows are
    on the device anyway. Of these and of the cache's, ``capacity`` are kept: those that an expected
    batch reads soonest. Rows that are read equally soon, or by no expected batch, go by descending
    priority, then by ascending vertex.

    With ``match`` (FastGL, Match) the rows of a batch stay on the device until the next one was
    served. So a row that the next batch reads as well needs no slot for that; it gets one only if
    it is free.

    Slots 0 to ``capacity - 1`` are the cache's. With ``match``, ``capacity + i`` is row ``i`` of
    the batch before, for what is not in the cache.

    It may be called from several threads, one after the other. It takes 8 bytes a vertex, 12 a
    slot, and 8 to 9 a row of the batches expected.
    """

    def __init__(self, priority: NDArray[np.int32], *, capacity: int, match: bool) -> None:
        """Begin with an empty cache.

        Args:
            priority: ``[num_vertices]`` int32, used in place.
            capacity: slots; at most ``num_vertices``.
            match: whether the rows of the batch before can be read again.

        Raises:
            MemoryError: there is not so much memory.
        """
        with naming("capacity", capacity):
            self._native = _native.Replacement(priority, capacity, match)

    @property
    def slots(self) -> NDArray[np.int32]:
        """``[num_vertices]`` int32, the slot of each vertex, -1 for none; a read-only view."""
        view: NDArray[np.int32] = self._native.slots
        return view

    def expect(self, vertices: Array, *, num_threads: int) -> None:
        """Append the next batch.

        Args:
            vertices: ``[n]`` int32 or int64, distinct; copied.
            num_threads: threads to use; the result does not depend on it.

        Raises:
            ValueError: a vertex is none or comes twice; the batch is not expected then.
        """
        with naming("vertices", vertices):
            self._native.expect(contiguous(vertices), num_threads)

    def look_up(self, *, num_threads: int) -> NDArray[np.int32]:
        """Return ``[n]`` int32, the slots of the oldest batch's vertices, -1 for none.

        Raises:
            ValueError: no batch is expected.
        """
        slots: NDArray[np.int32] = self._native.look_up(num_threads)
        return slots

    def advance(self, *, num_threads: int) -> Replacing:
        """Serve the oldest batch, and replace.

        Returns:
            The numbers of its rows that were in the cache, in the batch before, and in neither;
            then ``positions, slots`` ``[m]`` int32: row ``positions[k]`` of the batch is to be
            copied to slot ``slots[k]``.

        Raises:
            ValueError: no batch is expected.
        """
        replaced: Replacing = self._native.advance(num_threads)
        return replaced
