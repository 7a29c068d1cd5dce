"""Verification of the content of a graph store: checksums, and values of its arrays."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import (
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    UInt32Array,
    one_line,
    track,
)
from gnnscale.core.artifact.npy import SLICE_BYTES, read_slices
from gnnscale.data.tables.vertex_ids import check_ids_file, read_ids
from gnnscale.graph import (
    MAX_QUANTIZED,
    Graph,
    ShardedFeatures,
    TypedFeatures,
    finite,
    scales_of,
    store_format,
    store_meta,
)
from gnnscale.graph.time_order import order_problem
from gnnscale.graph.timed_store import timed_arrays
from gnnscale.graph.typed_edge_store import wrong_row


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of one check of a store."""

    what: str  #: the file and the checked property
    problem: str | None  #: the first problem in one line. None: the check passed.


def verify_store(path: Path, *, slice_bytes: int = SLICE_BYTES) -> list[Check]:
    """Read every byte of a graph store and return the result of each check of its files.

    The first check is ``Graph.open``; if it fails, no other follows. Then arrays are read for their
    checksums, sorted neighbors in range (by time, if there are times), finite features, finite and
    non-negative edge weights, and edge rows and ends in range; and the file of vertex ids for its
    checksum.

    Args:
        path: directory of the graph store.
        slice_bytes: bytes of an array in memory at a time, about.
    """
    opens = "meta.json, sizes, types, offsets, labels and split"
    try:
        meta, graph = store_meta.read_meta(path), Graph.open(path)
    except GraphError as error:
        return [Check(what=opens, problem=str(error))]
    checks = [Check(what=opens, problem=None)]
    total = sum(entry.bytes for entry in meta.arrays.values())
    with track(f"checking {path.name}", total, "bytes") as advance:
        partial = (store_format.DEGREES, store_format.OWNER)
        names = (*store_format.ARRAYS, *partial, *store_format.EDGE_ARRAYS)
        for name in (*names, *sorted(meta.arrays.keys() - set(names))):  # last, features of types
            if name in meta.arrays:
                checks += _array_checks(path, meta, graph, name, slice_bytes, advance)
    return checks + list(_ids_checks(path, meta, graph))


def _ids_checks(path: Path, meta: store_meta.StoreMeta, graph: Graph) -> Iterator[Check]:
    """Yield the check of the file of the user's vertex ids, if the store has that."""
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
    meta: store_meta.StoreMeta,
    graph: Graph,
    name: str,
    slice_bytes: int,
    advance: Callable[[int], None],
) -> Iterator[Check]:
    """Read the array ``name``; yield the checks of its checksum and, for some, its values.

    ``advance`` gets the number of bytes read.
    """
    file, array, checked = path / f"{name}.npy", _array(graph, name), _property(graph, name)
    problem, crc32 = None, 0
    for rows in read_slices(file, array, slice_bytes):
        advance(rows[1].nbytes)
        crc32 = zlib.crc32(rows[1].reshape(-1).view(np.uint8).data, crc32)
        if problem is None and checked is not None:
            problem = checked[1](*rows, graph)
    expected = meta.arrays[name].crc32
    differs = f"{file}: checksum {crc32}, expected {expected}" if crc32 != expected else None
    yield Check(what=f"{name}.npy: checksum", problem=differs and one_line(differs))
    if checked is not None:
        problem = problem and one_line(f"{file}: {problem}")
        yield Check(what=f"{name}.npy: {checked[0]}", problem=problem)


def _array(graph: Graph, name: str) -> Array:
    """Return the array of a graph that its store has under ``name``."""
    features, arrays = graph.features, graph.edges.arrays() | graph.label_arrays
    arrays |= timed_arrays(graph.times, graph.rows)
    array = arrays.get(name)
    if array is not None:
        return array
    if isinstance(features, ShardedFeatures) and name in ("features", store_format.OWNER):
        return features.rows if name == "features" else features.owner
    if isinstance(features, TypedFeatures):
        by_name = {store_format.typed_features(i): m for i, m in enumerate(features.matrices)}
        matrix = by_name.get(name)
        if matrix is not None:
            return matrix.rows
    values: Array = getattr(graph, name)
    return values


def _neighbor_problem(first: int, ids: IntArray, graph: Graph) -> str | None:
    """Return a message if ``ids``, ``indices`` from ``first`` on, are out of range or unsorted.

    So is an id that is not of the source type of its list.
    """
    if ids.min() < 0 or ids.max() >= graph.num_vertices:
        edge = int(((ids < 0) | (ids >= graph.num_vertices)).argmax())
        return (
            f"neighbor {ids[edge]} of vertex {_owner(first + edge, graph)} is out of range, "
            f"the graph has {graph.num_vertices} vertices"
        )
    if graph.types is not None and (message := _type_problem(first, ids, graph)) is not None:
        return message
    if graph.times is not None:  # the check of the times has that of the order
        return None
    previous = graph.indices[first - 1 : first] if first else ids[:0]
    # A neighbor may be smaller than the previous one only at the start of a list.
    falls = np.flatnonzero(np.diff(np.concatenate([previous, ids])) < 0) + first + 1 - len(previous)
    starts = graph.indptr[np.searchsorted(graph.indptr, falls)]
    if (starts != falls).any():
        edge = int(falls[(starts != falls).argmax()])
        return f"the neighbors of vertex {_owner(edge, graph)} are not sorted"
    return None


def _order_problem(first: int, times: Int64Array, graph: Graph) -> str | None:
    """Return a message on the first list of the graph out of order, or None; at the first slice."""
    if first:
        return None
    assert graph.times is not None
    return order_problem(graph.indptr, graph.indices, graph.times.edges, graph.schema)


def _type_problem(first: int, ids: IntArray, graph: Graph) -> str | None:
    """Return a message if one of ``ids``, ``indices`` from ``first`` on, is of a wrong type."""
    row = int(np.searchsorted(graph.indptr, first, side="right")) - 1
    end = int(np.searchsorted(graph.indptr, first + len(ids), side="left"))
    ends = np.clip(graph.indptr[row : end + 1], first, first + len(ids))
    edge = graph.schema.wrong_source(row, np.diff(ends), ids)
    if edge is None:
        return None
    return f"neighbor {ids[edge]} of vertex {_owner(first + edge, graph)} is of another type"


def _owner(edge: int, graph: Graph) -> int:
    """Return the destination vertex of the edge at index ``edge`` of ``graph.indices``."""
    row = np.searchsorted(graph.indptr, [edge], side="right") - 1
    return int(graph.schema.vertex_of(row)[0])


def _vertex_feature_problem(first: int, rows: Array, graph: Graph) -> str | None:
    of = "row" if isinstance(graph.features, ShardedFeatures) else "vertex"
    return _feature_problem(first, rows, graph.feature_dtype, of)


def _feature_problem(first: int, rows: Array, dtype: str, of: str) -> str | None:
    """Return a message on a value not finite, or None; ``rows[0]`` is ``of`` number ``first``."""
    if dtype == "uint8":
        return None
    good = finite(rows, dtype)
    if good.all():
        return None
    row, column = np.argwhere(~good)[0]
    if dtype in MAX_QUANTIZED:
        return f"the scale of {of} {first + row} is {scales_of(rows)[row]}"
    return f"feature {column} of {of} {first + row} is not finite"


def _weight_problem(first: int, weights: Float32Array, graph: Graph) -> str | None:
    """Return a message on a weight negative or not finite, or None.

    ``first`` is the index of the first weight's edge.
    """
    good = (weights >= 0) & np.isfinite(weights)
    if good.all():
        return None
    edge = int(good.argmin())
    return (
        f"the weight of edge {first + edge}, to vertex {_owner(first + edge, graph)}, is "
        f"{weights[edge]}"
    )


def _row_problem(first: int, rows: UInt32Array, graph: Graph) -> str | None:
    """Return a message on a feature row number out of range, or None.

    ``first`` is the index of the first row number's edge.
    """
    if graph.edges.by_type is not None:
        return wrong_row(graph.edges.by_type, graph.schema, graph.indptr, first, rows)
    assert graph.edge_features is not None
    wrong = rows >= len(graph.edge_features)
    if not wrong.any():
        return None
    edge = int(wrong.argmax())
    return (
        f"row {rows[edge]} of edge {first + edge}, to vertex {_owner(first + edge, graph)}, is "
        f"out of range, there are {len(graph.edge_features)} rows of edge features"
    )


def _end_problem(first: int, ends: IntArray, graph: Graph) -> str | None:
    """Return a message on a vertex id out of range, or None; ``first`` numbers the first edge."""
    wrong = (ends < 0) | (ends >= graph.num_vertices)
    if not wrong.any():
        return None
    row, end = np.argwhere(wrong)[0]
    return (
        f"end {ends[row, end]} of edge {first + row} is out of range, the graph has "
        f"{graph.num_vertices} vertices"
    )


def _property(graph: Graph, name: str) -> "tuple[str, _Problem] | None":
    """Return the property of the array ``name``, and its check; None: it has none."""
    for features, array_name, of in (
        (graph.features, store_format.typed_features, "vertex"),
        (graph.edges.by_type, store_format.typed_edge_features, "row"),
    ):
        if isinstance(features, TypedFeatures):
            for number, matrix in enumerate(features.matrices):
                if matrix is not None and name == array_name(number):
                    return "all finite", partial(_matrix_problem, matrix.dtype, of)
    return _PROPERTIES.get(name)


def _matrix_problem(dtype: str, of: str, first: int, rows: Array, graph: Graph) -> str | None:
    return _feature_problem(first, rows, dtype, of)


#: Function of the first row's number, rows and graph that returns a violation in one line, or None.
_Problem = Callable[[int, Any, Graph], str | None]
#: Property of arrays besides the checksum, and the function that returns its violation.
_PROPERTIES: dict[str, tuple[str, _Problem]] = {
    "indices": ("neighbors in range and sorted", _neighbor_problem),
    "features": ("all finite", _vertex_feature_problem),
    store_format.WEIGHTS: ("all finite and not negative", _weight_problem),
    store_format.EDGE_ROWS: ("all in range", _row_problem),
    store_format.EDGE_FEATURES: (
        "all finite",
        lambda first, rows, graph: _feature_problem(first, rows, "float32", "row"),
    ),
    store_format.EDGE_ENDS: ("all in range", _end_problem),
    store_format.EDGE_TIMES: ("lists sorted by time, then by source", _order_problem),
}
