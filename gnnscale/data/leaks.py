"""Signs that features show the future, in graphs with times and rows of a task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnscale.core import Array, BoolArray, Float64Array, Int64Array, brief
from gnnscale.data.storage.standardize import ColumnScaling, row_slices
from gnnscale.graph import NO_TIME, FeatureMatrix, Graph, TaskRows, has_label

#: Days of each unit of times; ``step`` is no unit of dates.
_DAYS = {"day": 1.0, "s": 1 / 86_400, "ms": 1e-3 / 86_400, "us": 1e-6 / 86_400, "ns": 1e-9 / 86_400}
#: Days by which a stored date may be newer: float32 rounds dates to minutes.
_TOLERANCE = 0.01
#: Correlation with the label from which a feature counts as the label.
_EQUAL = 0.999
#: Rows of a task that are compared, at most, and bytes of their features.
_MAX_ROWS, _MAX_BYTES = 1 << 16, 64 << 20
#: Rows that are compared, at least.
_MIN_ROWS = 16
#: Rows with another label than most, at least.
_MIN_OTHERS = 5
#: Classes that are compared one by one, at most.
_MAX_CLASSES = 32


class _Type(NamedTuple):
    """Features of a vertex type."""

    name: str
    matrix: FeatureMatrix
    columns: Sequence[Mapping[str, Any]]  #: entries of ``meta.json``
    scaling: ColumnScaling | None
    first: int  #: first vertex

    def parts(self) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Yield each column with its first feature."""
        feature = 0
        for column in self.columns:
            yield column, feature
            feature += int(column["width"])

    def rows(self, vertices: Array | None) -> Iterator[Float64Array]:
        """Yield slices of features, without scaling, of ``vertices`` of the type; None: of all."""
        for part in row_slices(self.matrix.rows, vertices, self.matrix.dtype, self.matrix.width):
            if self.scaling is not None:
                part = part * np.array(self.scaling.deviation) + np.array(self.scaling.mean)
            yield part


def signs_of_leaks(
    graph: Graph,
    columns: Mapping[str, Sequence[Mapping[str, Any]]],
    scalings: Mapping[str, ColumnScaling],
) -> list[str]:
    """Return a line for each feature column that seems to show the future.

    A column of dates does that has a date after its row's time, or after the cut-off of a task's
    row of its vertex. A column of the task's vertices does whose correlation with the label, or
    with the last label of the vertex, is 1 or -1. Both take a pass over the features of types with
    dates, and up to 65,536 rows of the task.

    Not discovered: columns written after the time of their row that hold no dates, such as a
    final status; sums over later rows; copies of the label in other tables, or spread over several
    columns; dates up to 15 minutes after the time.

    Args:
        graph: graph with times.
        columns: by vertex type its columns, entries of ``meta.json``.
        scalings: by vertex type the scaling of its features.
    """
    if graph.times is None:
        return []
    types = [
        _Type(name, matrix, columns[name], scalings.get(name), graph.schema.vertices(number).start)
        for number, (name, matrix) in enumerate(
            zip(graph.vertex_types, graph.matrices, strict=True)
        )
        if matrix is not None and name in columns
    ]
    days = _DAYS.get(graph.times.unit)
    lines = []
    for of_type in types:
        if days is not None and graph.times.vertices is not None:
            lines += _newer_than_row(of_type, graph.times.vertices, days)
        if graph.rows is not None:
            lines += _of_task(of_type, graph.rows, days)
    return lines


def _newer_than_row(of_type: _Type, times: Int64Array, days: float) -> list[str]:
    """Return a line for each column of dates with dates newer than the rows' times."""
    dates = [(column, feature) for column, feature in of_type.parts() if "origin" in column]
    row_times = times[of_type.first : of_type.first + len(of_type.matrix.rows)]
    if not dates or not len(row_times) or row_times[0] == NO_TIME:  # a type is timed as a whole
        return []
    counts, first = [0] * len(dates), 0
    for part in of_type.rows(None):
        time = row_times[first : first + len(part)] * days
        first += len(part)
        for number, (column, feature) in enumerate(dates):
            newer = _are_newer(part, column, feature, time)
            counts[number] += int(np.count_nonzero(newer))
    return [
        _told_newer(of_type.name, column, count, first, "the time of the row")
        for (column, _), count in zip(dates, counts, strict=True)
        if count
    ]


def _of_task(of_type: _Type, rows: TaskRows, days: float | None) -> list[str]:
    """Return a line for each column of the vertices of a task that seems to show the future."""
    last = of_type.first + len(of_type.matrix.rows)
    chosen = np.flatnonzero((rows.vertices >= of_type.first) & (rows.vertices < last))
    limit = min(_MAX_ROWS, max(_MIN_ROWS, _MAX_BYTES // (8 * of_type.matrix.width)))
    chosen = chosen[:: max(1, -(-len(chosen) // limit))]
    if not len(chosen):
        return []
    vertices = rows.vertices[chosen] - of_type.first
    features = np.concatenate([*of_type.rows(vertices)])
    lines = (
        [] if days is None else _newer_than_cutoff(of_type, features, rows.cutoffs[chosen] * days)
    )
    values, filled = rows.labels[chosen], np.flatnonzero(has_label(rows.labels[chosen]))
    order = filled[np.lexsort((rows.cutoffs[chosen[filled]], vertices[filled]))]
    is_last = np.append(vertices[order][1:] != vertices[order][:-1], True)[: len(order)]
    for what, compared in (
        ("the label", filled),
        ("the last label of the vertex", order[is_last]),
    ):
        lines += [
            f"{of_type.name}: feature {_name(of_type, number)} and {what} have a correlation of "
            f"{_EQUAL} or more; if it was not known at the cut-off, leave it out"
            for number in _copies(features[compared], values[compared], rows.num_classes)
        ]
    return lines


def _newer_than_cutoff(of_type: _Type, features: Float64Array, cutoffs: Array) -> list[str]:
    """Return a line for each column of dates of a task's vertices that is newer than ``cutoffs``.

    ``features`` are those of the vertices of the task's rows, ``cutoffs`` in days.
    """
    counts = [
        (column, int(np.count_nonzero(_are_newer(features, column, feature, cutoffs))))
        for column, feature in of_type.parts()
        if "origin" in column
    ]
    what = "the cut-off of the task's row"
    return [
        _told_newer(of_type.name, column, count, len(cutoffs), what)
        for column, count in counts
        if count
    ]


def _are_newer(
    rows: Float64Array, column: Mapping[str, Any], feature: int, times: Array
) -> BoolArray:
    """Return which rows have a date of ``column`` after ``times``, in days since 1970-01-01."""
    newer: BoolArray = rows[:, feature] + column["origin"] > times + _TOLERANCE
    if column.get("has_gaps"):  # an empty cell has the mean
        newer &= rows[:, feature + 1] < 0.5
    return newer


def _told_newer(name: str, column: Mapping[str, Any], count: int, total: int, what: str) -> str:
    return (
        f"{name}: feature {brief(repr(column['name']))} is newer than {what} in {count:,} of "
        f"{total:,} rows ({count / total:.1%}); it shows the future, leave it out"
    )


def _copies(features: Float64Array, labels: Array, num_classes: int) -> list[int]:
    """Return the features with a correlation of 1 or -1 with labels; none for few rows."""
    if len(labels) < _MIN_ROWS:
        return []
    is_copy = np.zeros(features.shape[1], np.bool_)
    centered = features - features.mean(axis=0)
    norms = np.sqrt((centered**2).sum(axis=0))
    for target in _targets(labels, num_classes):
        _, counts = np.unique(target, return_counts=True)
        if len(labels) - counts.max() < _MIN_OTHERS:
            continue
        target = target - target.mean()
        scale = norms * np.sqrt((target**2).sum())
        is_copy |= np.abs(target @ centered) >= _EQUAL * np.where(scale > 0, scale, np.inf)
    numbers: list[int] = np.flatnonzero(is_copy).tolist()
    return numbers


def _targets(labels: Array, num_classes: int) -> Iterator[Float64Array]:
    """Yield labels as numbers; of several classes, whether a row is of each."""
    if labels.dtype.kind != "i" or num_classes <= 2 or num_classes > _MAX_CLASSES:
        yield labels.astype(np.float64)
        return
    for number in range(num_classes):
        yield (labels == number).astype(np.float64)


def _name(of_type: _Type, number: int) -> str:
    """Return the name of the column with feature ``number``, and the category."""
    column, first = next(
        (column, first) for column, first in of_type.parts() if number < first + column["width"]
    )
    name = brief(repr(column["name"]))
    if "categories" in column:
        return f"{name} = {brief(repr(column['categories'][number - first]))}"
    return (
        f"{name} is empty"
        if column.get("has_gaps") and number == first + column["width"] - 1
        else name
    )
