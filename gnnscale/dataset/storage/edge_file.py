"""Edges in slices of memory and of a temporary file, and weights packed beside ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core.errors import GraphError

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

    def append(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Write edges after those that are there."""
        self.write(self.num_edges, src, dst)
        self.num_edges += len(src)

    def write(self, place: int, src: NDArray[Any], dst: NDArray[Any]) -> None:
        """Write edges from the edge number ``place`` on; the caller sets ``num_edges``."""
        for file, ends in zip(self._files, (src, dst), strict=True):
            if file.tell() != place * self._dtype.itemsize:
                file.seek(place * self._dtype.itemsize)
            file.write(np.ascontiguousarray(ends, self._dtype).data)

    def take_last(self, num_edges: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield the last ``num_edges`` edges in slices, removed from the disk as they are read."""
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


class EdgeBlock:
    """Edges whose destinations are in a range from ``first`` to before ``last``."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.num_edges = 0
        self._path = path
        self._dtype = dtype
        self._held: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._file: EdgeFile | None = None
        #: In-degrees by edges that were spilled.
        self._spilled: NDArray[np.int64] | None = None

    def hold(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
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

    def in_degrees(self) -> NDArray[np.int64]:
        """Return ``[last - first]`` int64, how many edges each vertex has."""
        spilled = self._spilled
        degrees = np.zeros(self.last - self.first, np.int64) if spilled is None else spilled.copy()
        for _, dst in self._held:
            ops.count_in_degrees(dst, degrees, self.first)
        return degrees

    def take(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield all edges once, in slices that are released as they are read."""
        while self._held:
            yield self._held.pop()
        if self._file is not None:
            yield from self._file.take_last(self._file.num_edges)

    def close(self) -> None:
        """Remove the files."""
        if self._file is not None:
            self._file.close()


#: Bytes of memory an edge, while words are taken apart and edges that repeat are added up.
EDGE_BYTES = 40
_WEIGHT_BITS = 32


def packed(src: NDArray[np.int64], weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return words of sources and weights ``[num_edges]``, ordered as pairs of them are.

    Sources are below 2^31. Weights are finite and not negative, so their bits rise as they do.
    """
    # Minus zero has the highest bit set; plus zero added to it is plus zero.
    words: NDArray[np.int64] = (src << _WEIGHT_BITS) | (weights + np.float32(0)).view(np.int32)
    return words


def unpacked(words: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the sources and the weights of ``words``."""
    return (words >> _WEIGHT_BITS).astype(np.int32), words.astype(np.uint32).view(np.float32)


def added_up(
    offsets: NDArray[np.int64], lists: NDArray[np.int32], weights: NDArray[np.float32], first: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Keep each neighbour once, with the sum of its weights; ``first`` is the first list's vertex.

    Sums are taken in float64 in ascending order, so they depend on the weights alone.
    """
    begins = np.empty(len(lists), np.bool_)
    begins[:1] = True
    np.not_equal(lists[1:], lists[:-1], out=begins[1:])
    begins[offsets[:-1][offsets[:-1] < len(lists)]] = True
    if begins.all():
        return offsets, lists, weights
    places = np.flatnonzero(begins)
    del begins
    with np.errstate(over="ignore"):  # refused below
        sums = np.add.reduceat(weights, places, dtype=np.float64).astype(np.float32)
    if not np.isfinite(sums).all():
        place = places[np.isinf(sums).argmax()]
        owner = first + int(np.searchsorted(offsets, place, side="right")) - 1
        raise GraphError(
            f"edge {lists[place]} to {owner}: it repeats, and its weights sum up to more than "
            "float32 holds"
        )
    # Where a list begins, a run of equal neighbours does; an empty one begins with the next.
    new_offsets: NDArray[np.int64] = np.searchsorted(places, offsets)
    return new_offsets, lists[places], sums
