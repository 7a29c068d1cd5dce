"""Arrays of a graph store: mapped, with shapes and values checked."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core import Array, GraphError, Int64Array, IntArray, UInt32Array
from gnnscale.core.artifact import Form
from gnnscale.graph.dtypes import FEATURE_DTYPES, row_length
from gnnscale.graph.labels import LabelsByType, TypeLabels
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.split import array_slices, check_splits
from gnnscale.graph.store_format import (
    DEGREES,
    EDGE_ENDS,
    EDGE_FEATURES,
    EDGE_LABELS,
    EDGE_ROW_TIMES,
    EDGE_ROWS,
    EDGE_SPLITS,
    GRAPH_STORE,
    MAX_EDGE_ROWS,
    MAX_FEATURES,
    OWNER,
    ROW_LABELS,
    ROW_SPLITS,
    SPLIT_ARRAYS,
    WEIGHTS,
    typed_edge_features,
    typed_features,
    typed_labels,
    vertex_dtype,
)
from gnnscale.graph.store_meta import StoreMeta, TypeEntry, TypeLabelEntry
from gnnscale.graph.timed_store import (
    check_edge_row_times,
    check_row_ids,
    check_times,
    timed_forms,
)
from gnnscale.graph.typed_edge_store import check_edge_rows
from gnnscale.graph.typed_features import FeatureMatrix, TypedFeatures


def map_arrays(path: Path, meta: StoreMeta) -> dict[str, Array]:
    """Map all arrays of a store read-only; GraphError if a file is missing, truncated or invalid.

    Ids in ``indices`` and ``edge_rows`` are checked when samplers read them, or by ``doctor``.
    """
    arrays = GRAPH_STORE.arrays(path, meta.arrays, _forms(meta))
    check_offsets(path / "indptr.npy", arrays["indptr"], meta.num_edges)
    for name in _label_forms(meta):
        _check_values(path / f"{name}.npy", arrays[name], _label_entry(meta, name).num_classes)
    if meta.type_labels is not None:
        arrays["labels"] = _labels_by_type(arrays, meta)
    check_splits(path, arrays, SPLIT_ARRAYS, "labels", "vertex")
    if DEGREES in arrays:
        _check_degrees(path / f"{DEGREES}.npy", arrays[DEGREES], arrays["indptr"])
    if EDGE_FEATURES in arrays:
        _check_edge_features(path, arrays, meta.num_edges)
    if meta.types is not None and meta.types.edge_features:
        types = meta.types
        check_edge_rows(path, arrays, types.schema, types.edge_features)
        labeled = types.labeled_edges
        entry = None if labeled is None else types.edge_features[labeled]
        if entry is not None and EDGE_ENDS in arrays:
            rows, name = len(arrays[EDGE_ENDS]), typed_edge_features(entry.file)
            if rows != len(arrays[name]):
                raise GraphError(f"{path / name}.npy: {len(arrays[name])} rows of {rows} edges")
    if EDGE_LABELS in arrays:
        _check_edge_labels(path, arrays, meta)
    if meta.times is not None:
        check_times(path, arrays, schema_of(meta))
    if EDGE_ROW_TIMES in arrays:
        check_edge_row_times(path, arrays)
    if meta.row_labels is not None:
        check_row_ids(path, arrays, meta.num_vertices)
        _check_values(
            path / f"{ROW_LABELS}.npy", arrays[ROW_LABELS], meta.row_labels.num_classes, "row"
        )
        check_splits(path, arrays, ROW_SPLITS, ROW_LABELS, "row")
    return arrays


def schema_of(meta: StoreMeta) -> GraphSchema:
    """Return the types of vertices and edges; one of each without types."""
    return GraphSchema.homogeneous(meta.num_vertices) if meta.types is None else meta.types.schema


def vertex_matrices(arrays: dict[str, Array], types: TypeEntry) -> TypedFeatures:
    """Remove the feature matrices of types from ``arrays``; return them as ``TypedFeatures``."""
    matrices = []
    for number, entry in enumerate(types.vertices):
        rows = arrays.pop(typed_features(number), None)
        matrices.append(
            None
            if rows is None
            else FeatureMatrix(rows=rows, dtype=entry.feature_dtype, width=entry.num_features)
        )
    return TypedFeatures(matrices)


def _forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the expected type and shape of each array; a split has any length."""
    rows, ids = meta.num_vertices, vertex_dtype(meta.num_vertices)
    num_lists = rows if meta.types is None else meta.types.schema.num_rows
    forms: dict[str, Form] = {
        "indptr": (np.dtype(np.int64), (num_lists + 1,)),
        "indices": (ids, (meta.num_edges,)),
        **_feature_forms(meta),
        **_label_forms(meta),
        **dict.fromkeys(SPLIT_ARRAYS, (ids, (None,))),
    }
    if meta.divides_rows:
        forms[OWNER] = np.dtype(np.int16), (rows,)
        forms["features"] = FEATURE_DTYPES[meta.feature_dtype], (None, meta.num_features)
    elif meta.part is not None:
        forms[DEGREES] = np.dtype(np.uint32), (num_lists,)
    if WEIGHTS in meta.arrays:
        forms[WEIGHTS] = np.dtype(np.float32), (meta.num_edges,)
    of_types = None if meta.types is None else meta.types.edge_features
    if EDGE_ROWS in meta.arrays or EDGE_FEATURES in meta.arrays or of_types:
        forms[EDGE_ROWS] = np.dtype(np.uint32), (meta.num_edges,)
        if not of_types:
            forms[EDGE_FEATURES] = np.dtype(np.float32), (None, None)
    for entry in of_types or ():
        if entry is not None:
            dtype = FEATURE_DTYPES[entry.feature_dtype]
            forms[typed_edge_features(entry.file)] = dtype, (None, entry.num_features)
    if meta.edge_labels is not None or EDGE_ENDS in meta.arrays:
        forms[EDGE_ENDS] = ids, (None, 2)
    if meta.edge_labels is not None:
        value = np.float32 if meta.edge_labels.metric == "rmse" else np.int64
        forms[EDGE_LABELS] = np.dtype(value), (None,)
        labels = meta.arrays.get(EDGE_LABELS)
        count = labels.shape[0] if labels is not None and labels.shape else 0
        forms |= dict.fromkeys(EDGE_SPLITS, (vertex_dtype(count), (None,)))
    return forms | timed_forms(meta.times, meta.row_labels, meta.arrays, forms["indices"], rows)


def _feature_forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the form of the feature matrix, or of the matrices of the types that have features."""
    if meta.types is None:
        width = row_length(meta.feature_dtype, meta.num_features)
        return {"features": (FEATURE_DTYPES[meta.feature_dtype], (meta.num_vertices, width))}
    return {
        typed_features(number): (
            FEATURE_DTYPES[entry.feature_dtype],
            (entry.num_vertices, row_length(entry.feature_dtype, entry.num_features)),
        )
        for number, entry in enumerate(meta.types.vertices)
        if entry.num_features
    }


def _label_entry(meta: StoreMeta, name: str) -> StoreMeta | TypeLabelEntry:
    """Return the number of classes and the metric of the array ``name`` of labels."""
    entries = {typed_labels(number): entry for number, entry in meta.labeled_types.items()}
    return entries.get(name, meta)


def _label_forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the form of the array of labels, or of each of the labeled vertex types."""
    names = [typed_labels(number) for number in meta.labeled_types] or ["labels"]
    return {name: _label_form(meta, name) for name in names}


def _labels_by_type(arrays: dict[str, Array], meta: StoreMeta) -> Any:
    """Remove the arrays of labels of types from ``arrays``; return them as ``LabelsByType``."""
    assert meta.types is not None
    return LabelsByType(
        TypeLabels(
            vertices=meta.types.schema.vertices(number),
            values=arrays.pop(typed_labels(number)),
            **asdict(entry),
        )
        for number, entry in meta.labeled_types.items()
    )


def _label_form(meta: StoreMeta, name: str) -> Form:
    labels, entry = meta.arrays.get(name), _label_entry(meta, name)
    rows, columns = meta.num_vertices, entry.num_classes
    matrix = labels is not None and len(labels.shape) == 2
    if columns and entry.metric == "rmse":
        return np.dtype(np.float32), (rows, columns) if matrix or columns > 1 else (rows,)
    if columns and matrix:
        return np.dtype(np.uint8), (rows, columns)
    return np.dtype(np.int64), (rows,)


def check_offsets(file: Path, indptr: Int64Array, num_edges: int) -> None:
    """Raise GraphError unless ``indptr`` begins with 0, ends with ``num_edges`` and never falls.

    ``file`` names it in the message.
    """
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise GraphError(
            f"{file}: expected offsets from 0 to {num_edges}, the number of edges, got "
            f"{indptr[0]} to {indptr[-1]}"
        )
    for first, part in array_slices(indptr, overlap=1):
        falls = part[1:] < part[:-1]
        if falls.any():
            row = int(falls.argmax())
            raise GraphError(
                f"{file}: falls from {part[row]} to {part[row + 1]} after vertex {first + row}"
            )


def _check_degrees(file: Path, degrees: UInt32Array, indptr: Int64Array) -> None:
    """Raise GraphError for a degree that differs from the length of a non-empty adjacency list."""
    for first, part in array_slices(degrees):
        lengths = np.diff(indptr[first : first + len(part) + 1])
        wrong = (lengths > 0) & (lengths != part)
        if wrong.any():
            i = int(wrong.argmax())
            raise GraphError(
                f"{file}: vertex {first + i} has degree {part[i]}, and {lengths[i]} neighbors"
            )


def _check_edge_features(path: Path, arrays: Mapping[str, Array], num_edges: int) -> None:
    file = path / f"{EDGE_FEATURES}.npy"
    rows, width = arrays[EDGE_FEATURES].shape
    if not 1 <= width <= MAX_FEATURES:
        raise GraphError(f"{file}: {width} features an edge, allowed are 1 to {MAX_FEATURES}")
    least = min(num_edges, 1)
    if not least <= rows <= MAX_EDGE_ROWS:
        raise GraphError(
            f"{file}: {rows} rows for {num_edges} edges, allowed are {least} to {MAX_EDGE_ROWS}"
        )
    # A row of zeros may follow the rows of published edges.
    if EDGE_ENDS in arrays and rows - len(arrays[EDGE_ENDS]) not in (0, 1):
        raise GraphError(f"{file}: {rows} rows, edge_ends.npy has {len(arrays[EDGE_ENDS])}")


def _check_edge_labels(path: Path, arrays: Mapping[str, Array], meta: StoreMeta) -> None:
    file, labels = path / f"{EDGE_LABELS}.npy", arrays[EDGE_LABELS]
    if len(labels) != len(arrays[EDGE_ENDS]):
        raise GraphError(
            f"{file}: {len(labels)} labels, edge_ends.npy has {len(arrays[EDGE_ENDS])} rows"
        )
    assert meta.edge_labels is not None
    _check_values(file, labels, meta.edge_labels.num_classes, "edge")
    check_splits(path, arrays, EDGE_SPLITS, EDGE_LABELS, "edge")


def _check_values(file: Path, labels: Array, num_classes: int, of: str = "vertex") -> None:
    """Raise GraphError for a label of a vertex, edge or row (``of``) that is no class or target."""
    if labels.dtype.kind == "f":
        _check_targets(file, labels, of)
    else:
        _check_labels(file, labels, num_classes, of)


def _check_labels(file: Path, labels: IntArray, num_classes: int, of: str = "vertex") -> None:
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    for first, part in array_slices(labels):
        if part.min() < low or part.max() > high:
            index = tuple(np.argwhere((part < low) | (part > high))[0])
            raise GraphError(
                f"{file}: label {part[index]} of {of} {first + index[0]} is out of range, "
                f"allowed are {low} to {high}"
            )


def _check_targets(file: Path, labels: NDArray[np.floating], of: str = "vertex") -> None:
    for first, part in array_slices(labels):
        if np.isinf(part).any():
            index = tuple(np.argwhere(np.isinf(part))[0])
            raise GraphError(
                f"{file}: label {part[index]} of {of} {first + index[0]}, allowed are finite "
                "numbers, and NaN if unknown"
            )
