"""Edges on their way to in-neighbour lists, in blocks of destinations: in memory, then on disk."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Float32Array, GraphError, Int64Array, UInt32Array, hardware
from gnnscale.core.artifact.npy import NpyWriter, map_npy
from gnnscale.data.storage import edge_packing as edge_words
from gnnscale.graph.store_format import vertex_dtype

_SLICE_EDGES = 1 << 20
#: Collects the few edges of small slices, so that each is not a write of its own.
_BUFFER_BYTES = 64 << 10


class EdgeFile:
    """Sources and destinations of edges, a file of each; ``path`` lacks the ends of their names."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._paths = [path.with_name(f"{path.name}.{end}") for end in ("src", "dst")]
        self._files = [each.open("w+b", buffering=_BUFFER_BYTES) for each in self._paths]
        self.num_edges = 0

    def append(self, src: Array, dst: Array) -> None:
        """Write edges after those that are there."""
        self.write(self.num_edges, src, dst)
        self.num_edges += len(src)

    def write(self, place: int, src: Array, dst: Array) -> None:
        """Write edges from the edge number ``place`` on; the caller sets ``num_edges``."""
        for file, ends in zip(self._files, (src, dst), strict=True):
            if file.tell() != place * self._dtype.itemsize:
                file.seek(place * self._dtype.itemsize)
            file.write(np.ascontiguousarray(ends, self._dtype).data)

    def take_last(self, num_edges: int) -> Iterator[tuple[Array, Array]]:
        """Yield the last ``num_edges`` edges in slices, removed from the disk as they are read."""
        end = self.num_edges
        while self.num_edges > end - num_edges:
            first = max(end - num_edges, self.num_edges - _SLICE_EDGES)
            ends = [self._read(file, first) for file in self._files]
            for file in self._files:
                file.truncate(first * self._dtype.itemsize)
            self.num_edges = first
            yield ends[0], ends[1]

    def _read(self, file: Any, first: int) -> Array:
        # Read, not mapped: mapped pages would count as memory of this process.
        file.seek(first * self._dtype.itemsize)
        return np.fromfile(file, self._dtype, self.num_edges - first)

    def close(self) -> None:
        """Remove the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            with suppress(OSError):  # on a full disk even closing can fail
                file.close()
            path.unlink(missing_ok=True)


class EdgeBlock:
    """Edges whose destinations are in a range from ``first`` to before ``last``."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.num_edges = 0
        self._path = path
        self._dtype = dtype
        self._held: list[tuple[Array, Array]] = []
        self._file: EdgeFile | None = None
        #: In-degrees by edges that were spilled.
        self._spilled: Int64Array | None = None

    def hold(self, src: Array, dst: Array) -> None:
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

    def in_degrees(self) -> Int64Array:
        """Return ``[last - first]`` int64, how many edges each vertex has."""
        spilled = self._spilled
        degrees = np.zeros(self.last - self.first, np.int64) if spilled is None else spilled.copy()
        for _, dst in self._held:
            ops.count_in_degrees(dst, degrees, self.first)
        return degrees

    def take(self) -> Iterator[tuple[Array, Array]]:
        """Yield all edges once, in slices that are released as they are read."""
        while self._held:
            yield self._held.pop()
        if self._file is not None:
            yield from self._file.take_last(self._file.num_edges)

    def close(self) -> None:
        """Remove the files."""
        if self._file is not None:
            self._file.close()


class RowWeights:
    """Weights of published edges by their row, in a file, while words carry the rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = NpyWriter(path, np.dtype(np.float32))
        self._weights: Float32Array | None = None

    def append(self, weights: Float32Array) -> None:
        """Write the weights of the next rows."""
        self._file.append(weights)

    def finish(self) -> None:
        """Map the file; no weight may follow."""
        self._file.close()
        self._weights = map_npy(self._path)

    def of(self, rows: UInt32Array) -> Float32Array:
        """Return the weights of ``rows``."""
        assert self._weights is not None
        return np.asarray(self._weights)[rows]

    def close(self) -> None:
        """Remove the file."""
        self._file.__exit__()
        self._weights = None
        self._path.unlink(missing_ok=True)


#: What may be done with edges from a vertex to itself: as published, none, exactly one a vertex.
SELF_LOOPS = ("keep", "remove", "add")
#: Edges that are put into blocks at a time, and room that is taken for them at a time.
_SLAB_EDGES = 1 << 22
#: Blocks at most, since each may have two open files, and the fewest vertices worth a block. The
#: lists of a block are filled in any order, which is fastest if they fit into the caches.
_MAX_BLOCKS = 128
_MIN_BLOCK_BITS = 16
#: Part of the memory allowed that edges are held in before they go to disk; sorting has the rest.
_HELD = 0.75


def spooled_bytes(num_edges: int, word_bytes: int, memory_bytes: int) -> int:
    """Return the disk that edges may take before they are sorted: all of them, or 0.

    A source or destination takes ``word_bytes``: 4, or 8 with weights or features of edges, or
    beyond 2^31 vertices.
    """
    num_bytes = 2 * word_bytes * num_edges
    # The arrays that they are held in are filled to three quarters at least.
    return num_bytes if num_bytes > 0.75 * _HELD * memory_bytes else 0


class EdgeSpool:
    """Edges in blocks of destinations; the caller has checked their ids.

    Temporary files are in ``folder``. If ``undirected``, every edge also stands for its reverse.
    ``self_loops`` is one of ``SELF_LOOPS``, ``memory_bytes`` includes edges that are being sorted.
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
        #: whether each vertex is to get a loop; the spool has none then
        self.adds_loops = self_loops == "add"
        self.memory_bytes = memory_bytes
        self.num_edges = 0  #: edges in blocks so far
        self.held_bytes = 0  #: what those in memory take
        self.folder = folder
        self._undirected = undirected
        self._keeps_loops = self_loops == "keep"
        self._dtype = vertex_dtype(num_vertices)
        self._block_bits = max(_MIN_BLOCK_BITS, ((num_vertices - 1) // _MAX_BLOCKS).bit_length())
        self._num_blocks = ((num_vertices - 1) >> self._block_bits) + 1
        self._blocks: list[EdgeBlock] = []
        self._spills = False
        #: Sources and destinations, and perhaps 32 bits that are carried, of edges that wait for
        #: others.
        self._waiting: list[Array] = []
        self._num_waiting = 0
        #: The last array that edges are held in, sources and destinations, and how many it has.
        self._slab = np.empty((2, 0), self._dtype)
        self._taken = 0
        #: Whether edges have weights; None before the first call of ``add``.
        self.weighted: bool | None = None
        #: Whether they have rows of features, and how many rows there are.
        self.has_rows = False
        self.num_rows = 0
        self._row_weights: RowWeights | None = None

    def add(
        self, src: Array, dst: Array, weights: Float32Array | None = None, has_rows: bool = False
    ) -> None:
        """Append edges; ``src[i]`` sends messages to ``dst[i]``, both ``[num_edges]``.

        Either all calls give ``weights`` ``[num_edges]``, finite and not negative, or no call does.
        If all say ``has_rows``, edges have a row of features each, in the order that they come in.

        Raises:
            GraphError: the graph has too many vertices for weights or features of edges.
        """
        if self.weighted is None:
            self._open(weights is not None, has_rows)
        assert (self.weighted, self.has_rows) == (weights is not None, has_rows)
        given = [src, dst]
        if has_rows:
            rows = np.arange(self.num_rows, self.num_rows + len(src), dtype=np.int64)
            given.append(rows.astype(np.uint32))
            self.num_rows += len(src)
            if weights is not None and self._row_weights is not None:
                self._row_weights.append(weights)
        elif weights is not None:
            given.append(edge_words.weight_bits(weights))
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
        """Add the edges that wait for others: small slices are slower."""
        count, self._num_waiting = self._num_waiting, 0
        self._add(*(waiting[:count] for waiting in self._waiting))

    def _open(self, weighted: bool, has_rows: bool) -> None:
        if (weighted or has_rows) and self._dtype.itemsize > 4:
            raise GraphError(
                f"the graph has {self.num_vertices} vertices, "
                f"{'features' if has_rows else 'weights'} of edges are allowed for up to "
                f"{2**31 - 1}"
            )
        self.weighted, self.has_rows = weighted, has_rows
        if weighted and has_rows:
            self._row_weights = RowWeights(self.folder / "row_weights")
        self._slab = np.empty((2, 0), self.word)
        self._waiting = [np.empty(_SLICE_EDGES, self.word) for _ in range(2)]
        if self.packs:
            self._waiting.append(np.empty(_SLICE_EDGES, np.uint32))
        for number in range(self._num_blocks):
            first = number << self._block_bits
            last = min(first + (1 << self._block_bits), self.num_vertices)
            path = self.folder / f"block{number}"
            self._blocks.append(EdgeBlock(path, self.word, first, last))

    @property
    def packs(self) -> bool:
        """Whether words carry something beside a source: the row of an edge, else its weight."""
        return bool(self.weighted or self.has_rows)

    @property
    def word(self) -> np.dtype[Any]:
        """Type of sources in files and in lists, packed with what they carry."""
        return np.dtype(np.int64) if self.packs else self._dtype

    def loop_words(self, vertices: Array) -> Array:
        """Return the words of loops that are added to vertices, ``[num_vertices]``.

        They have the weight 1, and the row after the last of an edge.
        """
        if not self.packs:
            return vertices
        one = edge_words.weight_bits(np.ones(1, np.float32))
        carried = np.array([self.num_rows]).astype(np.uint32) if self.has_rows else one
        return edge_words.packed(vertices, np.repeat(carried, len(vertices)))

    def unpacked(self, words: Int64Array) -> tuple[Array, edge_words.EdgePayload]:
        """Return the sources of ``words``, and what their edges carry; ``finish`` comes before."""
        sources, carried = edge_words.unpacked(words)
        if not self.has_rows:
            return sources, edge_words.EdgePayload(weights=carried.view(np.float32))
        weights = None if self._row_weights is None else self._row_weights.of(carried)
        return sources, edge_words.EdgePayload(weights, carried)

    def _add(self, src: Array, dst: Array, carried: UInt32Array | None = None) -> None:
        if self._keeps_loops and not self._undirected:  # what loops are makes no odds
            self._scatter(src, dst, carried)
            return
        loop = src == dst
        if loop.any():
            if self._keeps_loops:  # a loop has no reverse to add
                self._scatter(src[loop], src[loop], None if carried is None else carried[loop])
            src, dst = src[~loop], dst[~loop]
            carried = None if carried is None else carried[~loop]
        self._scatter(src, dst, carried)
        if self._undirected:
            self._scatter(dst, src, carried)

    def _scatter(self, src: Array, dst: Array, carried: UInt32Array | None) -> None:
        blocks = np.arange(self._num_blocks, dtype=np.int32)
        src = src if carried is None else edge_words.packed(src, carried)
        room = self._room(len(src))
        starts = ops.csc_scatter(
            *(src, dst, blocks, len(blocks)),
            out=room,
            shift=self._block_bits,
            num_threads=hardware.usable_cores(),
        )
        for block, first, last in zip(self._blocks, starts, starts[1:], strict=False):
            if first < last:
                block.hold(*room[:, first:last])
        self.num_edges += len(src)
        self.held_bytes += room.nbytes

    def _room(self, num_edges: int) -> Array:
        """Return an array ``[2, num_edges]`` for sources and destinations.

        It is a part of a larger one, which the kernel gives in large pages: single pages of 4 KiB
        cost more than filling them. Once edges go to disk, one such array is reused.
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
        """Write the held edges to disk, and all later ones at the end."""
        for block in self._blocks:
            block.spill()
        self.held_bytes = 0
        self._spills = True

    def finish(self) -> list[EdgeBlock]:
        """Return the blocks in the order of their vertices, all in memory or all on disk.

        No edge may follow.
        """
        if self.weighted is None:
            self._open(False, False)
        self._add_waiting()
        if self._row_weights is not None:
            if self.adds_loops:
                self._row_weights.append(np.ones(1, np.float32))
            self._row_weights.finish()
        self._waiting = []
        if self._spills:
            self._spill()
            self._slab = self._slab[:, :0]
        return self._blocks

    def close(self) -> None:
        """Remove the temporary files."""
        for block in self._blocks:
            block.close()
        if self._row_weights is not None:
            self._row_weights.close()
