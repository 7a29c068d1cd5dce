"""One part of a graph's feature rows as a store, beside the whole topology: for one machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gnnscale.artifact.arrays import (
    SLICE_BYTES,
    ArrayEntry,
    NpyWriter,
    row_slices,
    write_rows,
)
from gnnscale.artifact.divided import DividedRows
from gnnscale.artifact.files import check_space, new_folder, open_regular
from gnnscale.artifact.graph_store import OWNER, SPLIT_ARRAYS, kept_notes, write_meta
from gnnscale.core import Array, GraphError, Int16Array, track
from gnnscale.graph import Graph
from gnnscale.partition.partitioner import Parts
from gnnscale.partition.store import describe

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
    if isinstance(graph.features, DividedRows):
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
