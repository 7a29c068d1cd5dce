"""Checks of a graph store: against its options and raw files, and of its content."""

import json
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, IntArray, UInt32Array, one_line, track
from gnnscale.core.artifact.files import file_sha256, header_text, parse_json, read_file
from gnnscale.core.artifact.npy import SLICE_BYTES, read_slices
from gnnscale.core.files import write_atomically
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
from gnnscale.graph.typed_edge_store import wrong_row

_LOG = logging.getLogger(__name__)
#: Option of stores whose random split is stratified by class; stores of earlier releases lack it.
STRATIFIED = "stratified"
#: Options of later releases at their defaults.
_LATER = {
    **dict.fromkeys(("categories", "edge_features", "edge_categories", "edge_label"), None),
    **{"edge_label_kind": "auto", "edge_split_column": "split", "edge_split_by": "pair"},
    **{"split_group": None, "unknown_ids": "vertices", "missing": "mean", "decimal": "."},
    **{"standardize": False, "unlabelled": "refuse"},
}


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """Name, size, time and checksum of a raw file, recorded in ``meta.json``."""

    name: str  #: path relative to ``dataset.raw``
    bytes: int
    mtime_ns: int  #: time of the last change, in ns since 1970
    sha256: str


@contextmanager
def raw_records(files: Sequence[Path], root: Path) -> Iterator[Callable[[], list[RawFile]]]:
    """Hash ``files`` in a thread in the block; yield a function that waits for their records.

    Names in the records are relative to ``root``.
    """
    stop = threading.Event()

    def record(file: Path) -> RawFile:
        status = file.stat()
        sha256 = file_sha256(file, stop)
        return RawFile(
            name=_name(file, root), bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256
        )

    with ThreadPoolExecutor(1, "gnnscale-checking") as pool:
        records = [pool.submit(record, file) for file in files]
        try:
            yield lambda: [result.result() for result in records]
        finally:
            stop.set()


def changed_file(
    store: Path, meta: store_meta.StoreMeta, files: Sequence[Path], root: Path
) -> Path | None:
    """Return the first of ``files`` whose content changed since ``store`` was written, or None.

    A file with the recorded size and time is unchanged; otherwise the file is hashed. If only the
    time differs, it is recorded if possible, so that the next check needs no hash.
    """
    entry = store_format.GRAPH_STORE.record(_Recorded, meta.entries, store)
    recorded = {file.name: file for file in entry.raw}
    touched: list[RawFile] = []
    for file in files:
        name, status = _name(file, root), file.stat()
        record = recorded.get(name)
        if record and (record.bytes, record.mtime_ns) == (status.st_size, status.st_mtime_ns):
            continue
        candidates = (record,) if record else tuple(recorded.values())
        if status.st_size not in (candidate.bytes for candidate in candidates):
            return file
        sha256 = file_sha256(file)
        same = next((candidate for candidate in candidates if candidate.sha256 == sha256), None)
        if same is None:
            return file
        touched.append(replace(same, name=name, mtime_ns=status.st_mtime_ns))
    if touched:
        _record_anew(store, recorded | {candidate.name: candidate for candidate in touched})
    return None


def _name(file: Path, root: Path) -> str:
    return file.name if file == root else os.path.relpath(file, root)


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """Entry of ``meta.json`` with the records of the raw files."""

    raw: tuple[RawFile, ...]


def _record_anew(store: Path, records: Mapping[str, RawFile]) -> None:
    """Replace the records of the raw files in ``meta.json``, or do nothing if that fails."""
    with suppress(OSError):  # the record only saves time
        # Another process may replace the directory; the open one stays as it is.
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            meta = Path(f"/proc/self/fd/{folder}/meta.json")
            entries = json.loads(meta.read_text())
            entries["raw"] = [asdict(record) for record in records.values()]
            write_atomically(meta, header_text(entries))
        finally:
            os.close(folder)


def distinctive_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by which stores differ.

    Those of later releases are left out at their defaults, so that older stores keep their names.
    """
    return {
        name: value
        for name, value in options.items()
        if name not in _LATER or value != _LATER[name]
    }


def check_options(store: Path, meta: store_meta.StoreMeta, options: Mapping[str, Any]) -> None:
    """Raise GraphError, naming the difference, unless a store was prepared with ``options``.

    The random split of an earlier release, which is not stratified, is accepted.
    """
    stored = meta.entries.get("options")
    if not isinstance(stored, dict):
        raise store_format.GRAPH_STORE.refused(store, "options are missing")
    if STRATIFIED not in stored:
        options = {name: value for name, value in options.items() if name != STRATIFIED}
    store_format.GRAPH_STORE.check_same(store, options, stored)


def warn_of_earlier_split(store: Path, options: Mapping[str, Any]) -> None:
    """Warn if the random split at ``store`` is not stratified, and would be with ``options``."""
    meta = store_meta.read_meta(store)
    labels, of_edges = meta.arrays.get("labels"), meta.edge_labels  # None: of several types
    by_class = meta.num_classes > 0 and labels is not None and labels.dtype == "int64"
    by_class = by_class or (of_edges is not None and of_edges.metric != "rmse")
    if by_class and STRATIFIED in options and STRATIFIED not in meta.entries["options"]:
        _LOG.warning(
            "%s: its random split is of an earlier release, not stratified by class; gnnscale "
            "prepare with force=true draws it again",
            store,
        )


def check_replaceable(path: Path) -> None:
    """Raise GraphError if a directory is not a graph store, and so must not be replaced."""
    try:
        entries = parse_json(read_file(path / store_format.GRAPH_STORE.header), source=path)
    except GraphError:
        entries = {}
    if not {"format_version", "arrays"} <= set(entries):
        raise GraphError(
            f"{path}: expected a graph store to replace, got other files; name another "
            "dataset.store, or remove the directory"
        )
    store_format.GRAPH_STORE.check_replaceable(path)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of one check of a store."""

    what: str  #: the file and the checked property
    problem: str | None  #: the first problem in one line. None: the check passed.


def verify_store(path: Path, *, slice_bytes: int = SLICE_BYTES) -> list[Check]:
    """Read every byte of a graph store and return the result of each check of its files.

    The first check is ``Graph.open``; if it fails, no other follows. Then arrays are read for their
    checksums, sorted neighbors in range, finite features, finite and non-negative edge weights, and
    edge rows and ends in range; and the file of vertex ids for its checksum.

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
    previous = graph.indices[first - 1 : first] if first else ids[:0]
    # A neighbor may be smaller than the previous one only at the start of a list.
    falls = np.flatnonzero(np.diff(np.concatenate([previous, ids])) < 0) + first + 1 - len(previous)
    starts = graph.indptr[np.searchsorted(graph.indptr, falls)]
    if (starts != falls).any():
        edge = int(falls[(starts != falls).argmax()])
        return f"the neighbors of vertex {_owner(edge, graph)} are not sorted"
    return None


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
}
