"""Edge spool: edges in blocks of destinations, in memory or on disk, before they are sorted."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, GraphError, hardware
from gnnscale.core.artifact.npy import NpyWriter, map_npy
from gnnscale.core.types import Float32Array, Int64Array, UInt32Array
from gnnscale.data.storage.edge_words import EdgePayload, packed, unpacked, weight_bits
from gnnscale.graph.store_format import vertex_dtype

_SLICE_EDGES = 1 << 20
#: Write buffer that combines small slices of edges.
_BUFFER_BYTES = 64 << 10


class EdgeFile:
    """Temporary files ``path.src`` and ``path.dst`` with the sources and destinations of edges."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._paths = [path.with_name(f"{path.name}.{end}") for end in ("src", "dst")]
        self._files = [path.open("w+b", buffering=_BUFFER_BYTES) for path in self._paths]
        self.num_edges = 0

    def append(self, src: Array, dst: Array) -> None:
        """Append edges at the end of the files."""
        self.write(self.num_edges, src, dst)
        self.num_edges += len(src)

    def write(self, first_edge: int, src: Array, dst: Array) -> None:
        """Write edges from position ``first_edge`` on; the caller sets ``num_edges``."""
        for file, ends in zip(self._files, (src, dst), strict=True):
            if file.tell() != first_edge * self._dtype.itemsize:
                file.seek(first_edge * self._dtype.itemsize)
            file.write(np.ascontiguousarray(ends, self._dtype).data)

    def take_last(self, num_edges: int) -> Iterator[tuple[Array, Array]]:
        """Yield the last ``num_edges`` edges in slices from the end; cut each off the files."""
        end = self.num_edges
        while self.num_edges > end - num_edges:
            first = max(end - num_edges, self.num_edges - _SLICE_EDGES)
            ends = []
            for file in self._files:
                # Not mapped: mapped pages would count as memory of this process.
                file.seek(first * self._dtype.itemsize)
                ends.append(np.fromfile(file, self._dtype, self.num_edges - first))
                file.truncate(first * self._dtype.itemsize)
            self.num_edges = first
            yield ends[0], ends[1]

    def close(self) -> None:
        """Close and remove the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            with suppress(OSError):  # on a full disk even closing can fail
                file.close()
            path.unlink(missing_ok=True)


class EdgeBlock:
    """Unsorted edges to vertices ``[first, last)``, in memory and, once spilled, in a file."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.num_edges = 0
        self._path = path
        self._dtype = dtype
        self._edges: list[tuple[Array, Array]] = []
        self._file: EdgeFile | None = None
        #: In-degrees of the spilled edges.
        self._spilled: Int64Array | None = None

    def hold(self, src: Array, dst: Array) -> None:
        """Append edges in memory; the arrays are kept, not copied."""
        self._edges.append((src, dst))
        self.num_edges += len(src)

    def spill(self) -> None:
        """Append the edges in memory to the block's file, and release them."""
        self._spilled = self.in_degrees()
        if self._file is None:
            self._file = EdgeFile(self._path, self._dtype)
        for src, dst in self._edges:
            self._file.append(src, dst)
        self._edges = []

    def in_degrees(self) -> Int64Array:
        """Return the number of edges, spilled or not, to each vertex: ``[last - first]`` int64."""
        spilled = self._spilled
        degrees = np.zeros(self.last - self.first, np.int64) if spilled is None else spilled.copy()
        for _, dst in self._edges:
            ops.count_in_degrees(dst, degrees, self.first)
        return degrees

    def take(self) -> Iterator[tuple[Array, Array]]:
        """Yield all edges in slices ``(src, dst)``, release each slice, and remove the files."""
        while self._edges:
            yield self._edges.pop()
        if self._file is not None:
            yield from self._file.take_last(self._file.num_edges)
        self.close()

    def close(self) -> None:
        """Close and remove the files of spilled edges, if any."""
        if self._file is not None:
            self._file.close()


#: Treatment of self-loops: as in the raw files, none, or exactly one per vertex.
SELF_LOOPS = ("keep", "remove", "add")
#: Edges of an allocation.
_SLAB_EDGES = 1 << 22
#: Blocks, at most: each may have two open files.
_MAX_BLOCKS = 128
#: Log2 of the vertices of a block, at least: the caches hold the lists, filled in random order.
_MIN_BLOCK_BITS = 16
#: Share of the memory for spooled edges, before they spill to disk; the remainder is for sorting.
_SPOOL_SHARE = 0.75


def spooled_bytes(num_edges: int, word_bytes: int, memory_bytes: int) -> int:
    """Return the bytes on disk of spooled edges, two words each; 0: memory surely holds all."""
    num_bytes = 2 * word_bytes * num_edges
    # Slabs are filled to three quarters at least.
    return num_bytes if num_bytes > 0.75 * _SPOOL_SHARE * memory_bytes else 0


class EdgeSpool:
    """Unsorted edges in blocks by destination, spilled to disk beyond a share of ``memory_bytes``.

    The caller checks ids.
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
        #: whether the caller adds a loop to each vertex; the spool drops all loops then
        self.adds_loops = self_loops == "add"
        self.memory_bytes = memory_bytes
        self.num_edges = 0  #: edges in the blocks
        self.held_bytes = 0  #: bytes of the edges in memory
        self.folder = folder
        self._weights_file, self._times_file = folder / "row_weights", folder / "row_times"
        self._undirected = undirected
        self._keeps_loops = self_loops == "keep"
        self._dtype = vertex_dtype(num_vertices)
        self._block_bits = max(_MIN_BLOCK_BITS, ((num_vertices - 1) // _MAX_BLOCKS).bit_length())

        self._blocks: list[EdgeBlock] = []
        self._spills = False
        #: Buffer that combines small slices: sources, destinations, and 32 carried bits if packed.
        self._buffer: list[Array] = []
        self._num_buffered = 0
        self._slab = np.empty((2, 0), self._dtype)  #: last allocation for edges in memory
        self._slab_used = 0  #: edges in use of the last allocation
        self.weighted: bool | None = None  #: whether edges have weights; None before ``add``
        self.has_rows = False  #: whether edges have rows of features
        self.has_times = False  #: whether edges have times of their own
        self.num_rows = 0  #: number of edges with a row number
        #: ``[num_vertices]`` times from which vertices are known. None: always
        self.vertex_times: Int64Array | None = None
        #: Weights and times of edges with rows, by row number, which is all that a word carries.
        self._row_weights: NpyWriter | None = None
        self._row_times: NpyWriter | None = None

    def add(
        self,
        src: Array,
        dst: Array,
        weights: Float32Array | None = None,
        has_rows: bool = False,
        times: Int64Array | None = None,
    ) -> None:
        """Append edges ``[num_edges]``; if ``has_rows``, each takes the next feature row number.

        All calls have weights, or none; rows and times likewise. With any, GraphError beyond
        2^31 - 1 vertices.
        """
        has_times = times is not None
        if self.weighted is None:
            self._open(weights is not None, has_rows, has_times)
        presence = weights is not None, has_rows, has_times
        assert (self.weighted, self.has_rows, self.has_times) == presence
        columns = [src, dst]
        if self.numbers_edges:
            rows = np.arange(self.num_rows, self.num_rows + len(src), dtype=np.int64)
            columns.append(rows.astype(np.uint32))
            self.num_rows += len(src)
            if weights is not None and self._row_weights is not None:
                self._row_weights.append(weights)
            if times is not None and self._row_times is not None:
                self._row_times.append(times)
        elif weights is not None:
            columns.append(weight_bits(weights))
        first = 0
        while first < len(src):
            count = min(len(src) - first, _SLICE_EDGES - self._num_buffered)
            for waiting, values in zip(self._buffer, columns, strict=True):
                waiting[self._num_buffered :][:count] = values[first : first + count]
            first += count
            self._num_buffered += count
            if self._num_buffered == _SLICE_EDGES:
                self._flush()

    def _flush(self) -> None:
        """Move the buffered edges to the blocks, adding reverses and dropping loops as chosen."""
        count, self._num_buffered = self._num_buffered, 0
        self._add(*(waiting[:count] for waiting in self._buffer))

    def _open(self, weighted: bool, has_rows: bool, has_times: bool) -> None:
        if (weighted or has_rows or has_times) and self._dtype.itemsize > 4:
            what = "features" if has_rows else "times" if has_times else "weights"
            raise GraphError(
                f"expected up to {2**31 - 1} vertices with {what} of edges, got {self.num_vertices}"
            )
        self.weighted, self.has_rows, self.has_times = weighted, has_rows, has_times
        if weighted and self.numbers_edges:
            self._row_weights = NpyWriter(self._weights_file, np.dtype(np.float32))
        if has_times:
            self._row_times = NpyWriter(self._times_file, np.dtype(np.int64))
        self._slab = np.empty((2, 0), self.word)
        self._buffer = [np.empty(_SLICE_EDGES, self.word) for _ in range(2)]
        if self.packs:
            self._buffer.append(np.empty(_SLICE_EDGES, np.uint32))
        bounds = [*range(0, self.num_vertices, 1 << self._block_bits), self.num_vertices]
        self._blocks = [
            EdgeBlock(self.folder / f"block{number}", self.word, first, last)
            for number, (first, last) in enumerate(pairwise(bounds))
        ]

    @property
    def numbers_edges(self) -> bool:
        """Whether each edge has a row number, by which its features and times are looked up."""
        return self.has_rows or self.has_times

    @property
    def packs(self) -> bool:
        """Whether a stored source is a word with the edge's row number, or else its weight."""
        return bool(self.weighted or self.numbers_edges)

    @property
    def word(self) -> np.dtype[Any]:
        """Type of stored sources and destinations: int64 if packed, else that of vertex ids."""
        return np.dtype(np.int64) if self.packs else self._dtype

    def loop_words(self, vertices: Array) -> Array:
        """Return the stored sources of added self-loops at ``vertices``.

        If packed, they carry weight 1, or the feature row after the last.
        """
        if not self.packs:
            return vertices
        one = weight_bits(np.ones(1, np.float32))
        carried = np.array([self.num_rows]).astype(np.uint32) if self.has_rows else one
        return packed(vertices, np.repeat(carried, len(vertices)))

    def unpacked(self, words: Int64Array) -> tuple[Array, EdgePayload]:
        """Return sources, and weights, feature rows and times, of packed ``words``.

        Call it after ``finish``.
        """
        sources, carried = unpacked(words)
        if not self.numbers_edges:
            return sources, EdgePayload(weights=carried.view(np.float32))
        weights, times = (
            None if file is None else np.asarray(map_npy(path))[carried]
            for file, path in (
                (self._row_weights, self._weights_file),
                (self._row_times, self._times_file),
            )
        )
        return sources, EdgePayload(weights, carried if self.has_rows else None, times)

    def _add(self, src: Array, dst: Array, carried: UInt32Array | None = None) -> None:
        if self._keeps_loops and not self._undirected:
            self._scatter(src, dst, carried)
            return
        loop = src == dst
        if loop.any():
            if self._keeps_loops:  # a loop has no reverse
                self._scatter(src[loop], src[loop], None if carried is None else carried[loop])
            src, dst = src[~loop], dst[~loop]
            carried = None if carried is None else carried[~loop]
        self._scatter(src, dst, carried)
        if self._undirected:
            self._scatter(dst, src, carried)

    def _scatter(self, src: Array, dst: Array, carried: UInt32Array | None) -> None:
        blocks = np.arange(len(self._blocks), dtype=np.int32)
        src = src if carried is None else packed(src, carried)
        ends = self._reserve(len(src))
        starts = ops.csc_scatter(
            *(src, dst, blocks, len(blocks)),
            out=ends,
            shift=self._block_bits,
            num_threads=hardware.usable_cores(),
        )
        for block, first, last in zip(self._blocks, starts, starts[1:], strict=False):
            if first < last:
                block.hold(*ends[:, first:last])
        self.num_edges += len(src)
        self.held_bytes += ends.nbytes

    def _reserve(self, num_edges: int) -> Array:
        """Return an array ``[2, num_edges]`` to fill, part of a slab; spill if memory is full.

        Slabs have huge pages, since faulting pages of 4 KiB is slow; a spill reuses one slab.
        """
        if self._slab.shape[1] - self._slab_used < num_edges:
            edge_bytes, allowed = 2 * self.word.itemsize, int(_SPOOL_SHARE * self.memory_bytes)
            length = max(num_edges, min(_SLAB_EDGES, allowed // edge_bytes))
            if self._spills or self.held_bytes + edge_bytes * length > allowed:
                self._spill()
            if not self._spills or self._slab.shape[1] < num_edges:
                self._slab = np.empty((2, length), self.word)
            self._slab_used = 0
        ends = self._slab[:, self._slab_used :][:, :num_edges]
        self._slab_used += num_edges
        return ends

    def _spill(self) -> None:
        """Write all edges in memory to disk; from now on, full slabs and ``finish`` spill too."""
        for block in self._blocks:
            block.spill()
        self.held_bytes = 0
        self._spills = True

    def finish(self) -> list[EdgeBlock]:
        """Return the blocks in vertex order, all in memory or all on disk; no edge may follow."""
        if self.weighted is None:
            self._open(False, False, False)
        self._flush()
        if self._row_weights is not None:
            if self.adds_loops:
                self._row_weights.append(np.ones(1, np.float32))
            self._row_weights.close()
        if self._row_times is not None:
            self._row_times.close()
        self._buffer = []
        if self._spills:
            self._spill()
            self._slab = self._slab[:, :0]
        return self._blocks

    def close(self) -> None:
        """Close and remove the temporary files."""
        for block in self._blocks:
            block.close()
        for file, path in (
            (self._row_weights, self._weights_file),
            (self._row_times, self._times_file),
        ):
            if file is not None:
                file.__exit__()
                path.unlink(missing_ok=True)
