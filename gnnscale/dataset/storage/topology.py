"""Edges in any order → in-neighbour lists (CSC) on disk, by counting sort with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.dataset.formats.npy import NpyWriter
from gnnscale.graph import vertex_dtype
from gnnscale.hardware import usable_cores
from gnnscale.progress import track

__all__ = ["SELF_LOOPS", "EdgeSpool"]

#: What may be done with edges from a vertex to itself: as published, none, exactly one a vertex.
SELF_LOOPS = ("keep", "remove", "add")
_SLICE_EDGES = 4 << 20


class EdgeSpool:
    """Edges in order of arrival, on disk, with in-degrees counted as they pass.

    Self-loops are spooled apart, since a loop has no reverse to add.

    Args:
        folder: where the temporary files go.
        num_vertices: all ids are below this; the caller has checked them.
        undirected: every edge also stands for its reverse.
        self_loops: one of ``SELF_LOOPS``.
    """

    def __init__(
        self, folder: Path, *, num_vertices: int, undirected: bool, self_loops: str
    ) -> None:
        self.num_vertices = num_vertices
        self.num_edges = 0
        self._undirected = undirected
        self._self_loops = self_loops
        self._dtype = vertex_dtype(num_vertices)
        self._paths = [folder / f"{end}.spool" for end in ("src", "dst", "loops")]
        self._files = [path.open("w+b") for path in self._paths]
        self._in_degrees = np.zeros(num_vertices, np.int64)

    def add(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``."""
        loop = src == dst
        if loop.any():
            if self._self_loops == "keep":
                self._append(self._files[2:], src[loop])
            src, dst = src[~loop], dst[~loop]
        src, dst = self._append(self._files[:2], src, dst)
        if self._undirected:
            ops.count_in_degrees(src, self._in_degrees)
        self.num_edges += len(src)

    def _append(self, files: list[Any], *ends: NDArray[Any]) -> list[NDArray[Any]]:
        """Write one array to each file, and count the last as destinations."""
        arrays = [np.ascontiguousarray(end, dtype=self._dtype) for end in ends]
        for file, array in zip(files, arrays, strict=True):
            file.write(array.data)
        ops.count_in_degrees(arrays[-1], self._in_degrees)
        return arrays

    def build(self, path: Path, *, drop_duplicates: bool, memory_bytes: int) -> dict[str, Any]:
        """Write ``indptr.npy`` and ``indices.npy`` into ``path``.

        Destinations are taken in ranges whose neighbour lists fit in ``memory_bytes``; each range
        scans all spooled edges. The offsets (8 bytes a vertex) come on top, and a single
        neighbour list larger than the budget still has to fit.

        Returns:
            The two files' entries in ``meta.json``.
        """
        if self._self_loops == "add":
            self._in_degrees += 1
        bounds = np.concatenate([[0], np.cumsum(self._in_degrees)])
        indptr, indices = (
            NpyWriter(path / f"{name}.npy", dtype)
            for name, dtype in (("indptr", np.dtype(np.int64)), ("indices", self._dtype))
        )
        ranges = list(self._ranges(bounds, memory_bytes // (self._dtype.itemsize + 8)))
        written = 0
        indptr.append(np.zeros(1, np.int64))
        try:
            with track("building CSC", len(ranges) * self.num_edges, "edges") as advance:
                for first, last in ranges:
                    out = np.empty(bounds[last] - bounds[first], self._dtype)
                    offsets = bounds[first : last + 1] - bounds[first]
                    self._fill(first, last, offsets[:-1].copy(), out, advance)
                    offsets = ops.csc_sort(offsets, out, drop_duplicates, usable_cores())
                    indices.append(out[: offsets[-1]])
                    indptr.append(offsets[1:] + written)
                    written += int(offsets[-1])
            return {"indptr": indptr.close(), "indices": indices.close()}
        finally:
            indptr.abandon()
            indices.abandon()

    def _ranges(self, bounds: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
        first = 0
        while first < self.num_vertices:
            last = int(np.searchsorted(bounds, bounds[first] + limit, side="right")) - 1
            last = max(first + 1, min(last, first + limit))
            yield first, last
            first = last

    def _fill(
        self, first: int, last: int, cursor: NDArray[np.int64], out: NDArray[Any], advance: Any
    ) -> None:
        for src, dst in self._spooled(self._files[:2]):
            ops.csc_fill(src, dst, first, last, cursor, out)
            if self._undirected:
                ops.csc_fill(dst, src, first, last, cursor, out)
            advance(len(src))
        for (loops,) in self._spooled(self._files[2:]):
            ops.csc_fill(loops, loops, first, last, cursor, out)
        if self._self_loops == "add":
            every = np.arange(first, last, dtype=self._dtype)
            ops.csc_fill(every, every, first, last, cursor, out)

    def _spooled(self, files: list[Any]) -> Iterator[list[NDArray[Any]]]:
        # Read, not mapped: mapped pages would count as memory of this process.
        for file in files:
            file.seek(0)
        while True:
            parts = [np.fromfile(file, self._dtype, _SLICE_EDGES) for file in files]
            if not len(parts[0]):
                return
            yield parts

    def close(self) -> None:
        """Remove the temporary files."""
        for file, path in zip(self._files, self._paths, strict=True):
            with suppress(OSError):  # on a full disk even closing can fail
                file.close()
            path.unlink(missing_ok=True)
