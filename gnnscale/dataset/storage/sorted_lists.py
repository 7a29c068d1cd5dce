"""The edges of a spool → sorted in-neighbour lists, several blocks at a time in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core.hardware import usable_cores
from gnnscale.core.prefetch import Pipeline
from gnnscale.core.progress import track
from gnnscale.dataset.storage.edge_file import (
    EDGE_BYTES,
    EdgeBlock,
    EdgeFile,
    added_up,
    packed,
    unpacked,
)
from gnnscale.dataset.storage.edge_spool import EdgeSpool

__all__ = ["SortedLists", "sorted_lists"]

#: Slices of edges, each its sources and destinations.
_Edges: TypeAlias = "Iterator[tuple[NDArray[Any], NDArray[Any]]]"
#: Ranges that are sorted at a time, at most; each takes its share of the memory.
_MAX_THREADS = 4
#: Bytes a vertex while a range is sorted: where its list begins, is filled, and begins at last.
_VERTEX_BYTES = 24


@dataclass(frozen=True)
class SortedLists:
    """The in-neighbours of the vertices from ``first`` on.

    Attributes:
        first: the first vertex.
        offsets: where each vertex's list begins in ``lists``, from 0 on, and the end of the last.
        lists: in-neighbours, in ascending order for each vertex.
        weights: float32 of their edges, in the same order; None where edges have none.
    """

    first: int
    offsets: NDArray[np.int64]
    lists: NDArray[Any]
    weights: NDArray[np.float32] | None


@dataclass
class _Range:
    """Vertices whose lists are sorted at once.

    Attributes:
        first: the first vertex.
        last: the end.
        edges: to them, read once.
        degrees: their in-degrees, without loops that are added.
        lists: what the edges are sorted into; None before.
    """

    first: int
    last: int
    edges: _Edges
    degrees: Callable[[], NDArray[np.int64]]
    lists: SortedLists | None = None


def sorted_lists(spool: EdgeSpool, drop_duplicates: bool) -> Iterator[SortedLists]:
    """Yield the lists of all vertices in ranges, in order; no edge may follow.

    Of edges that repeat, weights are added up where duplicates are dropped; else they come in
    ascending order of their weights. Arrays of 8 bytes for each vertex come on top of what the
    spool allows, and a single neighbour list larger than that still has to fit.

    Raises:
        GraphError: the sum of the weights of edges that repeat is beyond float32.
    """
    blocks = spool.finish()
    num_threads = min(usable_cores(), _MAX_THREADS)
    limit = num_threads + 1  # on their way, beside that which the caller has
    share = (spool.memory_bytes - spool.held_bytes) // min(limit + 1, len(blocks))
    sorter = _Sorter(spool, drop_duplicates, share)
    num_edges = spool.num_edges + spool.num_vertices * spool.adds_loops
    try:
        with (
            track("building CSC", num_edges, "edges") as advance,
            Pipeline(
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
    """Cuts blocks into ranges, and sorts those.

    Args:
        spool: that the edges come from.
        drop_duplicates: see ``sorted_lists``.
        memory_bytes: what sorting a range may take.
    """

    def __init__(self, spool: EdgeSpool, drop_duplicates: bool, memory_bytes: int) -> None:
        self._word = spool.word
        self._weighted = bool(spool.weighted)
        self._loops = int(spool.adds_loops)
        self._folder = spool.folder
        self._drop_duplicates = drop_duplicates
        self._memory_bytes = memory_bytes
        self._edge_bytes = EDGE_BYTES if self._weighted else self._word.itemsize
        self._files: list[EdgeFile] = []

    def ranges(self, blocks: list[EdgeBlock]) -> Iterator[_Range]:
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
            loops = packed(every, np.ones(len(every), np.float32)) if self._weighted else every
            ops.csc_fill(loops, every, first, last, cursor, out)
        del cursor
        drops = self._drop_duplicates and not self._weighted
        offsets = ops.csc_sort(offsets, out, drops, usable_cores())
        if not self._weighted:
            part.lists = SortedLists(first, offsets, out[: offsets[-1]], None)
            return
        lists, weights = unpacked(out)
        del out
        if self._drop_duplicates:
            offsets, lists, weights = added_up(offsets, lists, weights, first)
        part.lists = SortedLists(first, offsets, lists, weights)

    def _cuts(self, degrees: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where ranges begin, counted from the first of some vertices, and their end."""
        needed = np.zeros(len(degrees) + 1, np.int64)
        needed[1:] = self._edge_bytes * (degrees + self._loops) + _VERTEX_BYTES
        np.cumsum(needed, out=needed)
        cuts = [0]
        while cuts[-1] < len(degrees):
            end = np.searchsorted(needed, needed[cuts[-1]] + self._memory_bytes, side="right") - 1
            cuts.append(max(cuts[-1] + 1, int(end)))
        return np.array(cuts)

    def _divided(self, block: EdgeBlock) -> Iterator[_Range]:
        """Cut a block into ranges: all edges in one file, those of the first range at its end."""
        degrees = block.in_degrees()
        cuts = self._cuts(degrees)
        range_of = np.repeat(np.arange(len(cuts) - 1, dtype=np.int32), np.diff(cuts))
        sizes = np.add.reduceat(degrees, cuts[:-1])
        places = sizes.sum() - np.cumsum(sizes)
        part = EdgeFile(self._folder / "part", self._word)
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
        """Remove the temporary files."""
        for file in self._files:
            file.close()


def _closing(block: EdgeBlock) -> _Edges:
    """Yield the edges of a block, then remove its files."""
    yield from block.take()
    block.close()
