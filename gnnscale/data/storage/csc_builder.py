"""The edges of a spool → sorted in-neighbour lists, several blocks at a time in bounded memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Int64Array, hardware, progress
from gnnscale.core import pipeline as prefetch
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter
from gnnscale.data.storage import edge_packing as edge_words
from gnnscale.data.storage import edge_spool
from gnnscale.graph.store_format import EDGE_ROWS, WEIGHTS, vertex_dtype

#: Slices of edges, each its sources and destinations.
_Edges: TypeAlias = "Iterator[tuple[Array, Array]]"
#: Ranges that are sorted at a time, at most; each takes its share of the memory.
_MAX_THREADS = 4
#: Bytes a vertex while a range is sorted: where its list begins, is filled, and begins at last.
_VERTEX_BYTES = 24


@dataclass(frozen=True)
class SortedLists:
    """The in-neighbours of the vertices from ``first`` on."""

    first: int  #: the first vertex
    #: where each vertex's list begins in ``lists``, from 0 on, and the end of the last
    offsets: Int64Array
    lists: Array  #: in-neighbours, in ascending order for each vertex
    carried: edge_words.EdgePayload  #: by their edges, in the same order


@dataclass
class _Range:
    """Vertices whose lists are sorted at once."""

    first: int  #: the first vertex
    last: int  #: the end
    edges: _Edges  #: to them, read once
    degrees: Callable[[], Int64Array]  #: their in-degrees, without loops that are added
    lists: SortedLists | None = None  #: what the edges are sorted into; None before


def sorted_lists(spool: edge_spool.EdgeSpool, drop_duplicates: bool) -> Iterator[SortedLists]:
    """Yield the lists of all vertices in ranges, in order; no edge may follow.

    If duplicates are dropped, the first row of edges that repeat is kept, and their weights are
    added up. Else these are in the order of their rows, or in ascending order of their weights
    without rows. Arrays of 8 bytes per vertex come on top of the spool's
    memory, and a single neighbour list larger than that must still fit.

    Raises:
        GraphError: the sum of the weights of edges that repeat is beyond float32.
    """
    blocks = spool.finish()
    num_threads = min(hardware.usable_cores(), _MAX_THREADS)
    limit = num_threads + 1  # on their way, beside that which the caller has
    share = (spool.memory_bytes - spool.held_bytes) // min(limit + 1, len(blocks))
    sorter = _Sorter(spool, drop_duplicates, share)
    num_edges = spool.num_edges + spool.num_vertices * spool.adds_loops
    try:
        with (
            progress.track("building CSC", num_edges, "edges") as advance,
            prefetch.Pipeline(
                sorter.ranges(blocks),
                [[sorter.sort]],
                limit=limit,
                num_threads=num_threads,
                adaptive=False,
            ) as ranges,
        ):
            for each in ranges:
                assert each.lists is not None
                yield each.lists
                advance(int(each.lists.offsets[-1]))
    finally:
        sorter.close()


class _Sorter:
    """Cuts blocks into ranges, and sorts each within ``memory_bytes``."""

    def __init__(
        self, spool: edge_spool.EdgeSpool, drop_duplicates: bool, memory_bytes: int
    ) -> None:
        self._word = spool.word
        self._spool = spool
        self._loops = int(spool.adds_loops)
        self._folder = spool.folder
        self._drop_duplicates = drop_duplicates
        self._memory_bytes = memory_bytes
        self._edge_bytes = edge_words.EDGE_BYTES if spool.packs else self._word.itemsize
        self._files: list[edge_spool.EdgeFile] = []

    def ranges(self, blocks: list[edge_spool.EdgeBlock]) -> Iterator[_Range]:
        """Yield ranges of vertices that are sorted within the memory allowed, in order.

        Those of a block that is cut are sorted already: all have their edges in one file.
        """
        for block in blocks:
            num_vertices = block.last - block.first
            num_edges = block.num_edges + num_vertices * self._loops
            if self._edge_bytes * num_edges + _VERTEX_BYTES * num_vertices <= self._memory_bytes:
                yield _Range(block.first, block.last, _closing(block), block.in_degrees)
                continue
            block.spill()
            for part in self._divided(block):
                self.sort(part)
                yield part
            block.close()

    def sort(self, part: _Range) -> None:
        """Set the lists of a range; its edges are taken."""
        if part.lists is not None:
            return
        first, last = part.first, part.last
        offsets = np.zeros(last - first + 1, np.int64)
        np.cumsum(part.degrees() + self._loops, out=offsets[1:])
        out = np.empty(offsets[-1], self._word)
        cursor = offsets[:-1].copy()
        for src, dst in part.edges:
            ops.csc_fill(src, dst, first, last, cursor, out)
        if self._loops:
            every = np.arange(first, last, dtype=self._word)
            ops.csc_fill(self._spool.loop_words(every), every, first, last, cursor, out)
        del cursor
        drops = self._drop_duplicates and not self._spool.packs
        offsets = ops.csc_sort(offsets, out, drops, hardware.usable_cores())
        if not self._spool.packs:
            part.lists = SortedLists(first, offsets, out[: offsets[-1]], edge_words.EdgePayload())
            return
        lists, carried = self._spool.unpacked(out)
        del out
        if self._drop_duplicates:
            offsets, lists, carried = edge_words.merged(offsets, lists, carried, first)
        part.lists = SortedLists(first, offsets, lists, carried)

    def _cuts(self, degrees: Int64Array) -> Int64Array:
        """Return the starts of ranges, counted from the first of some vertices, and their end."""
        needed = np.zeros(len(degrees) + 1, np.int64)
        needed[1:] = self._edge_bytes * (degrees + self._loops) + _VERTEX_BYTES
        np.cumsum(needed, out=needed)
        cuts = [0]
        while cuts[-1] < len(degrees):
            end = np.searchsorted(needed, needed[cuts[-1]] + self._memory_bytes, side="right") - 1
            cuts.append(max(cuts[-1] + 1, int(end)))
        return np.array(cuts)

    def _divided(self, block: edge_spool.EdgeBlock) -> Iterator[_Range]:
        """Cut a block into ranges: all edges in one file, those of the first range at its end."""
        degrees = block.in_degrees()
        cuts = self._cuts(degrees)
        range_of = np.repeat(np.arange(len(cuts) - 1, dtype=np.int32), np.diff(cuts))
        sizes = np.add.reduceat(degrees, cuts[:-1])
        places = sizes.sum() - np.cumsum(sizes)
        part = edge_spool.EdgeFile(self._folder / "part", self._word)
        self._files.append(part)
        for src, dst in block.take():
            room = np.empty((2, len(src)), self._word)
            starts = ops.csc_scatter(src, dst, range_of, len(sizes), out=room, first=block.first)
            for number in np.flatnonzero(np.diff(starts)):
                found = slice(starts[number], starts[number + 1])
                part.write(int(places[number]), *room[:, found])
                places[number] += found.stop - found.start
        part.num_edges = int(sizes.sum())
        for first, last, size in zip(cuts[:-1].tolist(), cuts[1:].tolist(), sizes, strict=True):
            count = degrees[first:last].copy
            yield _Range(block.first + first, block.first + last, part.take_last(int(size)), count)
        part.close()

    def close(self) -> None:
        for file in self._files:
            file.close()


def _closing(block: edge_spool.EdgeBlock) -> _Edges:
    yield from block.take()
    block.close()


def write_topology(
    spool: edge_spool.EdgeSpool, path: Path, *, drop_duplicates: bool
) -> dict[str, ArrayEntry]:
    """Write ``indptr.npy``, ``indices.npy``, and perhaps ``edge_weights`` and ``edge_rows.npy``.

    Edges go to blocks of destinations as they arrive, in memory as far as it is allowed, else on
    disk (``edge_spool``). Then blocks are sorted, several at a time, and one whose lists exceed the
    memory allowed is cut into ranges first (``sorted_lists``). So every edge is written twice at
    most and read as often, however many there are. Edges with weights are sorted as words of both,
    and edges with features as words with their row; weights are looked up by the row then.
    """
    dtypes = {"indptr": np.dtype(np.int64), "indices": vertex_dtype(spool.num_vertices)}
    if spool.weighted:
        dtypes[WEIGHTS] = np.dtype(np.float32)
    if spool.has_rows:
        dtypes[EDGE_ROWS] = np.dtype(np.uint32)
    written = 0
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(NpyWriter(path / f"{name}.npy", dtype))
            for name, dtype in dtypes.items()
        }
        files["indptr"].append(np.zeros(1, np.int64))
        for part in sorted_lists(spool, drop_duplicates):
            files["indices"].append(part.lists)
            if part.carried.weights is not None:
                files[WEIGHTS].append(part.carried.weights)
            if part.carried.rows is not None:
                files[EDGE_ROWS].append(part.carried.rows)
            files["indptr"].append(part.offsets[1:] + written)
            written += len(part.lists)
        return {name: file.close() for name, file in files.items()}
