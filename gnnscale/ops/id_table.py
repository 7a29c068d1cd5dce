"""Native tables from ids of any kind to their places in the list that they come from."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, naming

__all__ = ["IntegerIds", "TextIds"]


class IntegerIds:
    """The place of each id in a list of whole numbers.

    A hash table of 16 bytes a slot, of which at most half are taken; where the ids lie
    in a range of at most eight times their number, a table of 4 bytes for each number of the range.
    It never changes, and may be used by several threads.
    """

    def __init__(self, ids: NDArray[np.int64]) -> None:
        """Make the table of ``[num_ids]`` int64.

        Raises:
            MemoryError: there is not so much memory.
        """
        with naming("ids", _size(ids)):
            self._native = _native.IntegerIds(ids, secrets.randbits(64))

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Two places with the same id, the later one the smallest that there is; else None.

        Where an id is repeated, nothing after it is found.
        """
        places: tuple[int, int] | None = self._native.repeated
        return places

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return int(self._native.num_bytes)

    def find(self, wanted: NDArray[np.int64], *, num_threads: int) -> tuple[Array, int]:
        """Return the place of each of ``wanted``, int32 where that can hold all, else int64.

        Returns:
            ``[num_wanted]`` places, -1 for an id that is not in the list; and the number of the
            first such one in ``wanted``, -1 where there is none.
        """
        places, unknown = self._native.find(wanted, num_threads)
        return places, int(unknown)


class TextIds:
    """The same of ids that are texts, compared byte by byte.

    Text ``i`` has the bytes from ``offsets[i]`` to ``offsets[i + 1]``, as in Arrow's large_string.
    The table has a copy of them.
    """

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        """Make the table.

        Args:
            offsets: ``[num_ids + 1]`` int64 from 0 to the length of ``data``.
            data: uint8.

        Raises:
            ValueError: the offsets are none.
            MemoryError: there is not so much memory.
        """
        with naming("offsets", _size(offsets)):
            self._native = _native.TextIds(offsets, data, secrets.randbits(64))

    @property
    def repeated(self) -> tuple[int, int] | None:
        """As in ``IntegerIds``."""
        places: tuple[int, int] | None = self._native.repeated
        return places

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return int(self._native.num_bytes)

    def find(
        self, offsets: NDArray[np.int64], data: NDArray[np.uint8], *, num_threads: int
    ) -> tuple[Array, int]:
        """As in ``IntegerIds``; the texts are as there at the beginning.

        Raises:
            ValueError: the offsets are none.
        """
        places, unknown = self._native.find(offsets, data, num_threads)
        return places, int(unknown)


def _size(array: object) -> int:
    """Return how many entries an array has, for errors; 0 for what is none."""
    return array.size if isinstance(array, np.ndarray) else 0
