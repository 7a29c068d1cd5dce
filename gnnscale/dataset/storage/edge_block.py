"""The edges to a range of vertices on their way into lists: in memory, and then on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.dataset.storage.edge_file import EdgeFile

__all__ = ["EdgeBlock"]


class EdgeBlock:
    """Edges whose destinations are in a range.

    Args:
        path: of the files that edges are spilled to, without the ends of their names.
        dtype: of sources and destinations.
        first: first vertex of the range.
        last: end of the range.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.num_edges = 0
        self._path = path
        self._dtype = dtype
        self._held: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._file: EdgeFile | None = None
        #: In-degrees by edges that were spilled.
        self._spilled: NDArray[np.int64] | None = None

    def hold(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Keep edges in memory as they are."""
        self._held.append((src, dst))
        self.num_edges += len(src)

    def spill(self) -> None:
        """Write the edges that are held to disk."""
        self._spilled = self.in_degrees()
        if self._file is None:
            self._file = EdgeFile(self._path, self._dtype)
        for src, dst in self._held:
            self._file.append(src, dst)
        self._held = []

    def in_degrees(self) -> NDArray[np.int64]:
        """Return ``[last - first]`` int64, how many edges each vertex has."""
        spilled = self._spilled
        degrees = np.zeros(self.last - self.first, np.int64) if spilled is None else spilled.copy()
        for _, dst in self._held:
            ops.count_in_degrees(dst, degrees, self.first)
        return degrees

    def take(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield all edges once, in slices that leave memory and disk as they are read."""
        while self._held:
            yield self._held.pop()
        if self._file is not None:
            yield from self._file.take_last(self._file.num_edges)

    def close(self) -> None:
        """Remove the files."""
        if self._file is not None:
            self._file.close()
