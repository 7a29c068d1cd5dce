"""Whether a store still fits its options and published files, and whether its content is right."""

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, IntArray, UInt32Array, one_line, track
from gnnscale.core.artifact.files import read_file
from gnnscale.core.artifact.header import file_sha256, header_text, parse_json
from gnnscale.core.artifact.npy import SLICE_BYTES, read_slices
from gnnscale.data.tables.vertex_ids import check_ids_file, read_ids
from gnnscale.graph import Graph
from gnnscale.graph import store_format as graph_store
from gnnscale.graph.dtypes import MAX_QUANTIZED, finite, scales_of
from gnnscale.graph.sharded import ShardedFeatures

_UNFINISHED_META = ".meta.json.tmp"


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """A published file as ``meta.json`` records it."""

    name: str  #: its path inside ``dataset.raw``
    bytes: int
    mtime_ns: int  #: when it was last changed, in ns since 1970
    sha256: str


@contextmanager
def raw_records(files: Sequence[Path], root: Path) -> Iterator[Callable[[], list[RawFile]]]:
    """Hash ``files`` in a thread during the ``with`` block; names are relative to ``root``.

    Yields a function that waits for size, time and hash of each file, and returns them.
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
            yield lambda: [each.result() for each in records]
        finally:
            stop.set()


def changed_file(
    store: Path, meta: graph_store.StoreMeta, files: Sequence[Path], root: Path
) -> Path | None:
    """Return the first of ``files`` whose content is not what ``store`` was made of, else None.

    If size and time are those recorded, so is the content; otherwise it is hashed. Times that
    are out of date are recorded again if that is possible, so that the next look is quick. Names
    are relative to ``root``. A damaged record of the files is a GraphError.
    """
    recorded = _recorded(meta, store)
    found: list[RawFile] = []
    for file in files:
        name, status = _name(file, root), file.stat()
        before = recorded.get(name)
        if before and (before.bytes, before.mtime_ns) == (status.st_size, status.st_mtime_ns):
            continue
        known = (before,) if before else tuple(recorded.values())
        if status.st_size not in (each.bytes for each in known):
            return file
        sha256 = file_sha256(file)
        same = next((each for each in known if each.sha256 == sha256), None)
        if same is None:
            return file
        found.append(replace(same, name=name, mtime_ns=status.st_mtime_ns))
    if found:
        _record_anew(store, recorded | {each.name: each for each in found})
    return None


def _name(file: Path, root: Path) -> str:
    return file.name if file == root else os.path.relpath(file, root)


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """The entry of ``meta.json`` that records the published files."""

    raw: tuple[RawFile, ...]


def _recorded(meta: graph_store.StoreMeta, store: Path) -> dict[str, RawFile]:
    found = graph_store.GRAPH_STORE.record(_Recorded, meta.entries, store)
    return {file.name: file for file in found.raw}


def _record_anew(store: Path, records: Mapping[str, RawFile]) -> None:
    """Write other records of the published files into ``meta.json``, if that is possible.

    All goes through the directory as it was opened: another process may put a new store into its
    place at any time, and that one must not get an old ``meta.json``.
    """
    with suppress(OSError):  # it only saves time
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with _open_in(folder, "meta.json", os.O_RDONLY) as stream:
                entries = json.load(stream)
            entries["raw"] = [asdict(record) for record in records.values()]
            with _open_in(folder, _UNFINISHED_META, os.O_RDWR | os.O_CREAT | os.O_EXCL) as stream:
                stream.write(header_text(entries))
            os.replace(_UNFINISHED_META, "meta.json", src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)


def _open_in(folder: int, name: str, flags: int) -> IO[str]:
    descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    return os.fdopen(descriptor, "r" if flags == os.O_RDONLY else "w")


def check_options(store: Path, meta: graph_store.StoreMeta, options: Mapping[str, Any]) -> None:
    """Raise GraphError unless a store was prepared with these options; names the difference."""
    before = meta.entries.get("options")
    if not isinstance(before, dict):
        raise graph_store.GRAPH_STORE.refused(store, "options are missing")
    graph_store.GRAPH_STORE.check_same(store, options, before)


def check_replaceable(path: Path) -> None:
    """Raise GraphError if a directory holds anything but a graph store: none is replaced then."""
    try:
        entries = parse_json(read_file(path / graph_store.GRAPH_STORE.header), source=path)
    except GraphError:
        entries = {}
    if not {"format_version", "arrays"} <= set(entries):
        raise GraphError(
            f"{path}: exists and is not a graph store, so it is never replaced; "
            "name another dataset.store, or remove it"
        )
    graph_store.GRAPH_STORE.check_replaceable(path)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    what: str  #: the file, and what of it
    problem: str | None  #: one line on the first thing that is wrong, None if nothing is


def verify_store(path: Path, *, slice_bytes: int = SLICE_BYTES) -> list[Check]:
    """Read every byte of a graph store, and say of each of its files whether it is as it must be.

    What ``Graph.open`` checks comes first; a store that cannot be opened is looked at no further.
    Then come the checksums of all arrays, the order and range of the neighbours, whether all
    features are finite, all weights of edges finite and not negative, and all rows of edges in
    range. About ``slice_bytes`` are in memory at a time.
    """
    opens = "meta.json, sizes, types, offsets, labels and split"
    try:
        meta, graph = graph_store.read_meta(path), Graph.open(path)
    except GraphError as error:
        return [Check(what=opens, problem=str(error))]
    checks = [Check(what=opens, problem=None)]
    total = sum(entry.bytes for entry in meta.arrays.values())
    with track(f"checking {path.name}", total, "bytes") as advance:
        for name in filter(
            meta.arrays.__contains__,
            (*graph_store.ARRAYS, graph_store.DEGREES, graph_store.OWNER, *graph_store.EDGE_ARRAYS),
        ):
            checks += _array_checks(path, meta, graph, name, slice_bytes, advance)
    return checks + list(_ids_checks(path, meta, graph))


def _ids_checks(path: Path, meta: graph_store.StoreMeta, graph: Graph) -> Iterator[Check]:
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
    meta: graph_store.StoreMeta,
    graph: Graph,
    name: str,
    slice_bytes: int,
    advance: Callable[[int], None],
) -> Iterator[Check]:
    """Read one array once, for its checksum and for what its values must be."""
    file, array, divided = path / f"{name}.npy", graph.edges.arrays().get(name), graph.features
    if isinstance(divided, ShardedFeatures) and name in ("features", graph_store.OWNER):
        array = divided.rows if name == "features" else divided.owner
    array = getattr(graph, name) if array is None else array
    problem, crc32 = None, 0
    for rows in read_slices(file, array, slice_bytes):
        advance(rows[1].nbytes)
        crc32 = zlib.crc32(rows[1].reshape(-1).view(np.uint8).data, crc32)
        if problem is None and name == "indices":
            problem = _neighbor_problem(*rows, graph)
        elif problem is None and name == "features":
            of = "row" if isinstance(divided, ShardedFeatures) else "vertex"
            problem = _feature_problem(*rows, graph.feature_dtype, of)
        elif problem is None and name == graph_store.WEIGHTS:
            problem = _weight_problem(*rows, graph)
        elif problem is None and name == graph_store.EDGE_ROWS:
            problem = _row_problem(*rows, graph)
        elif problem is None and name == graph_store.EDGE_FEATURES:
            problem = _feature_problem(*rows, "float32", of="row")
        elif problem is None and name == graph_store.EDGE_ENDS:
            problem = _end_problem(*rows, graph)
    expected = meta.arrays[name].crc32
    differs = f"{file}: checksum {crc32}, expected {expected}" if crc32 != expected else None
    yield Check(what=f"{name}.npy: checksum", problem=differs and one_line(differs))
    what = {
        "indices": "neighbours in range and sorted",
        "features": "all finite",
        graph_store.WEIGHTS: "all finite and not negative",
        graph_store.EDGE_ROWS: "all in range",
        graph_store.EDGE_FEATURES: "all finite",
        graph_store.EDGE_ENDS: "all in range",
    }.get(name)
    if what is not None:
        problem = problem and one_line(f"{file}: {problem}")
        yield Check(what=f"{name}.npy: {what}", problem=problem)


def _neighbor_problem(first: int, ids: IntArray, graph: Graph) -> str | None:
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


def _feature_problem(first: int, rows: Array, dtype: str, of: str = "vertex") -> str | None:
    """Return what is wrong with feature ``rows``, of which ``first`` is the first's vertex."""
    if dtype == "uint8":
        return None
    found = finite(rows, dtype)
    if found.all():
        return None
    row, column = np.argwhere(~found)[0]
    if dtype in MAX_QUANTIZED:
        return f"the scale of {of} {first + row} is {scales_of(rows)[row]}"
    return f"feature {column} of {of} {first + row} is not finite"


def _weight_problem(first: int, weights: Float32Array, graph: Graph) -> str | None:
    """Return what is wrong with ``weights`` of edges, of which ``first`` is the first's place."""
    good = (weights >= 0) & np.isfinite(weights)
    if good.all():
        return None
    place = int(good.argmin())
    return (
        f"the weight of edge {first + place}, to vertex {_owner(first + place, graph)}, is "
        f"{weights[place]}"
    )


def _row_problem(first: int, rows: UInt32Array, graph: Graph) -> str | None:
    """Return what is wrong with ``rows`` of edges, of which ``first`` is the first's place."""
    assert graph.edge_features is not None
    wrong = rows >= len(graph.edge_features)
    if not wrong.any():
        return None
    place = int(wrong.argmax())
    return (
        f"row {rows[place]} of edge {first + place}, to vertex {_owner(first + place, graph)}, is "
        f"out of range, there are {len(graph.edge_features)} rows of edge features"
    )


def _end_problem(first: int, ends: IntArray, graph: Graph) -> str | None:
    """Return what is wrong with ``ends`` of edges, of which ``first`` is the first's row."""
    wrong = (ends < 0) | (ends >= graph.num_vertices)
    if not wrong.any():
        return None
    row, end = np.argwhere(wrong)[0]
    return (
        f"end {ends[row, end]} of edge {first + row} is out of range, the graph has "
        f"{graph.num_vertices} vertices"
    )
