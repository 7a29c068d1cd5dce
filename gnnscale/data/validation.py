"""Checks of arrays from files and from users; an error names source and value in one line."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, brief
from gnnscale.core.artifact.npy import check_array, row_slices
from gnnscale.graph import MAX_CLASSES, MAX_FEATURES, check_labeled, has_label

#: Classes without a vertex, at most, if the number of classes is inferred from the labels.
_SPARE_CLASSES = 1024
#: Vertices of a split that are checked at a time.
_SLICE_IDS = 1 << 18
#: Vertices allowed beyond one per byte of the files.
_SPARE_VERTICES = 1 << 20
_KEY = re.compile(r"[0-9]{1,18}")


def check_num_vertices(num_vertices: int, num_bytes: int, source: object) -> None:
    """Raise GraphError unless there are 1 to ``num_bytes`` (of the files) plus 2^20 vertices.

    Memory and disk are allocated per vertex before the data are read. All published files have more
    than one byte per vertex, even if they are compressed.
    """
    if not 1 <= num_vertices <= num_bytes + _SPARE_VERTICES:
        raise GraphError(
            f"{source}: expected 1 to {num_bytes + _SPARE_VERTICES} vertices in files of "
            f"{num_bytes} bytes, got {quoted(num_vertices)}"
        )


def check_num_features(num_features: int, source: object) -> None:
    """Raise GraphError unless ``num_features`` is 1 to ``MAX_FEATURES``."""
    if not 1 <= num_features <= MAX_FEATURES:
        raise GraphError(
            f"{source}: expected 1 to {MAX_FEATURES} features, got {quoted(num_features)}"
        )


#: Plurals of the values of ``of``.
PLURAL = {"vertex": "vertices", "edge": "edges"}


def check_ids(ids: Array, num_vertices: int, source: object, of: str = "vertex") -> None:
    """Raise GraphError unless ``ids`` are ``[n]`` integers in ``[0, num_vertices)``.

    If ``of`` is ``edge``, these are ids and the number of edges.
    """
    if ids.ndim != 1:
        raise GraphError(f"{source}: expected {of} ids with one axis, got {list(ids.shape)}")
    if ids.dtype.kind not in "iu":
        raise GraphError(f"{source}: expected integers as {of} ids, got {ids.dtype}")
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        raise GraphError(f"{source}: {of} id {low} is negative")
    if high >= num_vertices:
        hint = "; ids count from 0" if (low, high) == (1, num_vertices) else ""
        raise GraphError(
            f"{source}: {of} id {high} is out of range, the graph has {num_vertices} "
            f"{PLURAL[of]}{hint}"
        )


def check_features(rows: Array, first: int, source: object, of: str = "vertex") -> float:
    """Return the largest magnitude in ``rows``, 0 for float16; GraphError: a value is not finite.

    ``rows`` are ``[n, num_features]``, whose first row is vertex or edge ``first``.
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
    """Raise GraphError if ``converted``, ``rows`` in another type, has a value that is not finite.

    The error names the value, and its vertex or edge (``of``): ``first`` plus its row.
    """
    finite = np.isfinite(converted)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    reason = not_finite(rows[row, column], str(converted.dtype))
    raise GraphError(f"{source}: feature {column} of {of} {first + row} is {reason}")


def not_finite(value: Any, dtype: str = "float32") -> str:
    """Return a message on a feature value that is not finite, or beyond the range of ``dtype``."""
    if np.isfinite(value):
        return f"{value}, {dtype} cannot hold it"
    limit = f", and at most {np.finfo(dtype).max:.3g}" if np.isinf(value) else ""
    return f"{value}, features must be finite{limit}"


def check_weights(weights: Array, num_edges: int, source: object) -> Float32Array:
    """Return weights ``[num_edges]``, finite and at least 0, as float32; else raise GraphError."""
    check_array(weights, axes=1, kinds="iuf", source=source)
    if len(weights) != num_edges:
        raise GraphError(f"{source}: {len(weights)} weights for {num_edges} edges")
    with np.errstate(over="ignore", invalid="ignore"):  # infinity is refused below
        converted = np.ascontiguousarray(weights, np.float32)
    # NaN compares false with everything, hence the test for valid values.
    good = (converted >= 0) & np.isfinite(converted)
    if not good.all():
        edge = int(good.argmin())
        raise GraphError(
            f"{source}: edge {edge}: expected a weight of at least 0 in the range of float32, got "
            f"{weights[edge]}"
        )
    return converted


def edge_features(
    rows: Array, *, num_edges: int, num_features: int, first: int = 0, source: object
) -> Float32Array:
    """Return ``rows`` of edges as float32 ``[num_edges, num_features]``; else raise GraphError.

    Values must be finite; errors number the edges from ``first``.
    """
    check_array(rows, axes=2, kinds="biuf", source=f"{source}: features of edges")
    if len(rows) != num_edges:
        raise GraphError(f"{source}: {len(rows)} rows of features for {num_edges} edges")
    if rows.shape[1] != num_features:
        raise GraphError(
            f"{source}: expected {num_features} features as for the edges before, got "
            f"{rows.shape[1]} from edge {first} on"
        )
    with np.errstate(over="ignore"):  # infinity is refused below
        converted = np.ascontiguousarray(rows, np.float32)
    refuse_not_finite(rows, converted, first, source, "edge")
    return converted


def class_labels(column: Array, source: object, of: str = "vertex") -> Int64Array:
    """Return ``[n]`` classes as int64, -1 for NaN (no label).

    GraphError: a value is no whole number from 0 to ``MAX_CLASSES`` - 1.
    """
    check_array(column, axes=1, kinds="iuf", source=source)
    if column.dtype.kind != "f":
        if int(column.min(initial=0)) < 0 or int(column.max(initial=0)) >= MAX_CLASSES:
            _refuse_label(column, (column >= 0) & (column < MAX_CLASSES), source, of)
        return column.astype(np.int64)
    labeled = ~np.isnan(column)
    # Checked before the cast, which is undefined beyond int64. A signaling NaN is NaN too.
    with np.errstate(invalid="ignore"):
        good = ~labeled | ((column >= 0) & (column < MAX_CLASSES) & (column == np.floor(column)))
    if not good.all():
        _refuse_label(column, good, source, of)
    return np.where(labeled, column, -1).astype(np.int64)


def _refuse_label(column: Array, good: BoolArray, source: object, of: str) -> None:
    index = int(np.flatnonzero(~good)[0])
    raise GraphError(
        f"{source}: label of {of} {index}: expected a class from 0 to {MAX_CLASSES - 1}, got "
        f"{column[index]}"
    )


def count_classes(labels: Array, source: object, of: str = "vertex") -> int:
    """Return the number of classes: columns of 2-D labels, or the largest of 1-D labels plus 1.

    GraphError: too many classes for the number of labels.
    """
    if labels.ndim == 2:
        if labels.shape[1] > MAX_CLASSES:
            raise GraphError(
                f"{source}: expected up to {MAX_CLASSES} classes, got {labels.shape[1]}"
            )
        return int(labels.shape[1])
    check_array(labels, axes=1, kinds=None, source=f"{source}: labels")
    if labels.dtype.kind not in "iu":
        raise GraphError(f"{source}: expected integers as labels, got {labels.dtype}")
    num_classes = max(int(labels.max()) + 1, 0) if labels.size else 0
    num_labeled = int((labels >= 0).sum())
    allowed = min(MAX_CLASSES, num_labeled + _SPARE_CLASSES)
    if num_classes > allowed:
        index = int(labels.argmax())
        raise GraphError(
            f"{source}: label of {of} {index}: expected at most {allowed - 1} where {num_labeled} "
            f"{PLURAL[of]} have a label, got {num_classes - 1}; number the classes from 0, or "
            "choose the metric rmse for regression targets"
        )
    return num_classes


def checked_labels(
    labels: Array, *, count: int, num_classes: int, source: object, of: str = "vertex"
) -> Array:
    """Return ``[count]`` classes as int64, or ``[count, k]`` multi-label as uint8.

    GraphError unless classes are -1 (no label) to ``num_classes`` - 1, or multi-label is 0 and 1.
    """
    if labels.ndim not in (1, 2):
        raise GraphError(f"{source}: expected labels with 1 or 2 axes, got {list(labels.shape)}")
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {PLURAL[of]}")
    if labels.dtype.kind not in ("iu" if labels.ndim == 1 else "biuf"):
        raise GraphError(f"{source}: expected integers as labels, got {labels.dtype}")
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    # NaN compares false with everything, hence the test for valid values.
    good = (labels == 0) | (labels == 1) if labels.ndim == 2 else (labels >= low) & (labels <= high)
    if not good.all():
        index = tuple(np.argwhere(~good)[0])
        hint = "; -1 is an unknown label" if labels[index] < low == -1 else ""
        raise GraphError(
            f"{source}: label of {of} {index[0]}: expected {low} to {high}, got "
            f"{labels[index]}{hint}"
        )
    return labels.astype(np.int64 if labels.ndim == 1 else np.uint8, copy=False)


def is_regression(labels: Array, metric: str | None) -> bool:
    """Whether labels are regression targets: ``metric`` is ``rmse`` or, if None, labels are floats.

    Without ``metric``, a matrix of zeros and ones is multi-label.
    """
    if metric is not None:
        return metric == "rmse"
    if labels.dtype.kind != "f":
        return False
    return labels.ndim == 1 or not ((labels == 0) | (labels == 1)).all()


def checked_targets(
    labels: Array, *, count: int, source: object, of: str = "vertex"
) -> Float32Array:
    """Return targets ``[count]`` or ``[count, k]`` as float32.

    GraphError: another shape, an infinite value, or only NaN.
    """
    check_array(labels, axes=(1, 2), kinds="iuf", source=f"{source}: labels")
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {PLURAL[of]}")
    if labels.ndim == 2 and not 1 <= labels.shape[1] <= MAX_CLASSES:
        raise GraphError(f"{source}: expected 1 to {MAX_CLASSES} targets, got {labels.shape[1]}")
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        targets = labels.astype(np.float32)
    if np.isinf(targets).any():
        index = tuple(np.argwhere(np.isinf(targets))[0])
        raise GraphError(
            f"{source}: label of {of} {index[0]}: expected a number in the range of float32, or "
            f"NaN if unknown, got {labels[index]}"
        )
    if not has_label(targets).any():
        raise GraphError(f"{source}: no {of} has a label")
    return targets


def check_split(
    split: Mapping[str, Array], labels: Array, num_vertices: int, source: object, of: str = "vertex"
) -> None:
    """Raise GraphError unless the parts of ``split`` are in range, disjoint and labeled.

    ``split`` has the ids of vertices or edges (``of``) by part. Part ``train`` has some, other
    parts may be empty. Part ``test`` may lack labels, since some publishers hide test labels.
    """
    is_assigned = np.zeros(num_vertices, dtype=bool)
    num_assigned = 0
    for name, ids in split.items():
        if not ids.size:
            if name == "train":
                raise GraphError(
                    f"{source}: the train split is empty; dataset.split=random draws a split"
                )
            continue
        check_ids(ids, num_vertices, f"{source}: {name} split", of)
        for rows in row_slices(len(ids), 1, _SLICE_IDS):
            part = ids[rows]
            if is_assigned[part].any():
                vertex = int(part[is_assigned[part].argmax()])
                other = next(other for other, other_ids in split.items() if vertex in other_ids)
                raise GraphError(
                    f"{source}: overlapping splits, {of} {vertex} of the {name} split "
                    f"is in the {other} split too"
                )
        is_assigned[ids] = True
        num_assigned += len(ids)
        if np.count_nonzero(is_assigned) != num_assigned:
            article = "an" if of == "edge" else "a"
            raise GraphError(f"{source}: the {name} split names {article} {of} twice")
        if name != "test":
            check_labeled(labels, ids, source=source, of=of, part=f"the {name} split")


def whole_numbers(values: object, source: object, what: str) -> Int64Array:
    """Return a list of Python integers as an int64 array; GraphError: other types, or too large."""
    if not isinstance(values, list):
        raise GraphError(f"{source}: {what}: expected a list, got {quoted(values)}")
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    index = next(
        number
        for number, value in enumerate(values)
        if type(value) is not int or not -(2**63) <= value < 2**63
    )
    raise GraphError(
        f"{source}: {what}: expected integers of 64 bits, got {quoted(values[index])} as number "
        f"{index}"
    )


def vertex_keys(keys: Iterable[str], *, source: object) -> Int64Array:
    """Return the keys of a JSON object as int64 vertex ids.

    GraphError: a key is no decimal number, or an id repeats, as of "7" and "07".
    """
    names = list(keys)
    for name in names:
        if not _KEY.fullmatch(name):
            raise GraphError(f"{source}: expected vertex ids as keys, got '{brief(name)}'")
    ids = np.array(list(map(int, names)), np.int64)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise GraphError(f"{source}: vertex {distinct[counts > 1][0]} is named twice")
    return ids


def quoted(value: object) -> str:
    """Return a JSON or pickle value as text for a message; a compound value as its type's name."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return f"'{brief(value)}'"
    if value is None or isinstance(value, int | float):
        return brief(value)
    return f"a {type(value).__name__}"
