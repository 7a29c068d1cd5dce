"""One part of a graph as a store of its own: with global ids, and no more than the part has."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gnnscale.core import (
    Array,
    BoolArray,
    Float32Array,
    GraphError,
    Int16Array,
    IntArray,
    UInt32Array,
    track,
)
from gnnscale.core.artifact.files import check_space, new_folder, open_regular
from gnnscale.core.artifact.npy import (
    SLICE_BYTES,
    ArrayEntry,
    NpyWriter,
    row_slices,
    write_array,
    write_header,
    write_rows,
)
from gnnscale.graph import Graph
from gnnscale.graph.sharded import ShardedFeatures
from gnnscale.graph.store_format import (
    DEGREES,
    EDGE_FEATURES,
    EDGE_ROWS,
    OWNER,
    SPLIT_ARRAYS,
    WEIGHTS,
    kept_notes,
    write_meta,
)
from gnnscale.partition import base as partitioner
from gnnscale.partition import store
from gnnscale.partition.base import Parts
from gnnscale.partition.store import describe
from gnnscale.sampling.seed_order import labelled_vertices

_SLICE_EDGES = 1 << 22
_MAX_DEGREE = (1 << 32) - 1
_PAGE_BYTES = 4096


def view_of_part(graph: Graph, parts: partitioner.Parts, index: int) -> Graph:
    """Return ``graph`` with the training vertices of one part; takes no memory but for these."""
    return graph.with_split(train_idx=_train_vertices(graph, parts, index))


def write_part(graph: Graph, parts: partitioner.Parts, index: int, path: Path) -> None:
    """Write one part of ``graph`` as a separate graph store, atomically.

    Vertices keep their ids and neighbours their order, so that a sampler that starts from the
    part's training vertices, and goes no further than ``parts.num_hops``, returns what it returns
    of the whole graph. The part's own are:

    - lists of vertices fewer than ``num_hops`` away, with the weights of their edges and their
      rows of features; others are empty,
    - features of these edges; the file has holes in place of other rows,
    - features of vertices up to ``num_hops`` away; the file has holes in place of others,
    - training vertices that belong to it,
    - ``degrees``, in-degrees in the whole graph of its vertices.

    Labels, and what is validated and tested, are those of the whole graph.

    Args:
        graph: the whole graph.
        parts: how it is divided, with ``hops``.
        index: of the part, from 0.
        path: a directory that does not exist yet, or is empty.

    Raises:
        GraphError: ``path`` exists or cannot be written, the graph is a part itself, or a part of
            the split is empty.
        NoSpaceError: the disk has too little room.
        ValueError: the parts have no halo of their own, or there is no such part.
    """
    if parts.hops is None:
        raise ValueError("parts without hops have no stores of their own")
    if not 0 <= index < parts.num_parts:
        raise ValueError(f"part {index}: there are {parts.num_parts}")
    if graph.degrees is not None:
        raise GraphError(f"{graph.path or graph.name}: is one part of a graph already")
    hops = parts.hops[index]
    with new_folder(path) as folder:
        if folder is None:
            raise GraphError(f"{path}: exists already; name another directory, or remove it")
        arrays = _write_arrays(folder, graph, hops < parts.num_hops, hops != partitioner.UNREACHED)
        small = {"labels": graph.labels, **_splits(graph, parts, index)}
        arrays |= {name: write_array(folder / f"{name}.npy", each) for name, each in small.items()}
        whole = store.describe(graph).content
        write_meta(
            folder,
            arrays,
            name=graph.name,
            num_classes=graph.num_classes,
            feature_dtype=graph.feature_dtype,
            num_features=graph.num_features,
            metric=graph.metric,
            part={"index": index, "num_parts": parts.num_parts, "of": whole},
            attainable_accuracy=graph.attainable_accuracy,
        )


def _train_vertices(graph: Graph, parts: partitioner.Parts, index: int) -> IntArray:
    return parts.train_vertices(labelled_vertices(graph, "train"))[index]


def _splits(graph: Graph, parts: partitioner.Parts, index: int) -> dict[str, IntArray]:
    """Return the part's training vertices, and the others as they are, in the form of a store's."""
    splits = {
        "train_idx": _train_vertices(graph, parts, index),
        "valid_idx": labelled_vertices(graph, "valid"),
        "test_idx": graph.test_idx,
    }
    for name, ids in splits.items():
        if not len(ids):
            raise GraphError(f"{graph.name}: its {name} is empty, and a store needs one")
    return {name: np.sort(ids).astype(graph.indices.dtype) for name, ids in splits.items()}


def _write_arrays(
    folder: Path, graph: Graph, listed: BoolArray, present: BoolArray
) -> dict[str, ArrayEntry]:
    """Write what a part has less of: it has the ``present`` vertices, lists of the ``listed``."""
    degrees = _degrees(graph)
    indptr = np.concatenate([[0], np.cumsum(np.where(listed, degrees, 0), dtype=np.int64)])
    row_bytes = graph.features[:1].nbytes
    edge_bytes = graph.indices.itemsize
    edge_bytes += 4 * ((graph.edge_weights is not None) + (graph.edge_rows is not None))
    edge_bytes += 4 * graph.num_edge_features  # at most, since rows are shared
    disk = int(indptr[-1]) * edge_bytes + int(present.sum()) * row_bytes
    check_space(f"{folder}: a part of {graph.name}", folder, disk=disk)
    name = f"writing {folder.name.removesuffix('.partial').lstrip('.')}"
    indices = _kept(graph, graph.indices, listed, f"{name}: neighbours")
    arrays = {
        "indptr": write_array(folder / "indptr.npy", indptr),
        "indices": write_rows(folder / "indices.npy", indices, graph.indices.dtype),
        "features": _write_features(
            folder / "features.npy", graph.features, present, f"{name}: features", "vertices"
        ),
        DEGREES: write_array(folder / f"{DEGREES}.npy", np.where(present, degrees, np.uint32(0))),
    }
    if graph.edge_weights is not None:
        kept = _kept(graph, graph.edge_weights, listed, f"{name}: weights")
        arrays[WEIGHTS] = write_rows(folder / f"{WEIGHTS}.npy", kept, np.dtype(np.float32))
    if graph.edge_rows is not None and graph.edge_features is not None:
        arrays |= _write_edge_features(
            folder, graph, graph.edge_rows, graph.edge_features, listed, name
        )
    return arrays


def _write_edge_features(
    folder: Path,
    graph: Graph,
    rows: UInt32Array,
    features: Float32Array,
    listed: BoolArray,
    name: str,
) -> dict[str, ArrayEntry]:
    """Write the rows of the edges in the part's lists, and their features. Rows keep their number.

    Raises:
        GraphError: a row is out of range.
    """
    used = np.zeros(len(features), np.bool_)

    def marked() -> Iterator[Array]:
        for part in _kept(graph, rows, listed, f"{name}: rows of edges"):
            if len(part) and part.max() >= len(used):
                raise GraphError(
                    f"{graph.path or graph.name}: damaged, edge_rows: row {part.max()} is out of "
                    f"range, there are {len(used)} rows of edge features; gnnscale doctor "
                    "store=DIR looks at all of it"
                )
            used[part] = True
            yield part

    file, what = folder / f"{EDGE_FEATURES}.npy", f"{name}: edge features"
    return {
        EDGE_ROWS: write_rows(folder / f"{EDGE_ROWS}.npy", marked(), np.dtype(np.uint32)),
        EDGE_FEATURES: _write_features(file, features, used, what, "rows"),
    }


def _degrees(graph: Graph) -> UInt32Array:
    degrees = np.diff(graph.indptr)
    if degrees.max() > _MAX_DEGREE:
        vertex = int(degrees.argmax())
        raise GraphError(f"{graph.name}: vertex {vertex} has {degrees[vertex]} neighbours")
    return degrees.astype(np.uint32)


def _kept(graph: Graph, values: Array, listed: BoolArray, what: str) -> Iterator[Array]:
    """Yield what ``values``, one for each edge, say of the lists of the listed vertices."""
    with track(what, graph.num_edges, "edges") as advance:
        first = 0
        while first < graph.num_vertices:
            begin = graph.indptr[first]
            last = int(np.searchsorted(graph.indptr, begin + _SLICE_EDGES, side="right")) - 1
            last = max(last, first + 1)  # a list may be longer than a slice
            found = values[begin : graph.indptr[last]]
            yield found[np.repeat(listed[first:last], np.diff(graph.indptr[first : last + 1]))]
            advance(len(found))
            first = last


def _write_features(
    path: Path, rows: Array, present: BoolArray, what: str, unit: str
) -> ArrayEntry:
    """Write the rows that are present, and leave holes for others, which read as zeros."""
    row_bytes, crc32 = rows[:1].nbytes, 0
    page = max(1, _PAGE_BYTES // max(1, row_bytes))  # rows
    with path.open("wb") as file, track(what, len(rows), unit) as advance:
        write_header(file, rows.shape, rows.dtype)
        start = file.tell()
        for part in row_slices(len(rows), row_bytes):
            kept = np.flatnonzero(present[part])
            slice_rows = np.zeros((part.stop - part.start, *rows.shape[1:]), rows.dtype)
            slice_rows[kept] = rows[part][kept]
            crc32 = zlib.crc32(slice_rows.reshape(-1).view(np.uint8).data, crc32)
            # Pages in a row are written in one go: a smaller hole saves nothing.
            pages = np.unique(kept // page)
            for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
                if len(run):
                    first, last = int(run[0]) * page, (int(run[-1]) + 1) * page
                    file.seek(start + (part.start + first) * row_bytes)
                    file.write(slice_rows[first:last].reshape(-1).view(np.uint8).data)
            advance(len(slice_rows))
        file.truncate(start + rows.nbytes)
    return ArrayEntry(
        shape=rows.shape, dtype=str(rows.dtype), bytes=start + rows.nbytes, crc32=crc32
    )


#: What is said of features, if ever, is true of the rows of a part too.
_UNCHANGED = ("vertices", "features", "labels", "edge_features", "edge_labels")


def write_row_stores(
    graph: Graph, parts: Parts, folder: Path, *, partition: str, indices: Sequence[int]
) -> None:
    """Write stores that each have the rows of one part's vertices, and all else of ``graph``.

    A store is what one of several machines needs of a graph whose rows they divide: topology,
    labels, split, ids and what edges carry; the part that has each vertex (``owner``); and
    ``features``, the rows of its own vertices in ascending order. Each appears complete, or not at
    all.

    Args:
        graph: the whole graph.
        parts: whose each vertex is.
        folder: gets a directory named by its number for each of ``indices``.
        partition: the content of the partition, which each store records.
        indices: of the parts whose stores are written.

    Raises:
        GraphError: a vertex belongs to no part, a directory exists or cannot be written, or
            ``graph`` is one part of a graph itself.
        NoSpaceError: the disk has too little room.
    """
    if isinstance(graph.features, ShardedFeatures):
        raise graph.features.refused()
    if graph.degrees is not None:
        raise GraphError(f"{graph.path or graph.name}: is one part of a graph already")
    owner = _owners(graph, parts)
    with ExitStack() as stores:
        found = {}
        for index in indices:
            found[index] = stores.enter_context(new_folder(folder / str(index)))
            if found[index] is None:
                raise GraphError(
                    f"{folder / str(index)}: exists already; remove it to write it again"
                )
        places = {index: place for index, place in found.items() if place is not None}
        _write(graph, parts, owner, places, partition)


def _owners(graph: Graph, parts: Parts) -> Int16Array:
    """Return the part of each vertex.

    Raises:
        GraphError: a vertex belongs to no part.
    """
    if parts.owner is None:
        raise GraphError(
            f"{graph.name}: part_stores=rows needs a partitioner that gives each vertex to a part, "
            "and this one divides columns"
        )
    owner = np.asarray(parts.owner, np.int16)
    nobodys = owner < 0
    if nobodys.any():
        raise GraphError(
            f"{graph.name}: part_stores=rows: vertex {int(nobodys.argmax())} belongs to no part, "
            f"as {int(nobodys.sum()) - 1} others; every vertex has one with partitioner=hash or "
            "edge_cut"
        )
    return owner


def _write(
    graph: Graph, parts: Parts, owner: Int16Array, folders: dict[int, Path], partition: str
) -> None:
    arrays = _common_arrays(graph, owner)
    notes, copied = ({}, []) if graph.path is None else kept_notes(graph.path, _UNCHANGED)
    counts = np.bincount(owner, minlength=parts.num_parts)
    row_bytes = graph.num_features * graph.features.itemsize
    common = sum(each.nbytes for each in arrays.values())
    if folders:
        disk = sum(common + int(counts[index]) * row_bytes for index in folders)
        check_space(f"{graph.name}: {len(folders)} parts", next(iter(folders.values())), disk=disk)
    whole, labels = describe(graph).content, graph.edge_labels
    rows = _write_rows(graph, owner, folders)
    for index, folder in folders.items():
        written = {"features": rows[index]}
        for name, array in arrays.items():
            what = f"part {index}: {name}"
            written[name] = _copied(folder / f"{name}.npy", array, what)
        for file in copied:
            with open_regular(file) as source, (folder / file.name).open("wb") as copy:
                shutil.copyfileobj(source, copy)
        write_meta(
            folder,
            written,
            name=graph.name,
            num_classes=graph.num_classes,
            feature_dtype=graph.feature_dtype,
            metric=graph.metric,
            attainable_accuracy=graph.attainable_accuracy,
            edge_labels=labels and {"num_classes": labels.num_classes, "metric": labels.metric},
            part={
                "index": index,
                "num_parts": parts.num_parts,
                "of": whole,
                "rows_of": partition,
            },
            **notes,
        )


def _common_arrays(graph: Graph, owner: Int16Array) -> dict[str, Array]:
    """Return what every part has, by the names of a store's arrays."""
    arrays: dict[str, Array] = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "labels": graph.labels,
        OWNER: owner,
    }
    for name in SPLIT_ARRAYS:
        arrays[name] = np.sort(getattr(graph, name)).astype(graph.indices.dtype, copy=False)
    return arrays | graph.edges.arrays()


def _copied(file: Path, array: Array, what: str) -> ArrayEntry:
    """Write ``array`` slice by slice, and show progress."""
    row_bytes = array[:1].nbytes
    with track(what, array.nbytes, "bytes") as advance:

        def slices() -> Iterator[Array]:
            for part in row_slices(len(array), row_bytes):
                yield array[part]
                advance((part.stop - part.start) * row_bytes)

        return write_rows(file, slices(), array.dtype, array.shape[1:])


def _write_rows(graph: Graph, owner: Int16Array, folders: dict[int, Path]) -> dict[int, ArrayEntry]:
    """Write the rows of all parts in one pass over those of the graph."""
    features = graph.features
    row_bytes = graph.num_features * features.itemsize
    with ExitStack() as files, track(f"dividing rows of {graph.name}", len(owner), "rows") as done:
        writers = {
            index: files.enter_context(
                NpyWriter(folder / "features.npy", features.dtype, features.shape[1:])
            )
            for index, folder in folders.items()
        }
        for part in row_slices(len(owner), row_bytes, SLICE_BYTES):
            rows, owners = np.asarray(features[part]), owner[part]
            for index, writer in writers.items():
                writer.append(rows[owners == index])
            done(len(owners))
        return {index: writer.close() for index, writer in writers.items()}
