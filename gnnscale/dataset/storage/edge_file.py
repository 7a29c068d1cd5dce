"""Edges on disk for a while: written anywhere, read once from the end, freed as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EdgeFile"]

_SLICE_EDGES = 1 << 20
#: Collects the few edges of small slices, so that each is not a write of its own.
_BUFFER_BYTES = 64 << 10


class EdgeFile:
    """Sources and destinations of edges, a file of each.

    Args:
        path: of both files, without the ends of their names.
        dtype: of vertex ids.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._paths = [path.with_name(f"{path.name}.{end}") for end in ("src", "dst")]
        self._files = [each.open("w+b", buffering=_BUFFER_BYTES) for each in self._paths]
        self.num_edges = 0

    def append(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Write edges after those that are there."""
        self.write(self.num_edges, src, dst)
        self.num_edges += len(src)

    def write(self, place: int, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Write edges from the edge number ``place`` on; ``num_edges`` is the caller's to set."""
        for file, ends in zip(self._files, (src, dst), strict=True):
            if file.tell() != place * self._dtype.itemsize:
                file.seek(place * self._dtype.itemsize)
            file.write(np.ascontiguousarray(ends, self._dtype).data)

    def take_last(self, num_edges: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield the last ``num_edges`` edges in slices, which leave the disk as they are read."""
        end = self.num_edges
        while self.num_edges > end - num_edges:
            first = max(end - num_edges, self.num_edges - _SLICE_EDGES)
            ends = [self._read(file, first) for file in self._files]
            for file in self._files:
                file.truncate(first * self._dtype.itemsize)
            self.num_edges = first
            yield ends[0], ends[1]

    def _read(self, file: Any, first: int) -> NDArray[Any]:
        # Read, not mapped: mapped pages would count as memory of this process.
        file.seek(first * self._dtype.itemsize)
        return np.fromfile(file, self._dtype, self.num_edges - first)

    def close(self) -> None:
        """Remove the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            with suppress(OSError):  # on a full disk even closing can fail
                file.close()
            path.unlink(missing_ok=True)
