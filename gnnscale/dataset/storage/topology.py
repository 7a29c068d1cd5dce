"""Edges in any order → in-neighbour lists (CSC) on disk, by bucket and counting sort.

Edges go to blocks of destinations as they arrive, a file for each; then block by block is sorted in
memory. A block whose lists exceed the memory allowed is cut into ranges first. So every edge is
written once or twice and read as often, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.dataset.formats.npy import NpyWriter
from gnnscale.dataset.storage.edge_file import EdgeFile
from gnnscale.graph import vertex_dtype
from gnnscale.hardware import usable_cores
from gnnscale.progress import track

__all__ = ["SELF_LOOPS", "EdgeSpool"]

#: What may be done with edges from a vertex to itself: as published, none, exactly one a vertex.
SELF_LOOPS = ("keep", "remove", "add")
#: Slices of edges, each its sources and destinations.
_Edges: TypeAlias = "Iterator[tuple[NDArray[Any], NDArray[Any]]]"
_SLICE_EDGES = 1 << 20
#: Files of blocks that are open at once, two a block, and the fewest vertices worth a block.
_MAX_BLOCKS = 64
_MIN_BLOCK_BITS = 16
#: Bytes a vertex while a range is sorted: where its list begins, is filled, and begins at last.
_VERTEX_BYTES = 24


class EdgeSpool:
    """Edges on disk in blocks of destinations, with in-degrees counted as they pass.

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
        self._folder = folder
        self._undirected = undirected
        self._self_loops = self_loops
        self._dtype = vertex_dtype(num_vertices)
        self._block_bits = max(_MIN_BLOCK_BITS, ((num_vertices - 1) // _MAX_BLOCKS).bit_length())
        num_blocks = ((num_vertices - 1) >> self._block_bits) + 1
        self._files: list[EdgeFile] = []
        for number in range(num_blocks):
            self._files.append(EdgeFile(folder / f"block{number}", self._dtype))
        self._blocks = tuple(self._files)
        #: In-degrees from its second entry on while edges arrive, then offsets.
        self._bounds = np.zeros(num_vertices + 1, np.int64)

    def add(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``."""
        for first in range(0, len(src), _SLICE_EDGES):
            part = slice(first, first + _SLICE_EDGES)
            self._add(*(np.ascontiguousarray(ends[part], self._dtype) for ends in (src, dst)))

    def _add(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        loop = src == dst
        if loop.any():
            if self._self_loops == "keep":  # a loop has no reverse to add
                self._scatter(src[loop], src[loop])
            src, dst = src[~loop], dst[~loop]
        self._scatter(src, dst)
        if self._undirected:
            self._scatter(dst, src)

    def _scatter(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Append edges to the blocks of their destinations."""
        blocks = np.arange(len(self._blocks), dtype=np.int32)
        src, dst, starts = ops.csc_scatter(src, dst, blocks, len(blocks), shift=self._block_bits)
        ops.count_in_degrees(dst, self._bounds[1:])
        for block, first, last in zip(self._blocks, starts, starts[1:], strict=False):
            if first < last:
                block.append(src[first:last], dst[first:last])

    def build(self, path: Path, *, drop_duplicates: bool, memory_bytes: int) -> dict[str, Any]:
        """Write ``indptr.npy`` and ``indices.npy`` into ``path``; see ``sort``.

        Returns:
            The two files' entries in ``meta.json``.
        """
        indptr, indices = (
            NpyWriter(path / f"{name}.npy", dtype)
            for name, dtype in (("indptr", np.dtype(np.int64)), ("indices", self._dtype))
        )
        written = 0
        indptr.append(np.zeros(1, np.int64))
        try:
            for _, offsets, lists in self.sort(drop_duplicates, memory_bytes):
                indices.append(lists)
                indptr.append(offsets[1:] + written)
                written += len(lists)
            return {"indptr": indptr.close(), "indices": indices.close()}
        finally:
            indptr.abandon()
            indices.abandon()

    def sort(
        self, drop_duplicates: bool, memory_bytes: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any]]]:
        """Yield ranges of vertices with their sorted in-neighbours; done once, no edge may follow.

        Ranges are such that their lists are sorted in ``memory_bytes``. The offsets (8 bytes a
        vertex) come on top, and a single neighbour list larger than that still has to fit.

        Yields:
            The first vertex, the lists' offsets from 0 on, and the lists.
        """
        if self._self_loops == "add":
            self._bounds[1:] += 1
        np.cumsum(self._bounds, out=self._bounds)
        with track("building CSC", int(self._bounds[-1]), "edges") as advance:
            for first, last, edges in self._ranges(memory_bytes):
                yield first, *self._sorted(first, last, edges, drop_duplicates)
                advance(int(self._bounds[last] - self._bounds[first]))

    def _sorted(
        self, first: int, last: int, edges: _Edges, drop_duplicates: bool
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return offsets and neighbours of the vertices from ``first`` to ``last - 1``."""
        offsets = self._bounds[first : last + 1] - self._bounds[first]
        out = np.empty(offsets[-1], self._dtype)
        cursor = offsets[:-1].copy()
        for src, dst in edges:
            ops.csc_fill(src, dst, first, last, cursor, out)
        if self._self_loops == "add":
            every = np.arange(first, last, dtype=self._dtype)
            ops.csc_fill(every, every, first, last, cursor, out)
        offsets = ops.csc_sort(offsets, out, drop_duplicates, usable_cores())
        return offsets, out[: offsets[-1]]

    def _ranges(self, memory_bytes: int) -> Iterator[tuple[int, int, _Edges]]:
        """Yield ranges of vertices that are sorted at once, in order, and the edges to them."""
        for number, block in enumerate(self._blocks):
            first = number << self._block_bits
            last = min(first + (1 << self._block_bits), self.num_vertices)
            cuts = self._cuts(first, last, memory_bytes)
            if len(cuts) == 2:
                yield first, last, block.take_last(block.num_edges)
            else:
                yield from self._divided(block, cuts)
            block.close()

    def _cuts(self, first: int, last: int, memory_bytes: int) -> NDArray[np.int64]:
        """Return where the ranges of a block begin, and its end."""
        needed = self._dtype.itemsize * (self._bounds[first : last + 1] - self._bounds[first])
        needed += _VERTEX_BYTES * np.arange(last - first + 1)
        cuts = [0]
        while cuts[-1] < last - first:
            end = np.searchsorted(needed, needed[cuts[-1]] + memory_bytes, side="right") - 1
            cuts.append(max(cuts[-1] + 1, int(end)))
        return np.array(cuts) + first

    def _divided(
        self, block: EdgeFile, cuts: NDArray[np.int64]
    ) -> Iterator[tuple[int, int, _Edges]]:
        """Cut a block at ``cuts``: all edges in one file, those of the first range at its end."""
        range_of = np.repeat(np.arange(len(cuts) - 1, dtype=np.int32), np.diff(cuts))
        sizes = np.diff(self._bounds[cuts])
        if self._self_loops == "add":
            sizes -= np.diff(cuts)
        places = sizes.sum() - np.cumsum(sizes)
        part = EdgeFile(self._folder / "part", self._dtype)
        self._files.append(part)
        for src, dst in block.take_last(block.num_edges):
            src, dst, starts = ops.csc_scatter(src, dst, range_of, len(sizes), first=int(cuts[0]))
            for number in np.flatnonzero(np.diff(starts)):
                found = slice(starts[number], starts[number + 1])
                part.write(int(places[number]), src[found], dst[found])
                places[number] += found.stop - found.start
        part.num_edges = int(sizes.sum())
        for first, last, size in zip(cuts[:-1], cuts[1:], sizes, strict=True):
            yield int(first), int(last), part.take_last(int(size))
        part.close()

    def close(self) -> None:
        """Remove the temporary files."""
        for file in self._files:
            file.close()
