"""Edges in any order → in-neighbour lists (CSC) on disk, by bucket and counting sort.

Edges go to blocks of destinations as they arrive, a file for each; then block by block is sorted in
memory. A block whose lists exceed the memory allowed is cut into ranges first. So every edge is
written once or twice and read as often, however many there are.

Edges with weights are sorted as words of both, see ``weighted_lists``.
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
from gnnscale.dataset.storage.weighted_lists import EDGE_BYTES, added_up, packed, unpacked
from gnnscale.graph import GraphError, vertex_dtype
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
        self._num_blocks = num_blocks
        self._files: list[EdgeFile] = []
        self._blocks: tuple[EdgeFile, ...] = ()
        #: Whether edges have weights; known with the first of them.
        self._weighted: bool | None = None
        #: In-degrees from its second entry on while edges arrive, then offsets.
        self._bounds = np.zeros(num_vertices + 1, np.int64)

    @property
    def weighted(self) -> bool | None:
        """Whether edges have weights; None before the first call of ``add``."""
        return self._weighted

    def add(
        self, src: NDArray[Any], dst: NDArray[Any], weights: NDArray[np.float32] | None = None
    ) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``.

        Args:
            src: ``[num_edges]`` vertex ids.
            dst: the same.
            weights: ``[num_edges]``, finite and not negative; all calls give them, or none does.

        Raises:
            GraphError: the graph has too many vertices for weights of edges.
        """
        if self._weighted is None:
            self._open(weights is not None)
        assert self._weighted == (weights is not None)
        for first in range(0, len(src), _SLICE_EDGES):
            part = slice(first, first + _SLICE_EDGES)
            self._add(
                np.ascontiguousarray(src[part], self._word),
                np.ascontiguousarray(dst[part], self._word),
                None if weights is None else weights[part],
            )

    def _open(self, weighted: bool) -> None:
        """Make the files of the blocks."""
        if weighted and self._dtype.itemsize > 4:
            raise GraphError(
                f"the graph has {self.num_vertices} vertices, weights of edges are allowed for up "
                f"to {2**31 - 1}"
            )
        self._weighted = weighted
        for number in range(self._num_blocks):
            self._files.append(EdgeFile(self._folder / f"block{number}", self._word))
        self._blocks = tuple(self._files)

    @property
    def _word(self) -> np.dtype[Any]:
        """Type of sources in files and in lists, with their weights where they have some."""
        return np.dtype(np.int64) if self._weighted else self._dtype

    def _add(
        self, src: NDArray[Any], dst: NDArray[Any], weights: NDArray[np.float32] | None
    ) -> None:
        loop = src == dst
        if loop.any():
            if self._self_loops == "keep":  # a loop has no reverse to add
                self._scatter(src[loop], src[loop], None if weights is None else weights[loop])
            src, dst = src[~loop], dst[~loop]
            weights = None if weights is None else weights[~loop]
        self._scatter(src, dst, weights)
        if self._undirected:
            self._scatter(dst, src, weights)

    def _scatter(
        self, src: NDArray[Any], dst: NDArray[Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Append edges to the blocks of their destinations."""
        blocks = np.arange(self._num_blocks, dtype=np.int32)
        src = src if weights is None else packed(src, weights)
        src, dst, starts = ops.csc_scatter(src, dst, blocks, len(blocks), shift=self._block_bits)
        ops.count_in_degrees(dst, self._bounds[1:])
        for block, first, last in zip(self._blocks, starts, starts[1:], strict=False):
            if first < last:
                block.append(src[first:last], dst[first:last])

    def build(self, path: Path, *, drop_duplicates: bool, memory_bytes: int) -> dict[str, Any]:
        """Write ``indptr.npy``, ``indices.npy`` and perhaps ``edge_weights.npy``; see ``sort``.

        Returns:
            The files' entries in ``meta.json``.
        """
        dtypes = {"indptr": np.dtype(np.int64), "indices": self._dtype}
        if self._weighted:
            dtypes["edge_weights"] = np.dtype(np.float32)
        files = {name: NpyWriter(path / f"{name}.npy", dtype) for name, dtype in dtypes.items()}
        written = 0
        files["indptr"].append(np.zeros(1, np.int64))
        try:
            for _, offsets, lists, weights in self.sort(drop_duplicates, memory_bytes):
                files["indices"].append(lists)
                if weights is not None:
                    files["edge_weights"].append(weights)
                files["indptr"].append(offsets[1:] + written)
                written += len(lists)
            return {name: file.close() for name, file in files.items()}
        finally:
            for file in files.values():
                file.abandon()

    def sort(
        self, drop_duplicates: bool, memory_bytes: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]]:
        """Yield ranges of vertices with their sorted in-neighbours; done once, no edge may follow.

        Ranges are such that their lists are sorted in ``memory_bytes``. The offsets (8 bytes a
        vertex) come on top, and a single neighbour list larger than that still has to fit. Of
        edges that repeat, weights are added up where duplicates are dropped; else they come in
        ascending order of their weights.

        Yields:
            The first vertex, the lists' offsets from 0 on, the lists, and the weights in the same
            order, None where edges have none.

        Raises:
            GraphError: the sum of the weights of edges that repeat is beyond float32.
        """
        if self._weighted is None:
            self._open(False)
        if self._self_loops == "add":
            self._bounds[1:] += 1
        np.cumsum(self._bounds, out=self._bounds)
        with track("building CSC", int(self._bounds[-1]), "edges") as advance:
            for first, last, edges in self._ranges(memory_bytes):
                yield first, *self._sorted(first, last, edges, drop_duplicates)
                advance(int(self._bounds[last] - self._bounds[first]))

    def _sorted(
        self, first: int, last: int, edges: _Edges, drop_duplicates: bool
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]:
        """Return offsets, neighbours and weights of the vertices from ``first`` to ``last - 1``."""
        offsets = self._bounds[first : last + 1] - self._bounds[first]
        out = np.empty(offsets[-1], self._word)
        cursor = offsets[:-1].copy()
        for src, dst in edges:
            ops.csc_fill(src, dst, first, last, cursor, out)
        if self._self_loops == "add":
            every = np.arange(first, last, dtype=self._word)
            loops = packed(every, np.ones(len(every), np.float32)) if self._weighted else every
            ops.csc_fill(loops, every, first, last, cursor, out)
        del cursor
        drops = drop_duplicates and not self._weighted
        offsets = ops.csc_sort(offsets, out, drops, usable_cores())
        if not self._weighted:
            return offsets, out[: offsets[-1]], None
        lists, weights = unpacked(out)
        del out
        return (
            added_up(offsets, lists, weights, first)
            if drop_duplicates
            else (offsets, lists, weights)
        )

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
        edge_bytes = EDGE_BYTES if self._weighted else self._dtype.itemsize
        needed = edge_bytes * (self._bounds[first : last + 1] - self._bounds[first])
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
        part = EdgeFile(self._folder / "part", self._word)
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
