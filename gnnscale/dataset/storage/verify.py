"""Everything that a graph store must be, looked at in slices: slow, complete, in bounded memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.artifact.arrays import SLICE_BYTES, read_slices
from gnnscale.artifact.graph_store import ARRAYS, DEGREES, WEIGHTS, StoreMeta, read_meta
from gnnscale.core.errors import GraphError, one_line
from gnnscale.core.progress import track
from gnnscale.dataset.ids import check_ids_file, read_ids
from gnnscale.graph import Graph

__all__ = ["Check", "verify_store"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: the file, and what of it.
        problem: one line on the first thing that is wrong, None if all is well.
    """

    what: str
    problem: str | None


def verify_store(path: Path, *, slice_bytes: int = SLICE_BYTES) -> list[Check]:
    """Read every byte of a graph store, and say of each of its files whether it is as it must be.

    What ``Graph.open`` checks comes first; a store that cannot be opened is looked at no further.
    Then come the checksums of all arrays, the order and range of the neighbours, whether all
    features are finite, and all weights of edges finite and not negative. About
    ``slice_bytes`` are in memory at a time.
    """
    opens = "meta.json, sizes, types, offsets, labels and split"
    try:
        meta, graph = read_meta(path), Graph.open(path)
    except GraphError as error:
        return [Check(what=opens, problem=str(error))]
    checks = [Check(what=opens, problem=None)]
    total = sum(entry.bytes for entry in meta.arrays.values())
    with track(f"checking {path.name}", total, "bytes") as advance:
        for name in filter(meta.arrays.__contains__, (*ARRAYS, DEGREES, WEIGHTS)):
            checks += _array_checks(path, meta, graph, name, slice_bytes, advance)
    return checks + list(_ids_checks(path, meta, graph))


def _ids_checks(path: Path, meta: StoreMeta, graph: Graph) -> Iterator[Check]:
    """Look at the user's ids of the vertices if the store has them."""
    if "ids" not in meta.entries:
        return
    try:
        problem = check_ids_file(path)
        read_ids(graph)
    except GraphError as error:
        problem = str(error)
    yield Check(what="ids: checksum, one for each vertex", problem=problem and one_line(problem))


def _array_checks(
    path: Path,
    meta: StoreMeta,
    graph: Graph,
    name: str,
    slice_bytes: int,
    advance: Callable[[int], None],
) -> Iterator[Check]:
    """Read one array once, for its checksum and for what its values must be."""
    file, array = path / f"{name}.npy", getattr(graph, name)
    problem, crc32 = None, 0
    for rows in read_slices(file, array, slice_bytes):
        advance(rows[1].nbytes)
        crc32 = zlib.crc32(rows[1].reshape(-1).view(np.uint8).data, crc32)
        if problem is None and name == "indices":
            problem = _neighbor_problem(*rows, graph)
        elif problem is None and name == "features":
            problem = _feature_problem(*rows, graph.feature_dtype)
        elif problem is None and name == WEIGHTS:
            problem = _weight_problem(*rows, graph)
    expected = meta.arrays[name].crc32
    differs = f"{file}: checksum {crc32}, expected {expected}" if crc32 != expected else None
    yield Check(what=f"{name}.npy: checksum", problem=differs and one_line(differs))
    what = {
        "indices": "neighbours in range and sorted",
        "features": "all finite",
        WEIGHTS: "all finite and not negative",
    }.get(name)
    if what is not None:
        problem = problem and one_line(f"{file}: {problem}")
        yield Check(what=f"{name}.npy: {what}", problem=problem)


def _neighbor_problem(first: int, ids: NDArray[np.integer], graph: Graph) -> str | None:
    """Return what is wrong with the neighbours ``ids``, of which ``first`` is the first's place."""
    if ids.min() < 0 or ids.max() >= graph.num_vertices:
        place = int(((ids < 0) | (ids >= graph.num_vertices)).argmax())
        return (
            f"neighbour {ids[place]} of vertex {_owner(first + place, graph)} is out of range, "
            f"the graph has {graph.num_vertices} vertices"
        )
    before = graph.indices[first - 1 : first] if first else ids[:0]
    # Where a neighbour is smaller than the one before it, the list of another vertex begins.
    falls = np.flatnonzero(np.diff(np.concatenate([before, ids])) < 0) + first + 1 - len(before)
    starts = graph.indptr[np.searchsorted(graph.indptr, falls)]
    if (starts != falls).any():
        place = int(falls[(starts != falls).argmax()])
        return f"the neighbours of vertex {_owner(place, graph)} are not sorted"
    return None


def _owner(place: int, graph: Graph) -> int:
    """Return the vertex whose neighbours the entry at ``place`` belongs to."""
    return int(np.searchsorted(graph.indptr, place, side="right")) - 1


def _feature_problem(first: int, rows: NDArray[Any], dtype: str) -> str | None:
    """Return what is wrong with feature ``rows``, of which ``first`` is the first's vertex."""
    if dtype == "uint8":
        return None
    # bfloat16 is carried by uint16: its exponent has all bits set if it is not finite.
    finite = (rows & 0x7F80) != 0x7F80 if dtype == "bfloat16" else np.isfinite(rows)
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return f"feature {column} of vertex {first + row} is not finite"


def _weight_problem(first: int, weights: NDArray[np.float32], graph: Graph) -> str | None:
    """Return what is wrong with ``weights`` of edges, of which ``first`` is the first's place."""
    good = (weights >= 0) & np.isfinite(weights)
    if good.all():
        return None
    place = int(good.argmin())
    return (
        f"the weight of edge {first + place}, to vertex {_owner(first + place, graph)}, is "
        f"{weights[place]}"
    )
