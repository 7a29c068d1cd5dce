"""Means of the number columns of a table, which fill its empty cells."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, IntArray
from gnnscale.data.storage.standardize import ColumnScaling, row_slices


def has_gaps(columns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any of ``columns``, entries of ``meta.json``, marks empty cells."""
    return any(column.get("has_gaps") for column in columns)


def set_means(
    columns: Sequence[dict[str, Any]], rows: Array, train: IntArray | None, dtype: str = "float32"
) -> None:
    """Set the entry ``mean`` of the number columns, over the rows ``train`` (None: all).

    Args:
        columns: entries of ``meta.json`` of all features, in order. A column without a value in
            ``train`` gets the mean over all rows, and one without any value no mean.
        rows: ``[n, num_features]`` feature rows, stored as ``dtype``.
    """
    numbers = [(column, part) for column, part in _parts(columns) if "categories" not in column]
    width = sum(column["width"] for column in columns)
    for chosen in (train, None):
        numbers = [(column, part) for column, part in numbers if "mean" not in column]
        sums = [np.zeros(len(_numbers(column, part))) for column, part in numbers]
        counts = [0] * len(numbers)
        for rows_of in row_slices(rows, chosen, dtype, width) if numbers else ():
            for number, (column, part) in enumerate(numbers):
                values = rows_of[:, _numbers(column, part)]
                counts[number] += len(values)
                if column.get("has_gaps"):
                    counts[number] -= int(np.count_nonzero(rows_of[:, part[-1]]))
                sums[number] += values.sum(axis=0)  # empty cells have 0
        for (column, _), total, count in zip(numbers, sums, counts, strict=True):
            if count:
                column["mean"] = (total / count).tolist()


def filled(columns: Sequence[Mapping[str, Any]], rows: Array) -> Iterator[Float32Array]:
    """Yield float32 ``rows`` with the means in their empty cells: slices ``[n, num_features]``."""
    for part in row_slices(rows, None):
        for column, features in _parts(columns):
            if column.get("has_gaps"):
                empty = np.flatnonzero(part[:, features[-1]])
                numbers = _numbers(column, features)
                part[empty, numbers.start : numbers.stop] = column.get("mean", 0)
        yield part.astype(np.float32)


def completed(
    rows: Array,
    columns: Sequence[dict[str, Any]],
    train: IntArray | None,
    *,
    standardizes: bool,
    what: str = "training vertices",
) -> tuple[Iterator[Array], ColumnScaling | None]:
    """Return slices of mapped float32 ``rows``, completed by the rows ``train`` (None: all).

    Their file gets the means in its empty cells. If ``standardizes``, slices are scaled, and the
    scaling is returned too; errors name ``what`` trains.
    """
    set_means(columns, rows, train)
    if has_gaps(columns) and len(rows):
        assert isinstance(rows, np.memmap)
        cells, first = np.memmap(str(rows.filename), rows.dtype, "r+", rows.offset, rows.shape), 0
        for part in filled(columns, rows):
            cells[first : first + len(part)] = part
            first += len(part)
        cells.flush()
    if not standardizes:
        return row_slices(rows, None), None
    scaling = ColumnScaling.of(rows, train, what)
    return scaling.scaled(rows), scaling


def _parts(columns: Sequence[Any]) -> Iterator[tuple[Any, range]]:
    """Yield each column with its features."""
    first = 0
    for column in columns:
        yield column, range(first, first + column["width"])
        first += column["width"]


def _numbers(column: Mapping[str, Any], part: range) -> range:
    """Return the features of a column without that which marks empty cells."""
    return part[:-1] if column.get("has_gaps") else part
