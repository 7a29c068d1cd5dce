"""One rule for labels of every entrance: arrays in memory and in files, tables, other libraries."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array
from gnnscale.core.artifact.npy import row_slices
from gnnscale.data import validation as checks
from gnnscale.graph.store_format import MAX_CLASSES

_LOG = logging.getLogger(__name__)
#: Bytes of a matrix of labels that are looked at together.
_SLICE_BYTES = 1 << 20
_PLURAL = {"vertex": "vertices", "edge": "edges"}


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels in the form of a Graph.

    Attributes:
        values: ``[n]`` int64 classes, -1 if unknown; ``[n, num_classes]`` uint8 of multilabel; or
            ``[n]`` or ``[n, num_classes]`` float32 regression targets, NaN if unknown.
        num_classes: classes, or targets of regression; 0 if every class is unknown.
        metric: one of ``METRICS``.
    """

    values: Array
    num_classes: int
    metric: str


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
    """Return labels of any accepted form as a Graph holds them.

    Booleans are 0 and 1, a matrix of one column is its column unless ``num_classes`` is 1, and a
    matrix of zeros and ones with a single one in every row that is known has a class for each row.
    Floating point numbers are regression targets otherwise, unless ``metric`` is one of classes.

    Args:
        labels: ``[count]`` or ``[count, k]`` numbers or booleans.
        count: number of vertices, or of edges.
        source: names the labels in errors.
        metric: one of ``METRICS``, which decides between classes and targets; None for the
            metric that the labels suggest.
        num_classes: None for the columns of a matrix, or the largest class present.
        of: ``vertex``, or ``edge``, which has one class or one target.
        advice: for the user whose targets look like classes.

    Raises:
        GraphError: their form or a value is not allowed, or a target of regression is known of
            no vertex.
    """
    labels = _column(labels, num_classes, count=count, source=source, of=of)
    classes = _one_hot_classes(labels) if metric in (None, "accuracy") else None
    if classes is None and checks.is_regression(labels, metric):
        if metric is None and of == "vertex":
            _refuse_unknown_cells(labels, source)
        found = _read_targets(labels, num_classes, count, source, of, advice if not metric else "")
    else:
        _refuse_wrapped(labels, source, of)
        if classes is None and metric in (None, "accuracy") and of == "vertex":
            _warn_of_empty_rows(labels, source)
        if labels.ndim == 2:
            num_classes = _num_columns(labels, num_classes, source)
            metric = metric or ("micro_f1" if classes is None else "accuracy")
        if classes is not None:
            _LOG.info("%s: every row has a single one, so that each %s has one class", source, of)
            labels = classes
        found = _read_classes(labels, num_classes, metric, count, source, of)
    if of == "edge" and found.values.ndim == 2:
        raise GraphError(
            f"{source}: labels are {labels.dtype}{list(labels.shape)}, expected one class or one "
            "target for each edge"
        )
    return found


def read_edge_labels(labels: Array, *, num_edges: int, source: object) -> Labels:
    """Return labels of edges, one class or one target each, as a Graph holds them.

    Args:
        labels: ``[num_edges]`` or ``[num_edges, k]`` in a form of ``read_labels``.
        num_edges: number of edges.
        source: names the labels in errors.

    Raises:
        GraphError: as ``read_labels``, or no edge has a label.
    """
    advice = "give whole numbers for classes"
    found = read_labels(labels, count=num_edges, source=source, of="edge", advice=advice)
    if not found.num_classes:
        raise GraphError(f"{source}: no edge has a label")
    return found


def wrapped_label(labels: Array, dtype: np.dtype[Any]) -> int | None:
    """Return the place of a -1 that unsigned ``dtype`` made its largest number; None without.

    Classes up to the largest number are classes if the one before it occurs.
    """
    largest = np.iinfo(dtype).max if dtype.kind == "u" else None
    if largest is None or not len(labels) or labels.max() != largest:
        return None
    return None if (labels == largest - 1).any() else int(labels.argmax())


def wrapped_message(dtype: np.dtype[Any]) -> str:
    """Return the reason and the cure for a label that ``wrapped_label`` found."""
    return (
        f"{np.iinfo(dtype).max} is what -1 becomes in {dtype}, and class "
        f"{np.iinfo(dtype).max - 1} does not occur; give labels as int64, -1 if unknown"
    )


def _refuse_wrapped(labels: Array, source: object, of: str) -> None:
    place = wrapped_label(labels, labels.dtype) if labels.ndim == 1 else None
    if place is not None:
        raise GraphError(
            f"{source}: label {labels[place]} of {of} {place}: {wrapped_message(labels.dtype)}"
        )


def _column(
    labels: Array, num_classes: int | None, *, count: int, source: object, of: str
) -> Array:
    """Return labels with one axis if they have one column; refuse another form or length.

    Whole numbers in a column that ``num_classes`` calls the only class stay: each vertex has that
    class or has it not.
    """
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf" or 0 in labels.shape[1:]:
        raise GraphError(
            f"{source}: labels are {labels.dtype}{list(labels.shape)}, expected classes "
            f"[{count}], zeros and ones [{count}, num_classes], or regression targets"
        )
    if len(labels) != count:
        raise GraphError(f"{source}: {len(labels)} labels for {count} {_PLURAL[of]}")
    only_class = num_classes == 1 and labels.dtype.kind in "biu"
    if labels.ndim == 2 and labels.shape[1] == 1 and not only_class:
        labels = labels[:, 0]
    one_axis = labels.ndim == 1
    return labels.astype(np.int64) if one_axis and labels.dtype.kind == "b" else labels


def _one_hot_classes(labels: Array) -> Int64Array | None:
    """Return the class of each row of a one-hot matrix, -1 for a row of NaN; None for others."""
    if labels.ndim == 1:
        return None
    classes = np.full(len(labels), -1, np.int64)
    for part in row_slices(len(labels), labels[:1].nbytes, _SLICE_BYTES):
        rows = labels[part]
        ones = rows == 1
        known: BoolArray = np.ones(len(rows), np.bool_)
        if rows.dtype.kind == "f":
            known = np.asarray(~np.isnan(rows).all(axis=1))
        single = (ones | (rows == 0)).all(axis=1) & (ones.sum(axis=1) == 1)
        if not single[known].all():
            return None
        classes[part][known] = ones[known].argmax(axis=1)
    return classes if (classes >= 0).any() else None


def _refuse_unknown_cells(labels: Array, source: object) -> None:
    """Raise GraphError for a matrix of zeros, ones, and NaN or -1, which may mean three tasks."""
    if labels.ndim == 1:
        return
    place = None
    for part in row_slices(len(labels), labels[:1].nbytes, _SLICE_BYTES):
        rows = labels[part]
        unknown = np.isnan(rows) | (rows == -1)
        if not (unknown | (rows == 0) | (rows == 1)).all():
            return
        if place is None and unknown.any():
            row, column = np.argwhere(unknown)[0]
            place = part.start + row, column
    if place is not None and np.any((labels == 0) | (labels == 1)):
        raise GraphError(
            f"{source}: labels are zeros, ones and {labels[place]:g} (of vertex {place[0]}); "
            "expected a single one in each row, or NaN in all of it, for one class each; zeros and "
            "ones alone for multilabel; or the metric rmse for regression targets"
        )


def _warn_of_empty_rows(labels: Array, source: object) -> None:
    """Warn of one-hot rows that are multilabel since some rows have no one."""
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
            "%s: multilabel, since %s of %s rows have no one, and all others a single one; for one "
            "class of each vertex, an unknown row is NaN, or labels are class numbers and -1",
            *(source, f"{empty:,}", f"{len(labels):,}"),
        )


def _read_classes(
    labels: Array,
    num_classes: int | None,
    metric: str | None,
    count: int,
    source: object,
    of: str,
) -> Labels:
    if labels.ndim == 1 and labels.dtype.kind == "f":
        labels = checks.class_labels(np.where(labels == -1, np.nan, labels), source, of)
    if num_classes is None:
        num_classes = checks.count_classes(labels, source, of)
    if num_classes > MAX_CLASSES:
        raise GraphError(f"{source}: {num_classes} classes, allowed are up to {MAX_CLASSES}")
    values = checks.checked_labels(
        labels, count=count, num_classes=num_classes, source=source, of=of
    )
    return Labels(values=values, num_classes=num_classes, metric=metric or "accuracy")


def _read_targets(
    labels: Array, num_targets: int | None, count: int, source: object, of: str, advice: str
) -> Labels:
    found = 1 if labels.ndim == 1 else labels.shape[1]
    if num_targets not in (None, found):
        raise GraphError(f"{source}: {found} targets, num_classes is {num_targets}")
    values = checks.checked_targets(labels, count=count, source=source, of=of)
    advice = f"; {advice}" if advice and _are_whole(values) else ""
    _LOG.log(
        logging.WARNING if advice else logging.INFO,
        *("%s: %s labels are regression targets, as float32%s", source, labels.dtype, advice),
    )
    _report_partly_known(values, source, of)
    return Labels(values=values, num_classes=found, metric="rmse")


def _are_whole(targets: Float32Array) -> bool:
    """Whether targets, one for each vertex, look like classes: whole numbers from 0 on."""
    if targets.ndim == 2:
        return False
    known = targets[~np.isnan(targets)]
    return bool((known >= 0).all() and (known == np.floor(known)).all())


def _report_partly_known(targets: Float32Array, source: object, of: str) -> None:
    """Log how many vertices or edges have some of their targets alone."""
    if targets.ndim == 1:
        return
    unknown = np.isnan(targets)
    known = len(targets) - np.count_nonzero(unknown.all(axis=1))
    partly = np.count_nonzero(unknown.any(axis=1)) - (len(targets) - known)
    if partly:
        _LOG.info(
            "%s: %s of %s %s with a target have some of %s targets, NaN does not count",
            *(source, f"{partly:,}", f"{known:,}", _PLURAL[of], targets.shape[1]),
        )


def _num_columns(labels: Array, num_classes: int | None, source: object) -> int:
    """Return the number of columns, one for each class; refuse another ``num_classes``."""
    found = checks.count_classes(labels, source)
    if num_classes not in (None, found):
        raise GraphError(f"{source}: {found} columns for {num_classes} classes")
    return found
