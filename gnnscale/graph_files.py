"""The files of a graph store: what each must hold, checked before anything is taken from it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.npy import NpyError, map_npy

__all__ = [
    "ARRAYS",
    "DEGREES",
    "FEATURE_DTYPES",
    "FORMAT_VERSION",
    "MAX_CLASSES",
    "MAX_FEATURES",
    "METRICS",
    "PART_FORMAT_VERSION",
    "WEIGHTED_FORMAT_VERSION",
    "WEIGHTS",
    "ArrayEntry",
    "PartEntry",
    "StoreMeta",
    "has_label",
    "map_arrays",
    "read_entries",
    "read_meta",
    "vertex_dtype",
]

FORMAT_VERSION = 2
#: Of stores that hold one part of a graph: who does not know them must not take them for the whole.
PART_FORMAT_VERSION = 3
#: Of stores whose edges have weights, parts too: who does not know them must not leave them out.
WEIGHTED_FORMAT_VERSION = 4
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
#: What the store of a graph has beside them whose edges have weights.
WEIGHTS = "edge_weights"
#: More classes than that no model here can tell apart; longer rows fit no layer.
MAX_CLASSES = 1 << 20
MAX_FEATURES = 1 << 16
_MAX_VERTICES = 1 << 40
_MAX_NAME = 200
_MAX_PARTS = 1 << 15
_MAX_META_BYTES = 4 << 20
_SLICE_ENTRIES = 1 << 20


def vertex_dtype(num_vertices: int) -> np.dtype[Any]:
    """Return int32 where it can hold every vertex id, else int64."""
    return np.dtype(np.int32 if num_vertices < 2**31 else np.int64)


def has_label(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return ``[n]``, whether each row of ``labels`` says what its vertex is.

    Args:
        labels: as a Graph holds them: classes, -1 where unknown; or targets of regression, NaN
            where one is unknown; or zeros and ones, which always do.
    """
    if labels.dtype.kind == "f":
        known: NDArray[np.bool_] = ~np.isnan(labels)
        return known if labels.ndim == 1 else np.asarray(known.all(axis=1))
    if labels.ndim == 2:
        return np.ones(len(labels), np.bool_)
    return np.asarray(labels >= 0)


@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """What ``meta.json`` says of one array.

    Attributes:
        shape: of the array.
        dtype: NumPy's name of its type.
        bytes: size of its file, header included.
        crc32: checksum of its elements.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    crc32: int


@dataclass(frozen=True, kw_only=True)
class PartEntry:
    """Which part of a graph a store holds.

    Attributes:
        index: number of the part, from 0.
        num_parts: number of parts of the partition.
        of: hex digest of what the whole graph's store holds.
    """

    index: int
    num_parts: int
    of: str


@dataclass(frozen=True, kw_only=True)
class StoreMeta:
    """What ``meta.json`` of a store says, every entry of the type and in the range it must have.

    Attributes:
        name: of the graph.
        num_vertices: number of vertices.
        num_edges: number of directed edges.
        num_features: length of a feature row.
        num_classes: number of classes, or of targets of regression; 0 where nothing is labelled.
        feature_dtype: one of ``FEATURE_DTYPES``.
        metric: one of ``METRICS``.
        part: which part of a graph it is, None for a whole graph.
        arrays: an entry for each of ``ARRAYS``, for ``DEGREES`` of a part, and for ``WEIGHTS``
            where edges have them.
        attainable_accuracy: what the generator of the graph allows, None where not known.
        entries: all of ``meta.json``, what is not listed here unchecked.
    """

    name: str
    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int
    feature_dtype: str
    metric: str
    part: PartEntry | None
    arrays: Mapping[str, ArrayEntry]
    attainable_accuracy: float | None
    entries: Mapping[str, Any]

    @property
    def content(self) -> str:
        """Hex digest of shapes, types and checksums: it tells stores with other data apart."""
        said = [
            (name, list(entry.shape), entry.dtype, entry.crc32)
            for name, entry in self.arrays.items()
        ]
        return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def read_meta(path: Path) -> StoreMeta:
    """Read and check ``meta.json`` of the store at ``path``.

    Raises:
        GraphError: it is missing, of another version, or an entry is not what it must be.
    """
    file = path / "meta.json"
    entries = read_entries(path)
    _check_version(entries, file)
    name = _entry(entries, "name", file)
    if not (isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()):
        raise _refused(file, "name", name, f"a printable text of up to {_MAX_NAME} characters")
    arrays = _entry(entries, "arrays", file)
    if not isinstance(arrays, dict):
        raise _refused(file, "arrays", arrays, "an object with an entry for each array")
    part = _part_entry(entries, file)
    names = ARRAYS if part is None else (*ARRAYS, DEGREES)
    names = (*names, WEIGHTS) if WEIGHTS in arrays else names
    return StoreMeta(
        name=name,
        num_vertices=_whole(entries, "num_vertices", file, 1, _MAX_VERTICES),
        num_edges=_whole(entries, "num_edges", file, 0, 1 << 47),
        num_features=_whole(entries, "num_features", file, 1, MAX_FEATURES),
        num_classes=_whole(entries, "num_classes", file, 0, MAX_CLASSES),
        feature_dtype=_choice(entries, "feature_dtype", file, tuple(FEATURE_DTYPES)),
        metric=_choice(entries, "metric", file, METRICS),
        part=part,
        arrays={array: _array_entry(arrays, array, file) for array in names},
        attainable_accuracy=_share(entries, "attainable_accuracy", file),
        entries=entries,
    )


def read_entries(path: Path) -> dict[str, Any]:
    """Return ``meta.json`` of the store at ``path`` as plain values, not checked further.

    Raises:
        GraphError: it is missing or no JSON object.
    """
    file = path / "meta.json"
    try:
        _check_regular(file)
        with file.open("rb") as stream:
            text = stream.read(_MAX_META_BYTES + 1)
    except FileNotFoundError:
        raise GraphError(f"{path}: not a graph store, it has no meta.json") from None
    except NotADirectoryError:
        raise GraphError(f"{path}: not a graph store, it is no directory") from None
    except GraphError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise GraphError(f"{file}: cannot be read ({_reason(error)})") from None
    if len(text) > _MAX_META_BYTES:
        raise GraphError(f"{file}: has more than {_MAX_META_BYTES >> 20} MiB, not a store's")
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{file}: cannot be read as JSON ({error})") from None
    if not isinstance(entries, dict):
        raise GraphError(f"{file}: holds a {type(entries).__name__}, not an object")
    return entries


def _check_regular(file: Path) -> None:
    """Raise unless ``file`` is a regular one; a pipe would block, a device never end."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise GraphError(f"{file}: no regular file")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _entry(entries: Mapping[str, Any], key: str, file: Path) -> Any:
    if key not in entries:
        raise GraphError(f"{file}: no entry {key!r}")
    return entries[key]


def _refused(file: Path, key: str, value: object, allowed: str) -> GraphError:
    return GraphError(f"{file}: {key} is {_shown(value)}, allowed is {allowed}")


def _shown(value: object) -> str:
    # Deeply nested lists cannot be printed.
    nested = isinstance(value, (list, dict))
    return f"a {type(value).__name__}" if nested else shown(repr(value))


def _whole(entries: Mapping[str, Any], key: str, file: Path, low: int, high: int) -> int:
    value = _entry(entries, key, file)
    if type(value) is not int or not low <= value <= high:
        raise _refused(file, key, value, f"a whole number from {low} to {high}")
    return value


def _choice(entries: Mapping[str, Any], key: str, file: Path, allowed: tuple[str, ...]) -> str:
    value = _entry(entries, key, file)
    if not isinstance(value, str) or value not in allowed:
        raise _refused(file, key, value, f"one of {', '.join(allowed)}")
    return value


def _share(entries: Mapping[str, Any], key: str, file: Path) -> float | None:
    value = entries.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise _refused(file, key, value, "a number from 0 to 1")
    return float(value)


def _check_version(entries: Mapping[str, Any], file: Path) -> None:
    """Refuse a format that this release does not read."""
    arrays = entries.get("arrays")
    expected = PART_FORMAT_VERSION if "part" in entries else FORMAT_VERSION
    if isinstance(arrays, dict) and WEIGHTS in arrays:
        expected = WEIGHTED_FORMAT_VERSION
    found = entries.get("format_version")
    if type(found) is int and found == expected:
        return
    what, again = "", "run gnnscale prepare again with force=true"
    if "part" in entries:
        what, again = " of a part", "make the part again"
    raise GraphError(
        f"{file}: format version {_shown(found)}, this release reads {expected}{what}; {again}"
    )


def _part_entry(entries: Mapping[str, Any], file: Path) -> PartEntry | None:
    if "part" not in entries:
        return None
    entry = entries["part"]
    if not isinstance(entry, dict):
        raise _refused(file, "part", entry, "an object")
    said = {f"part.{key}": value for key, value in entry.items()}
    num_parts = _whole(said, "part.num_parts", file, 1, _MAX_PARTS)
    of = _entry(said, "part.of", file)
    if not (isinstance(of, str) and re.fullmatch("[0-9a-f]{32}", of)):
        raise _refused(file, "part.of", of, "a digest of 32 hexadecimal digits")
    return PartEntry(
        index=_whole(said, "part.index", file, 0, num_parts - 1), num_parts=num_parts, of=of
    )


def _array_entry(arrays: Mapping[str, Any], name: str, file: Path) -> ArrayEntry:
    entry = _entry(arrays, name, file)
    if not isinstance(entry, dict):
        raise _refused(file, f"arrays.{name}", entry, "an object")
    shape = entry.get("shape")
    sizes = isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 47 for n in shape)
    if not (sizes and isinstance(shape, list) and 1 <= len(shape) <= 2):
        raise _refused(file, f"arrays.{name}.shape", shape, "one or two sizes")
    if not isinstance(entry.get("dtype"), str):
        raise _refused(file, f"arrays.{name}.dtype", entry.get("dtype"), "the name of a type")
    numbers = {f"arrays.{name}.{key}": entry[key] for key in ("bytes", "crc32") if key in entry}
    return ArrayEntry(
        shape=tuple(shape),
        dtype=entry["dtype"],
        bytes=_whole(numbers, f"arrays.{name}.bytes", file, 0, 1 << 53),
        crc32=_whole(numbers, f"arrays.{name}.crc32", file, 0, (1 << 32) - 1),
    )


def map_arrays(path: Path, meta: StoreMeta) -> dict[str, NDArray[Any]]:
    """Map all arrays of a store read-only, and check all but ``indices``, features and weights.

    Costs a scan of ``indptr``, the labels, the split and the degrees. The ids in ``indices`` are
    checked by whoever reads them; ``gnnscale doctor`` looks at everything.

    Raises:
        GraphError: a file is missing, truncated, or holds not what it must.
    """
    arrays = {name: _map_array(path, name, meta) for name in meta.arrays}
    check_offsets(path / "indptr.npy", arrays["indptr"], meta.num_edges)
    if arrays["labels"].dtype.kind == "f":
        _check_targets(path / "labels.npy", arrays["labels"])
    else:
        _check_labels(path / "labels.npy", arrays["labels"], meta.num_classes)
    _check_splits(path, arrays, meta.num_vertices)
    if DEGREES in arrays:
        _check_degrees(path / f"{DEGREES}.npy", arrays[DEGREES], arrays["indptr"])
    return arrays


def _map_array(path: Path, name: str, meta: StoreMeta) -> NDArray[Any]:
    file, entry = path / f"{name}.npy", meta.arrays[name]
    try:
        _check_regular(file)
        size = file.stat().st_size
        if size != entry.bytes:
            raise GraphError(f"{file}: {size} bytes, meta.json says {entry.bytes} (truncated?)")
        array = map_npy(file)
    except FileNotFoundError:
        raise GraphError(f"{file}: missing; run gnnscale prepare again with force=true") from None
    except (OSError, NpyError) as error:
        raise GraphError(f"{file}: not a readable .npy array ({_reason(error)})") from None
    if array.shape != entry.shape or str(array.dtype) != entry.dtype:
        raise GraphError(
            f"{file}: {array.dtype}{list(array.shape)}, "
            f"meta.json says {shown(entry.dtype)}{list(entry.shape)}"
        )
    dtype, shape = _expected(name, array, meta)
    if array.dtype != dtype or array.shape != shape:
        raise GraphError(
            f"{file}: {array.dtype}{list(array.shape)}, "
            f"the sizes in meta.json ask for {dtype}{list(shape)}"
        )
    if not array.flags.aligned:
        raise GraphError(f"{file}: its header has an odd size, NumPy's have a multiple of 64 bytes")
    return array


def _expected(
    name: str, array: NDArray[Any], meta: StoreMeta
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return type and shape that the array ``name`` must have; a split's length is free."""
    ids = vertex_dtype(meta.num_vertices)
    if name == "indptr":
        return np.dtype(np.int64), (meta.num_vertices + 1,)
    if name == "indices":
        return ids, (meta.num_edges,)
    if name == WEIGHTS:
        return np.dtype(np.float32), (meta.num_edges,)
    if name == "features":
        return FEATURE_DTYPES[meta.feature_dtype], (meta.num_vertices, meta.num_features)
    if name == "labels" and meta.metric == "rmse" and meta.num_classes:
        column = array.ndim == 1 and meta.num_classes == 1
        rows = (meta.num_vertices,)
        return np.dtype(np.float32), rows if column else (*rows, meta.num_classes)
    if name == "labels" and array.ndim == 2 and meta.num_classes:
        return np.dtype(np.uint8), (meta.num_vertices, meta.num_classes)
    if name == "labels":
        return np.dtype(np.int64), (meta.num_vertices,)
    if name == DEGREES:
        return np.dtype(np.uint32), (meta.num_vertices,)
    return ids, (len(array),)


def _slices(array: NDArray[Any], overlap: int = 0) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows of ``array`` and the first one's number, in slices of bounded memory."""
    step = max(1, _SLICE_ENTRIES // math.prod(array.shape[1:]))
    for first in range(0, len(array), step):
        yield first, array[first : first + step + overlap]


def check_offsets(file: Path, indptr: NDArray[np.int64], num_edges: int) -> None:
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


def _check_degrees(file: Path, degrees: NDArray[np.uint32], indptr: NDArray[np.int64]) -> None:
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


def _check_labels(file: Path, labels: NDArray[np.integer], num_classes: int) -> None:
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
                "numbers, and NaN where unknown"
            )


def _check_splits(path: Path, arrays: Mapping[str, NDArray[Any]], num_vertices: int) -> None:
    """Refuse a split whose parts are empty, overlap, or name what is no labelled vertex.

    All three may be empty: the graph has no split then.

    Memory is bounded, whatever the number of vertices: every worker does this.
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


def _check_labelled(file: Path, ids: NDArray[Any], labels: NDArray[Any]) -> None:
    for _, part in _slices(ids):
        missing = ~has_label(labels[part])
        if missing.any():
            raise GraphError(f"{file}: vertex {part[missing.argmax()]} has no label")


def _check_disjoint(path: Path, arrays: Mapping[str, NDArray[Any]], first: int, last: int) -> None:
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
