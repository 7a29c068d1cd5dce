"""The files of a graph store: what each must hold, checked before anything is taken from it."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from gnnscale.artifact import files, header, kind
from gnnscale.artifact.arrays import ArrayEntry, row_slices, write_array
from gnnscale.core import Array, BoolArray, GraphError, Int64Array, IntArray, UInt32Array, shown

#: How features may be stored. bfloat16 has no NumPy type; its bits are stored as uint16.
FEATURE_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "uint8": np.dtype(np.uint8),
}
METRICS = ("accuracy", "micro_f1", "roc_auc", "rmse")
SPLIT_ARRAYS = ("train_idx", "valid_idx", "test_idx")
ARRAYS = ("indptr", "indices", "features", "labels", *SPLIT_ARRAYS)
#: What the store of a part has beside them.
DEGREES = "degrees"
#: What the store of a graph whose edges have weights has beside them.
WEIGHTS = "edge_weights"
#: More classes than that no model here can tell apart; longer rows fit no layer.
MAX_CLASSES = 1 << 20
MAX_FEATURES = 1 << 16
GRAPH_STORE = kind.Kind(
    name="graph store",
    header="meta.json",
    version=5,
    folder="graphs",
    option="dataset.store",
    command="gnnscale prepare",
    files=r"meta\.json|\.meta\.json\.tmp|ids\.parquet|"
    rf"(ids|{'|'.join((*ARRAYS, DEGREES, WEIGHTS))})\.npy",
    max_bytes=4 << 20,
)
_SLICE_ENTRIES = 1 << 20


def vertex_dtype(num_vertices: int) -> np.dtype[Any]:
    """Return int32 if it can hold every vertex id, else int64."""
    return np.dtype(np.int32 if num_vertices < 2**31 else np.int64)


def has_label(labels: Array) -> BoolArray:
    """Return ``[n]``, whether each row of ``labels``, in the form of a Graph's, is known.

    Unknown are the class -1, and targets of regression with a NaN; zeros and ones are known.
    """
    if labels.dtype.kind == "f":
        known: BoolArray = ~np.isnan(labels)
        return known if labels.ndim == 1 else np.asarray(known.all(axis=1))
    if labels.ndim == 2:
        return np.ones(len(labels), np.bool_)
    return np.asarray(labels >= 0)


@dataclass(frozen=True, kw_only=True)
class PartEntry:
    """Which part of a graph a store holds."""

    index: Annotated[int, Meta(ge=0)]
    num_parts: Annotated[int, Meta(le=1 << 15)]
    of: Annotated[str, Meta(pattern="^[0-9a-f]{32}\\Z")]  #: content of the whole graph's store

    def __post_init__(self) -> None:
        if self.index >= self.num_parts:
            raise ValueError(f"index is {self.index}, allowed are 0 to {self.num_parts - 1}")


@dataclass(frozen=True, kw_only=True)
class StoreMeta:
    """What ``meta.json`` of a store says, every entry of the type and in the range it must have."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    num_vertices: Annotated[int, Meta(ge=1, le=1 << 40)]
    num_edges: Annotated[int, Meta(ge=0, le=1 << 47)]  #: directed edges
    num_features: Annotated[int, Meta(ge=0, le=MAX_FEATURES)]  #: 0 without features
    num_classes: Annotated[int, Meta(ge=0, le=MAX_CLASSES)]  #: or targets; 0 without labels
    feature_dtype: Literal["float32", "float16", "bfloat16", "uint8"]
    metric: Literal["accuracy", "micro_f1", "roc_auc", "rmse"]
    #: an entry for each of ``ARRAYS``, for ``DEGREES`` of a part, for ``WEIGHTS`` of edges
    arrays: dict[str, ArrayEntry]
    part: PartEntry | None = None  #: None for a whole graph
    #: what the generator of the graph allows, None if not known
    attainable_accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None
    entries: dict[str, Any] = field(default_factory=dict)  #: all of ``meta.json``, unchecked

    def __post_init__(self) -> None:
        if not self.name.isprintable():
            raise ValueError(f"name is {shown(repr(self.name))}, allowed is a printable text")

    @property
    def content(self) -> str:
        """Hex digest of shapes, types and checksums, which differs if the data do."""
        entries = sorted(self.arrays.items())
        return header.digest([(name, each.shape, each.dtype, each.crc32) for name, each in entries])


def read_meta(path: Path) -> StoreMeta:
    """Read and check ``meta.json`` of the store at ``path``.

    Raises:
        GraphError: it is missing, of another version, or an entry is not what it must be.
    """
    entries = GRAPH_STORE.read_header(path)
    known = {key: value for key, value in entries.items() if key != "entries"}
    meta = GRAPH_STORE.record(StoreMeta, known, path)
    return replace(meta, entries=entries)


def write_meta(
    folder: Path, arrays: Mapping[str, ArrayEntry], *, name: str, **entries: object
) -> None:
    """Write ``meta.json`` of a store into ``folder``, which has the arrays.

    ``entries`` are other fields of ``StoreMeta`` that do not follow from the arrays, and what else
    is to be recorded; those that are None are left out.
    """
    sizes = {
        "num_vertices": arrays["indptr"].shape[0] - 1,
        "num_edges": arrays["indices"].shape[0],
        "num_features": arrays["features"].shape[1],
    }
    more = {key: value for key, value in entries.items() if value is not None}
    GRAPH_STORE.write_header(folder, {"name": name, **sizes, **more, "arrays": arrays})


def write_store(path: Path, arrays: Mapping[str, Array], **entries: Any) -> None:
    """Write a graph that is in memory as a store, and check it before it appears at ``path``.

    ``arrays`` are all of ``ARRAYS``, and ``WEIGHTS`` if edges have them, in the types of a store;
    ``entries`` are those of ``write_meta``.

    Raises:
        GraphError: ``path`` holds something, or cannot be written; or a store must not hold that.
    """
    path = Path(os.path.abspath(path))
    with files.new_folder(path) as folder:
        if folder is None:
            raise GraphError(f"{path}: exists already; name another directory, or remove it")
        written = {name: write_array(folder / f"{name}.npy", each) for name, each in arrays.items()}
        write_meta(folder, written, **entries)
        try:
            _check_written(folder)
        except GraphError as error:
            raise GraphError(str(error).replace(str(folder), str(path))) from None


def _check_written(folder: Path) -> None:
    """Open what was written, and look at the neighbours too."""
    meta = read_meta(folder)
    ids, last = map_arrays(folder, meta)["indices"], meta.num_vertices - 1
    for part in row_slices(len(ids), ids.itemsize):
        low, high = ids[part].min(), ids[part].max()
        if low < 0 or high > last:
            raise GraphError(
                f"{folder}: neighbour {low if low < 0 else high} is out of range, allowed are 0 to "
                f"{last}"
            )


def map_arrays(path: Path, meta: StoreMeta) -> dict[str, Array]:
    """Map all arrays of a store read-only, and check all but ``indices``, features and weights.

    Costs a scan of ``indptr``, the labels, the split and the degrees. The ids in ``indices`` are
    checked by whoever reads them; ``gnnscale doctor`` looks at everything.

    Raises:
        GraphError: a file is missing, truncated, or holds not what it must.
    """
    arrays = GRAPH_STORE.arrays(path, meta.arrays, _forms(meta))
    check_offsets(path / "indptr.npy", arrays["indptr"], meta.num_edges)
    if arrays["labels"].dtype.kind == "f":
        _check_targets(path / "labels.npy", arrays["labels"])
    else:
        _check_labels(path / "labels.npy", arrays["labels"], meta.num_classes)
    _check_splits(path, arrays, meta.num_vertices)
    if DEGREES in arrays:
        _check_degrees(path / f"{DEGREES}.npy", arrays[DEGREES], arrays["indptr"])
    return arrays


def _forms(meta: StoreMeta) -> dict[str, kind.Form]:
    """Return type and shape that each array must have; a split's length is free."""
    rows, ids = meta.num_vertices, vertex_dtype(meta.num_vertices)
    forms: dict[str, kind.Form] = {
        "indptr": (np.dtype(np.int64), (rows + 1,)),
        "indices": (ids, (meta.num_edges,)),
        "features": (FEATURE_DTYPES[meta.feature_dtype], (rows, meta.num_features)),
        "labels": _label_form(meta),
        **dict.fromkeys(SPLIT_ARRAYS, (ids, (None,))),
    }
    if meta.part is not None:
        forms[DEGREES] = np.dtype(np.uint32), (rows,)
    if WEIGHTS in meta.arrays:
        forms[WEIGHTS] = np.dtype(np.float32), (meta.num_edges,)
    return forms


def _label_form(meta: StoreMeta) -> kind.Form:
    labels = meta.arrays.get("labels")
    rows, columns = meta.num_vertices, meta.num_classes
    matrix = labels is not None and len(labels.shape) == 2
    if columns and meta.metric == "rmse":
        return np.dtype(np.float32), (rows, columns) if matrix or columns > 1 else (rows,)
    if columns and matrix:
        return np.dtype(np.uint8), (rows, columns)
    return np.dtype(np.int64), (rows,)


def _slices(array: Array, overlap: int = 0) -> Iterator[tuple[int, Array]]:
    """Yield the rows of ``array`` and the first one's number, in slices of bounded memory."""
    step = max(1, _SLICE_ENTRIES // max(1, math.prod(array.shape[1:])))
    for first in range(0, len(array), step):
        yield first, array[first : first + step + overlap]


def check_offsets(file: Path, indptr: Int64Array, num_edges: int) -> None:
    """Raise GraphError unless ``indptr`` rises from 0 to ``num_edges``; names ``file``."""
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise GraphError(
            f"{file}: goes from {indptr[0]} to {indptr[-1]}, "
            f"allowed is from 0 to {num_edges}, the number of edges"
        )
    for first, part in _slices(indptr, overlap=1):
        falls = part[1:] < part[:-1]
        if falls.any():
            vertex = int(falls.argmax())
            raise GraphError(
                f"{file}: falls from {part[vertex]} to {part[vertex + 1]} "
                f"after vertex {first + vertex}"
            )


def _check_degrees(file: Path, degrees: UInt32Array, indptr: Int64Array) -> None:
    """Refuse degrees that differ from the lengths of the lists that are there."""
    for first, part in _slices(degrees):
        lengths = np.diff(indptr[first : first + len(part) + 1])
        wrong = (lengths > 0) & (lengths != part)
        if wrong.any():
            place = int(wrong.argmax())
            raise GraphError(
                f"{file}: vertex {first + place} has degree {part[place]}, "
                f"and {lengths[place]} neighbours"
            )


def _check_labels(file: Path, labels: IntArray, num_classes: int) -> None:
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    for first, part in _slices(labels):
        if part.min() < low or part.max() > high:
            place = tuple(np.argwhere((part < low) | (part > high))[0])
            raise GraphError(
                f"{file}: label {part[place]} of vertex {first + place[0]} is out of range, "
                f"allowed are {low} to {high}"
            )


def _check_targets(file: Path, labels: NDArray[np.floating]) -> None:
    for first, part in _slices(labels):
        if np.isinf(part).any():
            place = tuple(np.argwhere(np.isinf(part))[0])
            raise GraphError(
                f"{file}: label {part[place]} of vertex {first + place[0]}, allowed are finite "
                "numbers, and NaN if unknown"
            )


def _check_splits(path: Path, arrays: Mapping[str, Array], num_vertices: int) -> None:
    """Refuse a split whose parts are empty, overlap, or name what is no labelled vertex.

    All three may be empty: the graph has no split then. Every worker does this, in bounded memory.
    """
    if not any(len(arrays[name]) for name in SPLIT_ARRAYS):
        return
    for name in SPLIT_ARRAYS:
        file, ids = path / f"{name}.npy", arrays[name]
        if not len(ids):
            raise GraphError(f"{file}: the split is empty")
        if any((part[1:] <= part[:-1]).any() for _, part in _slices(ids, overlap=1)):
            raise GraphError(f"{file}: the ids do not rise")
        if ids[0] < 0 or ids[-1] >= num_vertices:
            bad = ids[0] if ids[0] < 0 else ids[-1]
            raise GraphError(
                f"{file}: vertex id {bad} is out of range, the graph has {num_vertices} vertices"
            )
        if name != "test_idx":
            _check_labelled(file, ids, arrays["labels"])
    for first in range(0, num_vertices, _SLICE_ENTRIES):
        _check_disjoint(path, arrays, first, min(first + _SLICE_ENTRIES, num_vertices))


def _check_labelled(file: Path, ids: Array, labels: Array) -> None:
    for _, part in _slices(ids):
        missing = ~has_label(labels[part])
        if missing.any():
            raise GraphError(f"{file}: vertex {part[missing.argmax()]} has no label")


def _check_disjoint(path: Path, arrays: Mapping[str, Array], first: int, last: int) -> None:
    """Refuse a vertex of [first, last) in two parts; the ids of each part rise."""
    seen = np.zeros(last - first, np.bool_)
    for name in SPLIT_ARRAYS:
        ids = arrays[name]
        # Of the same type: NumPy would copy all ids for another one.
        begin, end = np.searchsorted(ids, np.array([first, last], ids.dtype))
        places = ids[begin:end] - first
        if seen[places].any():
            vertex = first + places[seen[places].argmax()]
            file = path / f"{name}.npy"
            raise GraphError(f"{file}: vertex {vertex} is in an earlier part of the split too")
        seen[places] = True
