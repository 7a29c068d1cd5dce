"""Interpretation of labels as classes, multi-label or regression targets, from all inputs."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array
from gnnscale.core.artifact.npy import row_slices
from gnnscale.data.validation import PLURAL
from gnnscale.graph import MAX_CLASSES, has_label

_LOG = logging.getLogger(__name__)
#: Bytes of a label matrix that are checked at a time.
_SLICE_BYTES = 1 << 20
#: Classes without a vertex, at most, if the number of classes is inferred from the labels.
_SPARE_CLASSES = 1024


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels in the form that a ``Graph`` holds, with their number of classes and metric."""

    #: classes ``[n]`` int64, -1 if unknown; multi-label ``[n, num_classes]`` uint8; or regression
    #: targets ``[n]`` or ``[n, num_classes]`` float32, NaN if unknown
    values: Array
    num_classes: int  #: number of classes or regression targets; 0 if all classes are unknown
    metric: str  #: one of ``METRICS``
    classes: list[str] | None = None  #: names of the classes, if labels are texts


def read_labels(
    labels: Array,
    *,
    count: int,
    source: object,
    metric: str | None = None,
    num_classes: int | None = None,
    of: str = "vertex",
    advice: str = "metric=accuracy makes them classes",
) -> Labels:
    """Return labels, ``[count]`` or ``[count, k]`` of any form, as a ``Graph`` holds them.

    Booleans are 0 and 1. A one-hot matrix becomes classes; a row of NaN is an unknown class. A
    matrix of one column becomes its column, unless ``num_classes`` is 1 and it has integers or
    booleans. Other floating point numbers are regression targets, unless ``metric`` is one of
    classes. ``num_classes`` of None: the columns of a matrix, or the largest class plus one. ``of``
    is ``vertex``, ``edge`` or ``row``; an edge or row has one class or one target. ``advice`` ends
    a warning that targets look like classes. Raises GraphError for another form or value, or if all
    targets of vertices are unknown.
    """
    labels = _column(labels, num_classes, count=count, source=source, of=of)
    classes = _one_hot_classes(labels) if metric in (None, "accuracy") else None
    if classes is None and _is_regression(labels, metric):
        if metric is None and of == "vertex":
            _refuse_unknown_cells(labels, source)
        result = _read_targets(labels, num_classes, source, of, advice if not metric else "")
    else:
        index = wrapped_label(labels, labels.dtype) if labels.ndim == 1 else None
        if index is not None:
            message = wrapped_message(labels.dtype)
            raise GraphError(f"{source}: label {labels[index]} of {of} {index}: {message}")
        if classes is None and metric in (None, "accuracy") and of == "vertex":
            _warn_of_empty_rows(labels, source)
        if labels.ndim == 2:
            width = labels.shape[1]
            if num_classes not in (None, width):
                raise GraphError(
                    f"{source}: expected {num_classes} columns of classes, got {width}"
                )
            num_classes = width
            metric = metric or ("micro_f1" if classes is None else "accuracy")
        if classes is not None:
            _LOG.info("%s: every row has a single one, so that each %s has one class", source, of)
            labels = classes
        result = _read_classes(labels, num_classes, metric, source, of)
    if of != "vertex" and result.values.ndim == 2:
        raise GraphError(
            f"{source}: expected one class or one target for each {of}, got "
            f"{labels.dtype}{list(labels.shape)}"
        )
    return result


def read_edge_labels(labels: Array, *, num_edges: int, source: object) -> Labels:
    """Return labels ``[num_edges]``, one class or target an edge; GraphError if all are unknown."""
    advice = "give whole numbers for classes"
    result = read_labels(labels, count=num_edges, source=source, of="edge", advice=advice)
    if not result.num_classes:
        raise GraphError(f"{source}: no edge has a label")
    return result


def wrapped_label(labels: Array, dtype: np.dtype[Any]) -> int | None:
    """Return the index of the first label that was -1 before a cast to unsigned ``dtype``, or None.

    The cast makes -1 the maximum of ``dtype``. The maximum counts as a class, and not as -1, if the
    class below it occurs too.
    """
    largest = np.iinfo(dtype).max if dtype.kind == "u" else None
    if largest is None or not len(labels) or labels.max() != largest:
        return None
    return None if (labels == largest - 1).any() else int(labels.argmax())


def wrapped_message(dtype: np.dtype[Any]) -> str:
    """Return the error message for a label that was -1 before a cast to unsigned ``dtype``."""
    return (
        f"{np.iinfo(dtype).max} is what -1 becomes in {dtype}, and class "
        f"{np.iinfo(dtype).max - 1} does not occur; give labels as int64, -1 if unknown"
    )


def _column(
    labels: Array, num_classes: int | None, *, count: int, source: object, of: str
) -> Array:
    """Return labels ``[count, 1]`` as ``[count]``; booleans ``[count]`` as int64.

    If ``num_classes`` is 1, integers and booleans ``[count, 1]`` stay as they are: multi-label with
    one class. So do all other labels. ``of`` is ``vertex`` or ``edge``, what has the labels.
    GraphError: labels are neither ``[count]`` nor ``[count, k]``, or not numbers.
    """
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf" or 0 in labels.shape[1:]:
        raise GraphError(
            f"{source}: expected labels, classes [{count}], zeros and ones [{count}, num_classes], "
            f"or regression targets, got {labels.dtype}{list(labels.shape)}"
        )
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {PLURAL[of]}")
    only_class = num_classes == 1 and labels.dtype.kind in "biu"
    if labels.ndim == 2 and labels.shape[1] == 1 and not only_class:
        labels = labels[:, 0]
    return labels.astype(np.int64) if labels.ndim == 1 and labels.dtype.kind == "b" else labels


def _one_hot_classes(labels: Array) -> Int64Array | None:
    """Return the classes of a one-hot matrix, -1 for a row of NaN; None if it is not one-hot."""
    if labels.ndim == 1:
        return None
    classes = np.full(len(labels), -1, np.int64)
    for part in row_slices(len(labels), labels[:1].nbytes, _SLICE_BYTES):
        rows = labels[part]
        ones = rows == 1
        labeled: BoolArray = np.ones(len(rows), np.bool_)
        if rows.dtype.kind == "f":
            labeled = np.asarray(~np.isnan(rows).all(axis=1))
        single = (ones | (rows == 0)).all(axis=1) & (ones.sum(axis=1) == 1)
        if not single[labeled].all():
            return None
        classes[part][labeled] = ones[labeled].argmax(axis=1)
    return classes if (classes >= 0).any() else None


def _refuse_unknown_cells(labels: Array, source: object) -> None:
    """Raise GraphError for a matrix of zeros, ones, and NaN or -1.

    Such labels may be classes, multi-label or regression targets.
    """
    if labels.ndim == 1:
        return
    cell = None
    for part in row_slices(len(labels), labels[:1].nbytes, _SLICE_BYTES):
        rows = labels[part]
        unknown = np.isnan(rows) | (rows == -1)
        if not (unknown | (rows == 0) | (rows == 1)).all():
            return
        if cell is None and unknown.any():
            row, column = np.argwhere(unknown)[0]
            cell = part.start + row, column
    if cell is not None and np.any((labels == 0) | (labels == 1)):
        raise GraphError(
            f"{source}: labels of zeros, ones and {labels[cell]:g} (of vertex {cell[0]}): expected "
            "one-hot rows or rows of NaN for classes, only zeros and ones for multi-label, or the "
            "metric rmse for regression targets"
        )


def _warn_of_empty_rows(labels: Array, source: object) -> None:
    """Warn if a matrix would be one-hot (classes), and is multi-label only for rows of zeros."""
    if labels.ndim == 1 or labels.shape[1] == 1:
        return
    empty = 0
    for part in row_slices(len(labels), labels[:1].nbytes, _SLICE_BYTES):
        ones = np.count_nonzero(labels[part], axis=1)
        if ones.max() > 1:
            return
        empty += np.count_nonzero(ones == 0)
    if 0 < empty < len(labels):
        _LOG.warning(
            "%s: multi-label, since %s of %s rows are all zeros and the remaining rows one-hot; "
            "for one class per vertex, make unknown rows NaN, or labels class numbers and -1",
            *(source, f"{empty:,}", f"{len(labels):,}"),
        )


def _is_regression(labels: Array, metric: str | None) -> bool:
    """Whether labels are targets: by ``metric`` or, if None, floats other than zeros and ones."""
    if metric is not None:
        return metric == "rmse"
    if labels.dtype.kind != "f":
        return False
    return labels.ndim == 1 or not ((labels == 0) | (labels == 1)).all()


def _read_classes(
    labels: Array, num_classes: int | None, metric: str | None, source: object, of: str
) -> Labels:
    if labels.ndim == 1 and labels.dtype.kind == "f":
        labels = _whole_classes(labels, source, of)
    if num_classes is None:
        num_classes = count_classes(labels, source, of)
        _tell_empty_classes(labels, num_classes, source, of)
    if num_classes > MAX_CLASSES:
        raise GraphError(f"{source}: expected up to {MAX_CLASSES} classes, got {num_classes}")
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
    values = labels.astype(np.int64 if labels.ndim == 1 else np.uint8, copy=False)
    return Labels(values=values, num_classes=num_classes, metric=metric or "accuracy")


def _whole_classes(column: Array, source: object, of: str) -> Int64Array:
    """Return floating point classes as int64, -1 for NaN and -1; GraphError: no whole number."""
    labeled = ~(np.isnan(column) | (column == -1))
    # Checked before the cast, which is undefined beyond int64. A signaling NaN is NaN too.
    with np.errstate(invalid="ignore"):
        good = ~labeled | ((column >= 0) & (column < MAX_CLASSES) & (column == np.floor(column)))
    if not good.all():
        index = int(good.argmin())
        raise GraphError(
            f"{source}: label of {of} {index}: expected a class from 0 to {MAX_CLASSES - 1}, got "
            f"{column[index]}"
        )
    return np.where(labeled, column, -1).astype(np.int64)


def count_classes(labels: Array, source: object, of: str = "vertex") -> int:
    """Return the largest integer label plus 1; GraphError: too large for the number of labels."""
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


def _tell_empty_classes(labels: Array, num_classes: int, source: object, of: str) -> None:
    """Log classes that no label has, such as class 0 of labels that count from 1."""
    if labels.ndim == 1:
        empty = np.flatnonzero(np.bincount(labels[labels >= 0], minlength=num_classes) == 0)
        if len(empty):
            _LOG.info(
                "%s: %s of %s classes have no %s, such as class %d: classes count from 0",
                *(source, f"{len(empty):,}", f"{num_classes:,}", of, empty[0]),
            )


def _read_targets(
    labels: Array, num_targets: int | None, source: object, of: str, advice: str
) -> Labels:
    width = 1 if labels.ndim == 1 else labels.shape[1]
    if num_targets not in (None, width):
        raise GraphError(f"{source}: expected num_classes={num_targets} targets, got {width}")
    if width > MAX_CLASSES:
        raise GraphError(f"{source}: expected 1 to {MAX_CLASSES} targets, got {width}")
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        values = labels.astype(np.float32)
    if np.isinf(values).any():
        index = tuple(np.argwhere(np.isinf(values))[0])
        raise GraphError(
            f"{source}: label of {of} {index[0]}: expected a number in the range of float32, or "
            f"NaN if unknown, got {labels[index]}"
        )
    if not has_label(values).any():
        raise GraphError(f"{source}: no {of} has a label")
    advice = f"; {advice}" if advice and _are_whole(values) else ""
    _LOG.log(
        logging.WARNING if advice else logging.INFO,
        *("%s: %s labels are regression targets, as float32%s", source, labels.dtype, advice),
    )
    _report_partly_known(values, source, of)
    return Labels(values=values, num_classes=width, metric="rmse")


def _are_whole(targets: Float32Array) -> bool:
    """Whether all known targets are integers of at least 0 in one column, and so may be classes."""
    if targets.ndim == 2:
        return False
    labeled = targets[~np.isnan(targets)]
    return bool((labeled >= 0).all() and (labeled == np.floor(labeled)).all())


def _report_partly_known(targets: Float32Array, source: object, of: str) -> None:
    """Log how many vertices (or edges, ``of``) have only some of their targets known."""
    if targets.ndim == 1:
        return
    unknown = np.isnan(targets)
    num_labeled = len(targets) - np.count_nonzero(unknown.all(axis=1))
    num_partial = np.count_nonzero(unknown.any(axis=1)) - (len(targets) - num_labeled)
    if num_partial:
        _LOG.info(
            "%s: %s of %s %s with a target have some of %s targets, NaN does not count",
            *(source, f"{num_partial:,}", f"{num_labeled:,}", PLURAL[of]),
            targets.shape[1],
        )
