"""Checks of published files: each raises one line that names file and value."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, shown
from gnnscale.core.artifact.npy import check_array
from gnnscale.graph.store_format import MAX_CLASSES, MAX_FEATURES, has_label, refuse_unlabelled

#: Where only labels say how many classes there are, so many may have no vertex.
_SPARE_CLASSES = 1024
#: Vertices of a split whose data are gathered at once.
_SLICE_IDS = 1 << 18
#: Vertices that a file of any size may have, beyond one for each of its bytes.
_SPARE_VERTICES = 1 << 20
_KEY = re.compile(r"[0-9]{1,18}")


def check_num_vertices(num_vertices: int, num_bytes: int, source: object) -> None:
    """Raise GraphError if files of ``num_bytes`` cannot hold that many vertices.

    Memory and disk are taken for each vertex before its data are seen. Every published file
    spends more than a byte on a vertex, compressed ones included.
    """
    if not 1 <= num_vertices <= num_bytes + _SPARE_VERTICES:
        raise GraphError(
            f"{source}: {quoted(num_vertices)} vertices, allowed are 1 to "
            f"{num_bytes + _SPARE_VERTICES} in files of {num_bytes} bytes"
        )


def check_num_features(num_features: int, source: object) -> None:
    """Raise GraphError unless feature rows may have this length."""
    if not 1 <= num_features <= MAX_FEATURES:
        raise GraphError(
            f"{source}: {quoted(num_features)} features, allowed are 1 to {MAX_FEATURES}"
        )


#: What may have a label, and several of it.
_SEVERAL = {"vertex": "vertices", "edge": "edges"}


def check_ids(ids: Array, num_vertices: int, source: object, of: str = "vertex") -> None:
    """Raise GraphError unless ``ids`` are whole numbers in ``[0, num_vertices)``.

    ``of`` is ``vertex``, or ``edge`` for numbers of published edges.
    """
    if ids.ndim != 1:
        raise GraphError(f"{source}: {of} ids are {list(ids.shape)}, they must have one axis")
    if ids.dtype.kind not in "iu":
        raise GraphError(f"{source}: {of} ids are {ids.dtype}, they must be whole numbers")
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        raise GraphError(f"{source}: {of} id {low} is negative")
    if high >= num_vertices:
        raise GraphError(
            f"{source}: {of} id {high} is out of range, the graph has {num_vertices} {_SEVERAL[of]}"
        )


def check_features(rows: Array, first: int, source: object, of: str = "vertex") -> float:
    """Return the largest magnitude in ``rows``; raise GraphError unless all numbers are finite.

    ``first`` is the number of their first row, of a vertex or an edge, which ``of`` names. The
    magnitude of float16, which holds no number above 65,504, is not computed, and 0.
    """
    check_array(rows, axes=2, kinds="biuf", source=f"{source}: features")
    if rows.dtype == np.float16:
        largest = 0.0 if np.isfinite(rows).all() else np.inf
    else:
        largest = float(max(-float(rows.min()), float(rows.max()))) if rows.size else 0.0
    if not np.isfinite(largest):
        refuse_not_finite(rows, rows, first, source, of)
    return largest


def refuse_not_finite(
    rows: Array, converted: Array, first: int, source: object, of: str = "vertex"
) -> None:
    """Raise GraphError for the first of ``rows`` that is not finite, or not as ``converted``.

    Both are ``[n, num_features]``; other arguments are as for ``check_features``.
    """
    finite = np.isfinite(converted)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    reason = not_finite(rows[row, column], str(converted.dtype))
    raise GraphError(f"{source}: feature {column} of {of} {first + row} is {reason}")


def not_finite(value: Any, dtype: str = "float32") -> str:
    """Return a number, and why it is no feature: not finite, or not in the type it is stored in."""
    if np.isfinite(value):
        return f"{value}, {dtype} cannot hold it"
    limit = f", and at most {np.finfo(dtype).max:.3g}" if np.isinf(value) else ""
    return f"{value}, features must be finite{limit}"


def checked_weights(weights: Array, num_edges: int, source: object) -> Float32Array:
    """Return weights ``[num_edges]``, finite and at least 0, as float32; else raise GraphError."""
    check_array(weights, axes=1, kinds="iuf", source=source)
    if len(weights) != num_edges:
        raise GraphError(f"{source}: {len(weights)} weights for {num_edges} edges")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
        converted = np.ascontiguousarray(weights, np.float32)
    # NaN compares false with everything, hence the test for what is good.
    good = (converted >= 0) & np.isfinite(converted)
    if not good.all():
        edge = int(good.argmin())
        raise GraphError(
            f"{source}: weight {weights[edge]} of edge {edge}, allowed are numbers from 0 on that "
            "float32 holds"
        )
    return converted


def edge_features(
    rows: Array, *, num_edges: int, num_features: int, first: int = 0, source: object
) -> Float32Array:
    """Return features ``[num_edges, num_features]``, finite, as float32; else raise GraphError.

    ``first`` is the number of the first edge.
    """
    check_array(rows, axes=2, kinds="biuf", source=f"{source}: features of edges")
    if len(rows) != num_edges:
        raise GraphError(f"{source}: {len(rows)} rows of features for {num_edges} edges")
    if rows.shape[1] != num_features:
        raise GraphError(
            f"{source}: {rows.shape[1]} features from edge {first} on, before {num_features}"
        )
    with np.errstate(over="ignore"):  # what is not finite is refused
        converted = np.ascontiguousarray(rows, np.float32)
    refuse_not_finite(rows, converted, first, source, "edge")
    return converted


def class_labels(column: Array, source: object, of: str = "vertex") -> Int64Array:
    """Return ``[n]`` classes, integers or floats with NaN, as int64, -1 for unknown."""
    check_array(column, axes=1, kinds="iuf", source=source)
    if column.dtype.kind != "f":
        if int(column.min(initial=0)) < 0 or int(column.max(initial=0)) >= MAX_CLASSES:
            _refuse_label(column, (column >= 0) & (column < MAX_CLASSES), source, of)
        return column.astype(np.int64)
    known = ~np.isnan(column)
    # Before the cast, which has no answer for what int64 cannot hold. Signalling NaN is NaN too.
    with np.errstate(invalid="ignore"):
        good = ~known | ((column >= 0) & (column < MAX_CLASSES) & (column == np.floor(column)))
    if not good.all():
        _refuse_label(column, good, source, of)
    return np.where(known, column, -1).astype(np.int64)


def _refuse_label(column: Array, good: BoolArray, source: object, of: str) -> None:
    place = int(np.flatnonzero(~good)[0])
    raise GraphError(
        f"{source}: label {column[place]} of {of} {place} is not a class, "
        f"allowed are 0 to {MAX_CLASSES - 1}"
    )


def count_classes(labels: Array, source: object, of: str = "vertex") -> int:
    """Return the number of classes of ``labels``: columns, or one more than the largest class.

    Raises:
        GraphError: they are not whole numbers, or the largest is far above the number of labels
            that are known.
    """
    if labels.ndim == 2:
        if labels.shape[1] > MAX_CLASSES:
            raise GraphError(
                f"{source}: {labels.shape[1]} classes, allowed are up to {MAX_CLASSES}"
            )
        return int(labels.shape[1])
    check_array(labels, axes=1, kinds=None, source=f"{source}: labels")
    if labels.dtype.kind not in "iu":
        raise GraphError(f"{source}: labels are {labels.dtype}, they must be whole numbers")
    num_classes = max(int(labels.max()) + 1, 0) if labels.size else 0
    num_labelled = int((labels >= 0).sum())
    allowed = min(MAX_CLASSES, num_labelled + _SPARE_CLASSES)
    if num_classes > allowed:
        place = int(labels.argmax())
        raise GraphError(
            f"{source}: label {num_classes - 1} of {of} {place} is too large, allowed are up to "
            f"{allowed - 1} where {num_labelled} {_SEVERAL[of]} have a label"
        )
    return num_classes


def checked_labels(
    labels: Array, *, count: int, num_classes: int, source: object, of: str = "vertex"
) -> Array:
    """Return labels as a Graph holds them.

    ``labels`` are ``[count]`` whole numbers, -1 if unknown, or ``[count, num_classes]`` zeros and
    ones of multilabel; the result is int64 or uint8.
    """
    if labels.ndim not in (1, 2):
        raise GraphError(f"{source}: labels are {list(labels.shape)}, allowed are 1 or 2 axes")
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {_SEVERAL[of]}")
    if labels.dtype.kind not in ("iu" if labels.ndim == 1 else "biuf"):
        raise GraphError(f"{source}: labels are {labels.dtype}, they must be whole numbers")
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    # NaN compares false with everything, hence the test for what is good.
    good = (labels == 0) | (labels == 1) if labels.ndim == 2 else (labels >= low) & (labels <= high)
    if not good.all():
        place = tuple(np.argwhere(~good)[0])
        raise GraphError(
            f"{source}: label {labels[place]} of {of} {place[0]} is out of range, "
            f"allowed are {low} to {high}"
        )
    return labels.astype(np.int64 if labels.ndim == 1 else np.uint8, copy=False)


def is_regression(labels: Array, metric: str | None) -> bool:
    """Whether labels, one or k for each vertex, are targets of regression, not classes.

    A ``metric`` decides. Without, floating point numbers are targets, except a matrix of zeros and
    ones, which marks the classes of a vertex.
    """
    if metric is not None:
        return metric == "rmse"
    if labels.dtype.kind != "f":
        return False
    return labels.ndim == 1 or not ((labels == 0) | (labels == 1)).all()


def checked_targets(
    labels: Array, *, count: int, source: object, of: str = "vertex"
) -> Float32Array:
    """Return targets of regression, ``[count]`` or ``[count, k]``, NaN if unknown, as float32."""
    check_array(labels, axes=(1, 2), kinds="iuf", source=f"{source}: labels")
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {_SEVERAL[of]}")
    if labels.ndim == 2 and not 1 <= labels.shape[1] <= MAX_CLASSES:
        raise GraphError(f"{source}: {labels.shape[1]} targets, allowed are 1 to {MAX_CLASSES}")
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        targets = labels.astype(np.float32)
    if np.isinf(targets).any():
        place = tuple(np.argwhere(np.isinf(targets))[0])
        raise GraphError(
            f"{source}: label {labels[place]} of {of} {place[0]}, allowed are numbers that "
            "float32 holds, and NaN if unknown"
        )
    if not has_label(targets).any():
        raise GraphError(f"{source}: no {of} has a label")
    return targets


def check_split(
    split: Mapping[str, Array],
    labels: Array,
    num_vertices: int,
    source: object,
    of: str = "vertex",
) -> None:
    """Raise GraphError unless the parts are non-empty, in range, disjoint and labelled.

    Test vertices may lack labels: some publishers hide them. ``of`` is as for ``check_ids``.
    """
    seen = np.zeros(num_vertices, dtype=bool)
    num_seen = 0
    for name, ids in split.items():
        if not ids.size:
            raise GraphError(
                f"{source}: the {name} split is empty; training needs all three parts, and "
                "dataset.split=random draws them"
            )
        check_ids(ids, num_vertices, f"{source}: {name} split", of)
        for part in _slices(ids):
            if seen[part].any():
                vertex = int(part[seen[part].argmax()])
                other = next(other for other, others in split.items() if vertex in others)
                raise GraphError(
                    f"{source}: overlapping splits, {of} {vertex} of the {name} split "
                    f"is in the {other} split too"
                )
        seen[ids] = True
        num_seen += len(ids)
        if np.count_nonzero(seen) != num_seen:
            article = "an" if of == "edge" else "a"
            raise GraphError(f"{source}: the {name} split names {article} {of} twice")
        if name != "test":
            refuse_unlabelled(labels, ids, source=source, of=of, part=f"the {name} split")


def _slices(ids: Array) -> Iterator[Array]:
    for first in range(0, len(ids), _SLICE_IDS):
        yield ids[first : first + _SLICE_IDS]


def whole_numbers(values: object, source: object, what: str) -> Int64Array:
    """Return a list of Python integers (no booleans) from JSON or a pickle as an array."""
    if not isinstance(values, list):
        raise GraphError(f"{source}: {what} must be a list, not {quoted(values)}")
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    place = next(
        number
        for number, value in enumerate(values)
        if type(value) is not int or not -(2**63) <= value < 2**63
    )
    raise GraphError(
        f"{source}: {what} must be whole numbers of 64 bits, number {place} is "
        f"{quoted(values[place])}"
    )


def vertex_keys(keys: Iterable[str], *, source: object) -> Int64Array:
    """Return the vertex ids that an object's keys name; "7" and "07" are one vertex."""
    names = list(keys)
    for name in names:
        if not _KEY.fullmatch(name):
            raise GraphError(f"{source}: key '{shown(name)}' is not a vertex id")
    ids = np.array(list(map(int, names)), np.int64)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise GraphError(f"{source}: vertex {distinct[counts > 1][0]} is named twice")
    return ids


def quoted(value: object) -> str:
    """Return a value of JSON or a pickle for a message.

    Only simple values are shown: a list may hold itself, and a number have a million digits.
    """
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return f"'{shown(value)}'"
    if value is None or isinstance(value, int | float):
        return shown(value)
    return f"a {type(value).__name__}"
