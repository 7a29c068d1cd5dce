"""Graph stores of a single part: full stores of a part with its halo, and stores of its rows."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, track
from gnnscale.core.artifact import check_space, new_folder, npy, open_regular
from gnnscale.core.types import BoolArray, Float32Array, Int16Array, IntArray, UInt32Array
from gnnscale.graph import EdgeData, Graph, GraphTimes, ShardedFeatures, TypedFeatures, store_format
from gnnscale.graph.graph import type_entry
from gnnscale.graph.store_meta import label_entries, write_meta
from gnnscale.graph.store_writer import applicable_metadata
from gnnscale.graph.timed_store import timed_arrays, timed_entries
from gnnscale.partition.base import UNREACHED, Parts
from gnnscale.partition.part_files import copy_array, listed_values, write_features
from gnnscale.partition.store import describe
from gnnscale.sampling.seed_order import labeled_vertices

_MAX_DEGREE = (1 << 32) - 1


def view_of_part(graph: Graph, parts: Parts, index: int) -> Graph:
    """Return ``graph`` with only one part's training vertices; it shares all other arrays."""
    return graph.with_split(train_idx=_train_vertices(graph, parts, index))


def write_part(graph: Graph, parts: Parts, index: int, path: Path) -> None:
    """Write one part of ``graph`` as a graph store of its own, atomically.

    Vertices keep their ids and neighbors their order. A sampler that starts from the part's
    training vertices and goes at most ``parts.num_hops`` hops therefore returns equal results for
    part and full graph. The store differs from the full graph in:

    - adjacency lists (with types, of all edge types), edge weights and edge rows: only of vertices
      fewer than ``num_hops`` hops away; all other lists are empty,
    - edge features: only of the edges in these lists; the file has holes in place of other rows;
      with types, of all edges,
    - features: only of vertices up to ``num_hops`` hops away; the file has holes in place of other
      rows,
    - training vertices: only those that the part owns,
    - ``degrees``: lengths of the lists of the part's vertices in the full graph,
    - labels and ends of edges, vertex ids, and names of columns and classes: none.

    Times of edges are those of the lists, times of vertices all. GraphError: the graph has rows.
    """
    if parts.hops is None:
        raise ValueError("parts: expected parts with hops, got parts without a halo")
    if not 0 <= index < parts.num_parts:
        raise ValueError(f"index: expected 0 to {parts.num_parts - 1}, got {index}")
    if graph.degrees is not None:
        raise GraphError(f"{graph.path or graph.name}: expected a full graph, got one part")
    if graph.rows is not None:
        raise GraphError(
            f"{graph.path or graph.name}: part_stores: expected a graph without rows of a task, "
            f"got {len(graph.rows.vertices)} rows; part_stores=rows keeps them"
        )
    hops = parts.hops[index]
    with new_folder(path) as folder:
        if folder is None:
            raise GraphError(f"{path}: exists already; name another directory, or remove it")
        arrays = _write_arrays(folder, graph, hops < parts.num_hops, hops != UNREACHED)
        small = {**graph.label_arrays, **_splits(graph, parts, index)}
        arrays |= {
            name: npy.write_array(folder / f"{name}.npy", array) for name, array in small.items()
        }
        content = describe(graph).content
        write_meta(
            folder,
            arrays,
            part={"index": index, "num_parts": parts.num_parts, "of": content},
            num_features=graph.num_features,
            types=type_entry(graph),
            **_entries(graph),
        )


def _entries(graph: Graph) -> dict[str, Any]:
    """Return the entries of ``meta.json`` that a part shares with its graph."""
    names = ("name", "num_classes", "feature_dtype", "metric", "attainable_accuracy")
    more = {"type_labels": label_entries(graph.type_labels)}
    more |= timed_entries(graph.times, graph.rows)
    return {name: getattr(graph, name) for name in names} | more


def _train_vertices(graph: Graph, parts: Parts, index: int) -> IntArray:
    return parts.train_vertices(labeled_vertices(graph, "train"))[index]


def _splits(graph: Graph, parts: Parts, index: int) -> dict[str, IntArray]:
    """Return the part's training vertices, and the full validation and test vertices, ascending.

    GraphError: the part has no training vertex.
    """
    has_valid = bool(len(graph.valid_idx))
    splits = {
        "train_idx": _train_vertices(graph, parts, index),
        "valid_idx": labeled_vertices(graph, "valid") if has_valid else graph.valid_idx,
        "test_idx": graph.test_idx,
    }
    if not len(splits["train_idx"]):
        raise GraphError(f"{graph.name}: train_idx: expected at least one vertex for the store")
    return {name: np.sort(ids).astype(graph.indices.dtype) for name, ids in splits.items()}


def _write_arrays(
    folder: Path, graph: Graph, listed: BoolArray, present: BoolArray
) -> dict[str, npy.ArrayEntry]:
    """Write a part's topology and features, and return the entries of the arrays.

    Vertices in mask ``listed`` keep their adjacency lists, those in ``present`` their features.
    """
    degrees = _degrees(graph)
    list_owners = graph.schema.vertex_of(np.arange(len(degrees))) if graph.types else slice(None)
    lengths = np.where(listed[list_owners], degrees, 0)
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    matrices = _matrices(graph)
    edge_bytes = graph.indices.itemsize
    edge_bytes += 4 * ((graph.edge_weights is not None) + (graph.edge_rows is not None))
    edge_bytes += 0 if graph.times is None else graph.times.edges.itemsize
    by_type = graph.edges.by_type
    if by_type is None:
        edge_bytes += 4 * graph.num_edge_features  # an upper bound, since edges share rows
    disk = int(indptr[-1]) * edge_bytes
    disk += sum(int(present[at].sum()) * rows[:1].nbytes for rows, at in matrices.values())
    check_space(f"{folder}: a part of {graph.name}", folder, disk=disk)
    name = f"writing {folder.name.removesuffix('.partial').lstrip('.')}"
    indices = listed_values(graph, graph.indices, listed, f"{name}: neighbors")
    arrays = {
        "indptr": npy.write_array(folder / "indptr.npy", indptr),
        "indices": npy.write_rows(folder / "indices.npy", indices, graph.indices.dtype),
        store_format.DEGREES: npy.write_array(
            folder / f"{store_format.DEGREES}.npy",
            np.where(present[list_owners], degrees, np.uint32(0)),
        ),
    }
    for array, (rows, at) in matrices.items():
        arrays[array] = write_features(
            folder / f"{array}.npy", rows, present[at], f"{name}: {array}", "vertices"
        )
    if graph.edge_weights is not None:
        weights = listed_values(graph, graph.edge_weights, listed, f"{name}: weights")
        arrays[store_format.WEIGHTS] = npy.write_rows(
            folder / f"{store_format.WEIGHTS}.npy", weights, np.dtype(np.float32)
        )
    if graph.times is not None:
        times = listed_values(graph, graph.times.edges, listed, f"{name}: times")
        arrays |= _write_times(folder, graph.times, times)
    if graph.edge_rows is not None and by_type is not None:
        check_space(f"{folder}: features of edges", folder, disk=by_type.nbytes)
        numbers = listed_values(graph, graph.edge_rows, listed, f"{name}: rows of edges")
        file = folder / f"{store_format.EDGE_ROWS}.npy"
        arrays[store_format.EDGE_ROWS] = npy.write_rows(file, numbers, np.dtype(np.uint32))
        arrays |= {
            array: npy.write_array(folder / f"{array}.npy", values)
            for array, values in EdgeData(by_type=by_type).arrays().items()
        }
    if graph.edge_rows is not None and graph.edge_features is not None:
        arrays |= _write_edge_features(
            folder, graph, graph.edge_rows, graph.edge_features, listed, name
        )
    return arrays


def _write_times(
    folder: Path, times: GraphTimes, of_edges: Iterator[Array]
) -> dict[str, npy.ArrayEntry]:
    """Write the times of a part's edges, and of all vertices if there are any."""
    file, vertices = folder / f"{store_format.EDGE_TIMES}.npy", times.vertices
    arrays = {store_format.EDGE_TIMES: npy.write_rows(file, of_edges, np.dtype(np.int64))}
    if vertices is not None:
        name = store_format.VERTEX_TIMES
        arrays[name] = npy.write_array(folder / f"{name}.npy", vertices)
    return arrays


def _matrices(graph: Graph) -> dict[str, tuple[Array, slice]]:
    """Return the feature matrices by their names in a store, and the vertices of their rows."""
    features: object = graph.features
    if not isinstance(features, TypedFeatures):
        return {"features": (graph.features, slice(None))}
    return {
        store_format.typed_features(number): (matrix.rows, graph.schema.vertices(number))
        for number, matrix in enumerate(features.matrices)
        if matrix is not None
    }


def _write_edge_features(
    folder: Path,
    graph: Graph,
    rows: UInt32Array,
    features: Float32Array,
    listed: BoolArray,
    name: str,
) -> dict[str, npy.ArrayEntry]:
    """Write the edge features of a part, and the number of each edge's row; return both entries.

    The part has the in-edges of vertices in mask ``listed``. ``rows`` ``[num_edges]`` are the row
    numbers in ``features`` of all edges of the graph. They stay the same in the part, whose sparse
    file has holes in place of other rows. ``name`` begins progress messages.
    """
    used = np.zeros(len(features), np.bool_)

    def marked() -> Iterator[Array]:
        for part in listed_values(graph, rows, listed, f"{name}: rows of edges"):
            if len(part) and part.max() >= len(used):
                raise GraphError(
                    f"{graph.path or graph.name}: damaged, edge_rows: expected rows below "
                    f"{len(used)}, got {part.max()}; gnnscale doctor store=DIR checks the store"
                )
            used[part] = True
            yield part

    file = folder / f"{store_format.EDGE_FEATURES}.npy"
    return {
        store_format.EDGE_ROWS: npy.write_rows(
            folder / f"{store_format.EDGE_ROWS}.npy", marked(), np.dtype(np.uint32)
        ),
        store_format.EDGE_FEATURES: write_features(
            file, features, used, f"{name}: edge features", "rows"
        ),
    }


def _degrees(graph: Graph) -> UInt32Array:
    degrees = np.diff(graph.indptr)
    if degrees.max(initial=0) > _MAX_DEGREE:
        vertex = int(degrees.argmax())
        raise GraphError(
            f"{graph.name}: expected at most {_MAX_DEGREE} neighbors, got {degrees[vertex]} of "
            f"vertex {vertex}"
        )
    return degrees.astype(np.uint32)


#: Notes of a store that also hold for the stores of its parts.
_UNCHANGED = ("vertices", "features", "labels", "edge_features", "edge_labels")


def write_row_stores(
    graph: Graph, parts: Parts, folder: Path, *, partition: str, indices: Sequence[int]
) -> None:
    """Write a row store for each part in ``indices``, into ``folder``/index.

    A row store has the data of one machine for sharded features: topology, labels, split, ids and
    edge data of the full graph; the part that owns each vertex (``owner``); and ``features``, the
    rows of the part's vertices in ascending order. ``partition`` is the content hash of the
    partition. Each store is written atomically.
    """
    if isinstance(graph.features, ShardedFeatures):
        raise graph.features.refused()
    if graph.types is not None:
        raise GraphError(
            f"{graph.path or graph.name}: part_stores=rows: expected a graph without types, got "
            f"types {', '.join(graph.vertex_types)}; part_stores=true with partitioner=pagraph "
            "writes a store for each part"
        )
    if graph.degrees is not None:
        raise GraphError(f"{graph.path or graph.name}: expected a full graph, got one part")
    owner = _owners(graph, parts)
    with ExitStack() as stores:
        folders: dict[int, Path] = {}
        for index in indices:
            path = folder / str(index)
            part_folder = stores.enter_context(new_folder(path))
            if part_folder is None:
                raise GraphError(f"{path}: exists already; remove it to write it again")
            folders[index] = part_folder
        _write(graph, parts, owner, folders, partition)


def _owners(graph: Graph, parts: Parts) -> Int16Array:
    """Return the part of each vertex; GraphError for a vertex without a part."""
    if parts.owner is None:
        raise GraphError(
            f"{graph.name}: part_stores=rows: expected a partitioner that assigns each vertex to a "
            "part, got one that divides columns"
        )
    owner = np.asarray(parts.owner, np.int16)
    without_part = owner < 0
    if without_part.any():
        raise GraphError(
            f"{graph.name}: part_stores=rows: expected a part for each vertex, got none for vertex "
            f"{int(without_part.argmax())} and {int(without_part.sum()) - 1} others; "
            "partitioner=hash and edge_cut assign every vertex"
        )
    return owner


def _write(
    graph: Graph, parts: Parts, owner: Int16Array, folders: dict[int, Path], partition: str
) -> None:
    arrays = _common_arrays(graph, owner)
    notes, copied = ({}, []) if graph.path is None else applicable_metadata(graph.path, _UNCHANGED)
    counts = np.bincount(owner, minlength=parts.num_parts)
    row_bytes = graph.num_features * graph.features.itemsize
    common = sum(array.nbytes for array in arrays.values())
    if folders:
        disk = sum(common + int(counts[index]) * row_bytes for index in folders)
        check_space(f"{graph.name}: {len(folders)} parts", next(iter(folders.values())), disk=disk)
    content, labels, rows_of = describe(graph).content, graph.edge_labels, {"rows_of": partition}
    rows = _write_rows(graph, owner, folders)
    for index, folder in folders.items():
        written = {"features": rows[index]}
        for name, array in arrays.items():
            written[name] = copy_array(folder / f"{name}.npy", array, f"part {index}: {name}")
        for file in copied:
            with open_regular(file) as source, (folder / file.name).open("wb") as copy:
                shutil.copyfileobj(source, copy)
        write_meta(
            folder,
            written,
            edge_labels=labels and {"num_classes": labels.num_classes, "metric": labels.metric},
            part={"index": index, "num_parts": parts.num_parts, "of": content} | rows_of,
            **_entries(graph),
            **notes,
        )


def _common_arrays(graph: Graph, owner: Int16Array) -> dict[str, Array]:
    """Return the arrays that all row stores share, by name."""
    arrays: dict[str, Array] = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "labels": graph.labels,
        store_format.OWNER: owner,
    }
    for name in store_format.SPLIT_ARRAYS:
        arrays[name] = np.sort(getattr(graph, name)).astype(graph.indices.dtype, copy=False)
    return arrays | graph.edges.arrays() | timed_arrays(graph.times, graph.rows)


def _write_rows(
    graph: Graph, owner: Int16Array, folders: dict[int, Path]
) -> dict[int, npy.ArrayEntry]:
    """Write the feature rows of each part in ``folders`` to its folder, in one pass over all rows.

    Return the array entry of each part.
    """
    features = graph.features
    row_bytes = graph.num_features * features.itemsize
    with ExitStack() as files, track(f"dividing rows of {graph.name}", len(owner), "rows") as done:
        writers = {
            index: files.enter_context(
                npy.NpyWriter(folder / "features.npy", features.dtype, features.shape[1:])
            )
            for index, folder in folders.items()
        }
        for part in npy.row_slices(len(owner), row_bytes, npy.SLICE_BYTES):
            rows, owners = np.asarray(features[part]), owner[part]
            for index, writer in writers.items():
                writer.append(rows[owners == index])
            done(len(owners))
        return {index: writer.close() for index, writer in writers.items()}
