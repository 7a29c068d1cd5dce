"""Times and rows of a task in a graph store: entries of ``meta.json``, and arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, GraphError
from gnnscale.core.artifact import ArrayEntry, Form
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.split import Split
from gnnscale.graph.store_format import (
    EDGE_ENDS,
    EDGE_ROW_TIMES,
    EDGE_TIMES,
    MAX_CLASSES,
    ROW_CUTOFFS,
    ROW_LABELS,
    ROW_SPLITS,
    ROW_VERTICES,
    SPLIT_ARRAYS,
    VERTEX_TIMES,
    vertex_dtype,
)
from gnnscale.graph.task_rows import TaskRows
from gnnscale.graph.time_order import order_problem
from gnnscale.graph.times import NO_TIME, GraphTimes, TimeUnit


@dataclass(frozen=True, kw_only=True)
class TimesEntry:
    """Entry of ``meta.json`` for times: their unit."""

    unit: TimeUnit


@dataclass(frozen=True, kw_only=True)
class RowLabelEntry:
    """Entry of ``meta.json`` for rows of a task: classes, metric and columns.

    ValueError: another number of names than classes.
    """

    num_classes: Annotated[int, Meta(ge=0, le=MAX_CLASSES)]  #: 1 for regression; 0: none known
    metric: Literal["accuracy", "roc_auc", "rmse", "mae"]
    classes: list[str] | None = None  #: names of the classes. None: they have no names
    #: columns of vertices and cut-offs in tables of rows
    columns: tuple[str, str] = ("id", "cutoff")

    def __post_init__(self) -> None:
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise ValueError(f"{len(self.classes)} names of {self.num_classes} classes")

    @property
    def label_dtype(self) -> np.dtype[Any]:
        """Type of labels: int64 classes or float32 targets."""
        return np.dtype(np.float32 if self.metric in ("rmse", "mae") else np.int64)


def timed_arrays(times: GraphTimes | None, rows: TaskRows | None) -> dict[str, Array]:
    """Return the arrays of times and rows by their names in a store."""
    arrays: dict[str, Array] = {}
    if times is not None:
        arrays[EDGE_TIMES] = times.edges
        if times.vertices is not None:
            arrays[VERTEX_TIMES] = times.vertices
    if rows is not None:
        arrays |= {
            ROW_VERTICES: rows.vertices,
            ROW_CUTOFFS: rows.cutoffs,
            ROW_LABELS: rows.labels,
        }
        dtype = vertex_dtype(len(rows.vertices))
        for name, stored in zip(SPLIT_ARRAYS, ROW_SPLITS, strict=True):
            arrays[stored] = np.sort(getattr(rows.split, name)).astype(dtype)
    return arrays


def timed_entries(times: GraphTimes | None, rows: TaskRows | None) -> dict[str, Any]:
    """Return the entries of ``meta.json`` for times and rows, none if both are None."""
    entries: dict[str, Any] = {} if times is None else {"times": {"unit": times.unit}}
    if rows is not None:
        names = [entry.name for entry in fields(RowLabelEntry)]
        entries["row_labels"] = {name: getattr(rows, name) for name in names}
    return entries


def timed_forms(
    times: TimesEntry | None,
    rows: RowLabelEntry | None,
    entries: Mapping[str, ArrayEntry],
    indices: Form,
    num_vertices: int,
) -> dict[str, Form]:
    """Return type and shape of the arrays of ``times`` and ``rows``, if a store has them.

    ``entries`` describe the arrays of the store, ``indices`` is the form of its neighbors.
    """
    forms: dict[str, Form] = {}
    ids, shape = indices
    if times is not None:
        forms[EDGE_TIMES] = np.dtype(np.int64), shape
        if EDGE_ROW_TIMES in entries and EDGE_ENDS in entries:
            forms[EDGE_ROW_TIMES] = np.dtype(np.int64), entries[EDGE_ENDS].shape[:1]
        if VERTEX_TIMES in entries:
            forms[VERTEX_TIMES] = np.dtype(np.int64), (num_vertices,)
    if rows is not None:
        labels = entries.get(ROW_LABELS)
        count = labels.shape[0] if labels is not None and labels.shape else 0
        forms[ROW_VERTICES] = ids, (count,)
        forms[ROW_CUTOFFS] = np.dtype(np.int64), (count,)
        forms[ROW_LABELS] = rows.label_dtype, (count,)
        forms |= dict.fromkeys(ROW_SPLITS, (vertex_dtype(count), (None,)))
    return forms


def take_times(arrays: dict[str, Array], entry: TimesEntry | None) -> GraphTimes | None:
    """Remove the arrays of times from ``arrays``; return them. None: the store has no times."""
    if entry is None:
        return None
    return GraphTimes(
        unit=entry.unit,
        edges=arrays.pop(EDGE_TIMES),
        vertices=arrays.pop(VERTEX_TIMES, None),
    )


def take_rows(arrays: dict[str, Array], entry: RowLabelEntry | None, name: str) -> TaskRows | None:
    """Remove the arrays of rows from ``arrays``; return them. None: the store has no rows.

    ``name`` is that of the graph.
    """
    if entry is None:
        return None
    pairs = zip(SPLIT_ARRAYS, ROW_SPLITS, strict=True)
    return TaskRows(
        name=name,
        vertices=arrays.pop(ROW_VERTICES),
        cutoffs=arrays.pop(ROW_CUTOFFS),
        labels=arrays.pop(ROW_LABELS),
        num_classes=entry.num_classes,
        split=Split(**{part: arrays.pop(stored) for part, stored in pairs}),
        metric=entry.metric,
        classes=entry.classes,
        columns=entry.columns,
    )


def check_times(
    path: Path, arrays: Mapping[str, Array], schema: GraphSchema, *, sources: bool = False
) -> None:
    """Raise GraphError, naming the store at ``path``, for a list that is out of order.

    With ``sources``, those of equal times ascend too.
    """
    indices = arrays["indices"] if sources else None
    problem = order_problem(arrays["indptr"], indices, arrays[EDGE_TIMES], schema)
    if problem is not None:
        raise GraphError(f"{path / EDGE_TIMES}.npy: {problem}")


def check_row_ids(path: Path, arrays: Mapping[str, Array], num_vertices: int) -> None:
    """Raise GraphError for a row of no vertex, or without a cut-off, in the store at ``path``."""
    ids, cutoffs = arrays[ROW_VERTICES], arrays[ROW_CUTOFFS]
    wrong = (ids < 0) | (ids >= num_vertices)
    if wrong.any():
        row = int(wrong.argmax())
        raise GraphError(
            f"{path / ROW_VERTICES}.npy: vertex {ids[row]} of row {row} is out of range, the graph "
            f"has {num_vertices} vertices"
        )
    missing = cutoffs == NO_TIME
    if missing.any():
        raise GraphError(f"{path / ROW_CUTOFFS}.npy: row {int(missing.argmax())} has no cut-off")


def check_edge_row_times(path: Path, arrays: Mapping[str, Array]) -> None:
    """Raise GraphError for a labeled edge without a time, in the store at ``path``."""
    missing = arrays[EDGE_ROW_TIMES] == NO_TIME
    if missing.any():
        raise GraphError(f"{path / EDGE_ROW_TIMES}.npy: row {int(missing.argmax())} has no time")
