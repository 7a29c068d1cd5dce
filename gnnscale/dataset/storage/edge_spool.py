"""Edges on their way to in-neighbour lists, in blocks of destinations: in memory, then on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.artifact.graph_store import vertex_dtype
from gnnscale.core.errors import GraphError
from gnnscale.core.hardware import usable_cores
from gnnscale.dataset.storage.edge_file import EdgeBlock, packed

__all__ = ["SELF_LOOPS", "EdgeSpool", "spooled_bytes"]

#: What may be done with edges from a vertex to itself: as published, none, exactly one a vertex.
SELF_LOOPS = ("keep", "remove", "add")
#: Edges that are put into blocks at a time, and room that is taken for them at a time.
_SLICE_EDGES = 1 << 20
_SLAB_EDGES = 1 << 22
#: Blocks at most, since each may have two open files, and the fewest vertices worth a block. The
#: lists of a block are filled in any order, which is fastest where they fit into the caches.
_MAX_BLOCKS = 128
_MIN_BLOCK_BITS = 16
#: Part of the memory allowed that edges are held in before they go to disk; sorting has the rest.
_HELD = 0.75


def spooled_bytes(num_edges: int, word_bytes: int, memory_bytes: int) -> int:
    """Return what edges may take on disk before they are sorted: all of them, or nothing.

    Args:
        num_edges: reverse edges and loops that are added included.
        word_bytes: of a source or destination: 4, or 8 with weights or beyond 2^31 vertices.
        memory_bytes: what edges may take in memory.
    """
    num_bytes = 2 * word_bytes * num_edges
    # The arrays that they are held in are filled to three quarters at least.
    return num_bytes if num_bytes > 0.75 * _HELD * memory_bytes else 0


class EdgeSpool:
    """Edges in blocks of destinations.

    Args:
        folder: where the temporary files go.
        num_vertices: all ids are below this; the caller has checked them.
        undirected: every edge also stands for its reverse.
        self_loops: one of ``SELF_LOOPS``.
        memory_bytes: what edges may take in memory, those that are being sorted included.

    Attributes:
        num_vertices: likewise.
        adds_loops: whether each vertex is to get a loop; the spool has none then.
        memory_bytes: likewise.
        num_edges: edges in blocks so far.
        held_bytes: what those in memory take.
        folder: likewise.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_vertices: int,
        undirected: bool,
        self_loops: str,
        memory_bytes: int,
    ) -> None:
        self.num_vertices = num_vertices
        self.adds_loops = self_loops == "add"
        self.memory_bytes = memory_bytes
        self.num_edges = 0
        self.held_bytes = 0
        self.folder = folder
        self._undirected = undirected
        self._keeps_loops = self_loops == "keep"
        self._dtype = vertex_dtype(num_vertices)
        self._block_bits = max(_MIN_BLOCK_BITS, ((num_vertices - 1) // _MAX_BLOCKS).bit_length())
        self._num_blocks = ((num_vertices - 1) >> self._block_bits) + 1
        self._blocks: list[EdgeBlock] = []
        self._spills = False
        #: Sources and destinations, and perhaps weights, of edges that wait for others.
        self._waiting: list[NDArray[Any]] = []
        self._num_waiting = 0
        #: The last array that edges are held in, sources and destinations, and how many it has.
        self._slab = np.empty((2, 0), self._dtype)
        self._taken = 0
        #: Whether edges have weights; known with the first of them.
        self._weighted: bool | None = None

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
        given = [src, dst] if weights is None else [src, dst, weights]
        first = 0
        while first < len(src):
            count = min(len(src) - first, _SLICE_EDGES - self._num_waiting)
            for waiting, values in zip(self._waiting, given, strict=True):
                waiting[self._num_waiting :][:count] = values[first : first + count]
            first += count
            self._num_waiting += count
            if self._num_waiting == _SLICE_EDGES:
                self._add_waiting()

    def _add_waiting(self) -> None:
        """Add the edges that wait for others: a few at a time take longer."""
        count, self._num_waiting = self._num_waiting, 0
        src, dst, *weights = (waiting[:count] for waiting in self._waiting)
        self._add(src, dst, weights[0] if weights else None)

    def _open(self, weighted: bool) -> None:
        """Make the blocks."""
        if weighted and self._dtype.itemsize > 4:
            raise GraphError(
                f"the graph has {self.num_vertices} vertices, weights of edges are allowed for up "
                f"to {2**31 - 1}"
            )
        self._weighted = weighted
        self._slab = np.empty((2, 0), self.word)
        self._waiting = [np.empty(_SLICE_EDGES, self.word) for _ in range(2)]
        if weighted:
            self._waiting.append(np.empty(_SLICE_EDGES, np.float32))
        for number in range(self._num_blocks):
            first = number << self._block_bits
            last = min(first + (1 << self._block_bits), self.num_vertices)
            path = self.folder / f"block{number}"
            self._blocks.append(EdgeBlock(path, self.word, first, last))

    @property
    def word(self) -> np.dtype[Any]:
        """Type of sources in files and in lists, with their weights where they have some."""
        return np.dtype(np.int64) if self._weighted else self._dtype

    def _add(
        self, src: NDArray[Any], dst: NDArray[Any], weights: NDArray[np.float32] | None
    ) -> None:
        if self._keeps_loops and not self._undirected:  # what loops are makes no odds
            self._scatter(src, dst, weights)
            return
        loop = src == dst
        if loop.any():
            if self._keeps_loops:  # a loop has no reverse to add
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
        room = self._room(len(src))
        starts = ops.csc_scatter(
            *(src, dst, blocks, len(blocks)),
            out=room,
            shift=self._block_bits,
            num_threads=usable_cores(),
        )
        for block, first, last in zip(self._blocks, starts, starts[1:], strict=False):
            if first < last:
                block.hold(*room[:, first:last])
        self.num_edges += len(src)
        self.held_bytes += room.nbytes

    def _room(self, num_edges: int) -> NDArray[Any]:
        """Return an array ``[2, num_edges]`` for sources and destinations.

        It is a part of a larger one, which the kernel gives in large pages: a page of 4 KiB at a
        time costs more than filling it. Once edges go to disk, one such array is used again.
        """
        if self._slab.shape[1] - self._taken < num_edges:
            edge_bytes, allowed = 2 * self.word.itemsize, int(_HELD * self.memory_bytes)
            length = max(num_edges, min(_SLAB_EDGES, allowed // edge_bytes))
            if self._spills or self.held_bytes + edge_bytes * length > allowed:
                self._spill()
            if not self._spills or self._slab.shape[1] < num_edges:
                self._slab = np.empty((2, length), self.word)
            self._taken = 0
        room = self._slab[:, self._taken :][:, :num_edges]
        self._taken += num_edges
        return room

    def _spill(self) -> None:
        """Write the edges that are held to disk, and all that follow at the end."""
        for block in self._blocks:
            block.spill()
        self.held_bytes = 0
        self._spills = True

    def finish(self) -> list[EdgeBlock]:
        """Return the blocks in the order of their vertices; no edge may follow.

        Either all edges are in memory or all are on disk.
        """
        if self._weighted is None:
            self._open(False)
        self._add_waiting()
        self._waiting = []
        if self._spills:
            self._spill()
            self._slab = self._slab[:, :0]
        return self._blocks

    def close(self) -> None:
        """Remove the temporary files."""
        for block in self._blocks:
            block.close()
