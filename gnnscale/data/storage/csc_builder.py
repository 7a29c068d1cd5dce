"""CSC builder: spooled edges → sorted in-neighbor lists, by threads in bounded memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, GraphError, Int32Array, Int64Array, Pipeline, hardware, progress
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter
from gnnscale.data.storage import edge_spool, edge_words
from gnnscale.graph.store_format import EDGE_ROWS, EDGE_TIMES, WEIGHTS, vertex_dtype
from gnnscale.graph.time_order import edge_times, sort_by_time

#: Slices of edges: sources and destinations.
_Edges: TypeAlias = "Iterator[tuple[Array, Array]]"
#: Threads that sort ranges, at most; the memory is divided among them.
_MAX_THREADS = 4
#: Bytes per vertex while a range is sorted: offset before and after duplicates, and fill cursor.
_VERTEX_BYTES = 24


@dataclass(frozen=True)
class SortedLists:
    """Sorted in-neighbor lists of a vertex range, with weights, rows and times of the edges."""

    first: int  #: first vertex of the range
    offsets: Int64Array  #: ``[num_vertices + 1]`` offsets into ``lists``, from 0 on
    lists: Array  #: in-neighbors, in ascending order for each vertex, with times by time first
    carried: edge_words.EdgePayload  #: weights, rows and times in the order of ``lists``


@dataclass
class _Range:
    """Range of vertices whose in-neighbor lists are sorted together."""

    first: int  #: first vertex
    last: int  #: end of the range, exclusive
    edges: _Edges  #: edges to the vertices, an iterator
    degrees: Callable[[], Int64Array]  #: returns in-degrees without added loops
    lists: SortedLists | None = None  #: result; None before the range is sorted


def sorted_lists(spool: edge_spool.EdgeSpool, drop_duplicates: bool) -> Iterator[SortedLists]:
    """Yield the in-neighbor lists of all vertices, range by range, from the edges in ``spool``.

    If ``drop_duplicates``, repeated edges become one edge with the first feature row and the sum of
    the weights (GraphError beyond float32); edges of different times are not repeated. Otherwise
    they are in the order of their feature rows or, without rows, of their weights. Memory is the
    ``memory_bytes`` of the spool, which is finished, plus 8 bytes per vertex; a single list that is
    larger must still fit.
    """
    blocks = spool.finish()
    num_threads = min(hardware.usable_cores(), _MAX_THREADS)
    limit = num_threads + 1  # ranges in the pipeline; the caller holds one more
    share = (spool.memory_bytes - spool.held_bytes) // min(limit + 1, len(blocks))
    sorter = _Sorter(spool, drop_duplicates, share)
    num_edges = spool.num_edges + spool.num_vertices * spool.adds_loops
    try:
        with (
            progress.track("building CSC", num_edges, "edges") as advance,
            Pipeline(
                sorter.ranges(blocks),
                [[sorter.sort]],
                limit=limit,
                num_threads=num_threads,
                adaptive=False,
            ) as ranges,
        ):
            for vertex_range in ranges:
                assert vertex_range.lists is not None
                yield vertex_range.lists
                advance(int(vertex_range.lists.offsets[-1]))
    finally:
        sorter.close()


class _Sorter:
    """Sorter of edges into in-neighbor lists, by vertex ranges that fit ``memory_bytes``."""

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
        if spool.has_times or spool.vertex_times is not None:
            self._edge_bytes += edge_words.TIME_BYTES
        self._files: list[edge_spool.EdgeFile] = []

    def ranges(self, blocks: list[edge_spool.EdgeBlock]) -> Iterator[_Range]:
        """Yield the vertex ranges of all blocks in order, unsorted if a block fits the memory.

        Larger blocks are split into ranges, which are sorted here.
        """
        for block in blocks:
            num_vertices = block.last - block.first
            num_edges = block.num_edges + num_vertices * self._loops
            if self._edge_bytes * num_edges + _VERTEX_BYTES * num_vertices <= self._memory_bytes:
                yield _Range(block.first, block.last, block.take(), block.in_degrees)
                continue
            block.spill()
            for part in self._split_block(block):
                self.sort(part)
                yield part

    def sort(self, part: _Range) -> None:
        """Sort a range's edges and added loops into its lists, ``part.lists``, unless set."""
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
            vertices = np.arange(first, last, dtype=self._word)
            ops.csc_fill(self._spool.loop_words(vertices), vertices, first, last, cursor, out)
        del cursor
        drops = self._drop_duplicates and not self._spool.packs
        offsets = ops.csc_sort(offsets, out, drops, hardware.usable_cores())
        if self._spool.packs:
            lists, carried = self._spool.unpacked(out)
        else:
            lists, carried = out[: offsets[-1]], edge_words.EdgePayload()
        del out
        times = edge_times(carried.times, self._spool.vertex_times, lists)
        if times is not None:
            carried = replace(carried, times=times)
            sort_by_time(offsets, times, [lists, *carried.arrays()])
        if self._drop_duplicates and self._spool.packs:
            offsets, lists, carried = merged(offsets, lists, carried, first)
        part.lists = SortedLists(first, offsets, lists, carried)

    def _range_starts(self, degrees: Int64Array) -> Int64Array:
        """Return offsets ``[k + 1]`` that cut a block's vertices into k ranges.

        A range fits the memory, or is one vertex.
        """
        needed = np.zeros(len(degrees) + 1, np.int64)
        needed[1:] = self._edge_bytes * (degrees + self._loops) + _VERTEX_BYTES
        np.cumsum(needed, out=needed)
        cuts = [0]
        while cuts[-1] < len(degrees):
            end = np.searchsorted(needed, needed[cuts[-1]] + self._memory_bytes, side="right") - 1
            cuts.append(max(cuts[-1] + 1, int(end)))
        return np.array(cuts)

    def _split_block(self, block: edge_spool.EdgeBlock) -> Iterator[_Range]:
        """Yield the vertex ranges of a block in order, with their edges.

        A file has the edges by range, the first range at the end, where it is cut off.
        """
        degrees = block.in_degrees()
        cuts = self._range_starts(degrees)
        range_of = np.repeat(np.arange(len(cuts) - 1, dtype=np.int32), np.diff(cuts))
        sizes = np.add.reduceat(degrees, cuts[:-1])
        offsets = sizes.sum() - np.cumsum(sizes)
        part = edge_spool.EdgeFile(self._folder / "part", self._word)
        self._files.append(part)
        for src, dst in block.take():
            scattered = np.empty((2, len(src)), self._word)
            starts = ops.csc_scatter(
                src, dst, range_of, len(sizes), out=scattered, first=block.first
            )
            for number in np.flatnonzero(np.diff(starts)):
                selected = slice(starts[number], starts[number + 1])
                part.write(int(offsets[number]), *scattered[:, selected])
                offsets[number] += selected.stop - selected.start
        part.num_edges = int(sizes.sum())
        for first, last, size in zip(cuts[:-1].tolist(), cuts[1:].tolist(), sizes, strict=True):
            count = degrees[first:last].copy
            yield _Range(block.first + first, block.first + last, part.take_last(int(size)), count)
        part.close()

    def close(self) -> None:
        for file in self._files:
            file.close()


def write_topology(
    spool: edge_spool.EdgeSpool, path: Path, *, drop_duplicates: bool
) -> dict[str, ArrayEntry]:
    """Write ``indptr``, ``indices``, weights, feature rows and times of the edges in ``spool``.

    Return their entries for ``meta.json``. A block that exceeds the memory is split into vertex
    ranges; an edge is written twice at most.
    """
    dtypes = {"indptr": np.dtype(np.int64), "indices": vertex_dtype(spool.num_vertices)}
    if spool.weighted:
        dtypes[WEIGHTS] = np.dtype(np.float32)
    if spool.has_rows:
        dtypes[EDGE_ROWS] = np.dtype(np.uint32)
    if spool.has_times or spool.vertex_times is not None:
        dtypes[EDGE_TIMES] = np.dtype(np.int64)
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
            if part.carried.times is not None:
                files[EDGE_TIMES].append(part.carried.times)
            files["indptr"].append(part.offsets[1:] + written)
            written += len(part.lists)
        return {name: file.close() for name, file in files.items()}


def merged(
    offsets: Int64Array, lists: Int32Array, carried: edge_words.EdgePayload, first: int
) -> tuple[Int64Array, Int32Array, edge_words.EdgePayload]:
    """Return in-neighbor lists (offsets, neighbors, payload) with equal neighbors merged into one.

    With times, these are of one time. The edge has their first feature row, and the sum of their
    weights, in float64 in the order of ``lists``, so independent of the threads. ``first`` is the
    first vertex, for errors.
    """
    times = carried.times
    begins = np.empty(len(lists), np.bool_)  # edges that start a neighbor or a list
    begins[:1] = True
    np.not_equal(lists[1:], lists[:-1], out=begins[1:])
    if times is not None:
        begins[1:] |= times[1:] != times[:-1]
    begins[offsets[:-1][offsets[:-1] < len(lists)]] = True
    if begins.all():
        return offsets, lists, carried
    first_edges = np.flatnonzero(begins)
    del begins
    weights = carried.weights
    if weights is not None:
        with np.errstate(over="ignore"):
            sums: Array = np.add.reduceat(weights, first_edges, dtype=np.float64)
            weights = sums.astype(np.float32)
    if weights is not None and not np.isfinite(weights).all():
        edge = first_edges[np.isinf(weights).argmax()]
        owner = first + int(np.searchsorted(offsets, edge, side="right")) - 1
        raise GraphError(
            f"edge {lists[edge]} to {owner}: expected weights of repeated edges with a sum in the "
            "range of float32"
        )
    rows = None if carried.rows is None else carried.rows[first_edges]
    # Every list starts a run of equal neighbors; an empty list starts at the next run.
    new_offsets: Int64Array = np.searchsorted(first_edges, offsets)
    times = None if times is None else times[first_edges]
    return new_offsets, lists[first_edges], edge_words.EdgePayload(weights, rows, times)
