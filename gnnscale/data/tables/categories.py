"""Columns of categories, one-hot encoded: one feature of 0 or 1 per category."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, ConfigError, Float32Array, GraphError, Int64Array, brief, pyarrow
from gnnscale.core.artifact.files import check_space
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, is_text, plain
from gnnscale.graph import MAX_FEATURES, MAX_QUANTIZED, FeatureMatrix, as_float32

#: Treatment of categories that training lacked, in prediction.
UNSEEN_POLICIES = ("refuse", "empty")
#: Categories of a column, at most; with more values it is free text.
MAX_CATEGORIES = 256
#: Bytes of rows that are remapped at a time.
_SLICE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of a table whose numbers or categories are features."""

    name: str
    #: number of features; 1 unless the column has lists, categories or gaps
    width: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    #: sorted categories, one per feature. None: the column has numbers.
    categories: tuple[str, ...] | None = None
    #: whether the last feature is 1 for an empty cell, whose numbers are then the means
    has_gaps: bool = False
    #: day of dates that counts as 0, in days since 1970-01-01. None: the column has no dates.
    origin: Annotated[int, Meta(ge=-(10**7), le=10**7)] | None = None
    #: means over the training rows, one per number. None: unknown, or the column has categories.
    mean: tuple[float, ...] | None = field(default=None, compare=False)

    @property
    def length(self) -> int:
        """Number of numbers of a cell."""
        return self.width - self.has_gaps

    @property
    def is_empty(self) -> bool:
        """Whether no cell has a value."""
        return self.has_gaps and self.mean is None

    @property
    def content(self) -> str:
        """``categories``, ``dates`` or ``numbers``."""
        if self.categories is not None:
            return "categories"
        return "numbers" if self.origin is None else "dates"

    def describe(self) -> str:
        """Return the name and the encoding, for the log."""
        name = brief(self.name)
        if self.categories is not None:
            return f"{name}: {len(self.categories)} categories"
        what = "number" if self.length == 1 else f"{self.length} numbers"
        if self.origin is not None:
            what = f"days since {np.datetime64(self.origin, 'D')}"
        if self.length == 1 and self.mean is not None:
            what += f", mean {self.mean[0]:,.6g}"
        return f"{name}: {what}{', and whether it is empty' if self.has_gaps else ''}"

    def __post_init__(self) -> None:
        if self.length < 1 or (self.mean is not None and len(self.mean) != self.length):
            raise ValueError(f"{self.width} features with gaps {self.has_gaps}, mean {self.mean}")
        names = self.categories
        if names is not None and (
            self.has_gaps or len(names) != self.width or list(names) != sorted(set(names))
        ):
            raise ValueError(f"{len(names)} categories of {self.width} features, sorted or not")


@dataclass(frozen=True, kw_only=True)
class TrainedColumns:
    """Columns of the features that a run was trained on; None: they have no names."""

    vertices: Sequence[Column] | None = None  #: of a graph without types
    edges: Sequence[Column] | None = None
    types: Mapping[str, Sequence[Column]] = field(default_factory=dict)  #: by vertex type
    edge_types: Mapping[str, Sequence[Column]] = field(default_factory=dict)  #: by edge type


def one_hot(batch: Batch, column: str, categories: Sequence[str]) -> Float32Array:
    """Return a column's one-hot rows ``[rows, len(categories)]`` float32; zeros for an empty cell.

    GraphError: a value is not among ``categories``.
    """
    texts, count = as_texts(batch, column), len(categories)
    number = {name: index for index, name in enumerate(categories)}
    codes = cells.coded(texts, lambda text: number.get(text, count + 1), count)
    if (codes > count).any():
        index = int((codes > count).argmax())
        raise GraphError(
            f"{batch.locate(index)}: {brief(column)}: expected a category of the first pass over "
            f"the file, got {brief(repr(texts[index].as_py()))}"
        )
    rows = np.zeros((len(batch), count + 1), np.float32)
    rows[np.arange(len(batch)), codes] = 1
    return rows[:, :-1]


def as_texts(batch: Batch, column: str) -> Any:
    """Return a column of texts, integers or booleans as large_string."""
    array, types = plain(batch.columns[column]), pyarrow.types
    tests = (is_text, types.is_integer, types.is_boolean, types.is_null)
    if not any(test(array.type) for test in tests):
        raise GraphError(
            f"{batch.name(column)}: expected texts or integers as categories, got "
            f"{brief(array.type)}"
        )
    return array.cast(pyarrow.large_string())


@dataclass(frozen=True)
class Arrangement:
    """Change of a graph's feature rows to those that a run was trained on."""

    #: ``[n]`` index among the graph's features of each feature of the run; -1: zeros
    index: Int64Array
    shift: Float32Array  #: ``[n]`` number to add to each feature
    #: features of the run to fill, the graph's feature that marks empty cells, and the value
    fills: tuple[tuple[int, int, float], ...] = ()

    @property
    def only_moves(self) -> bool:
        """Whether features keep their values."""
        return not (self.shift.any() or self.fills)

    @property
    def changes(self) -> bool:
        """Whether any feature moves or changes."""
        moves = not np.array_equal(self.index, np.arange(len(self.index)))
        return moves or not self.only_moves


def arrangement(
    graph: str, columns: Sequence[Column], expected_columns: Sequence[Column], *, unseen: str
) -> Arrangement | None:
    """Return how features of ``graph`` become those of the trained run. None: they are equal.

    ``columns`` are the graph's, ``expected_columns`` the run's, with the same names. A category of
    the graph that was not in training is a ConfigError, or zeros if ``unseen`` is ``empty``. An
    empty cell gets the mean of training.
    """
    index: list[int] = []
    shift: list[float] = []
    fills: list[tuple[int, int, float]] = []
    first = 0
    for column, expected in zip(columns, expected_columns, strict=True):
        marks = first + column.width - 1 if column.has_gaps else -1
        if expected.categories is not None:
            index += _category_index(graph, column, expected, first, unseen)
        else:
            if column.has_gaps:
                means = expected.mean or (0.0,) * expected.length
                fills += [(len(index) + i, marks, mean) for i, mean in enumerate(means)]
            numbers = range(first, first + expected.length)
            index += [first] * expected.length if column.is_empty else numbers
            if expected.has_gaps:
                index.append(marks)
        days = (column.origin or 0) - (expected.origin or 0) if expected.origin is not None else 0
        shift += [float(days)] * expected.length + [0.0] * expected.has_gaps
        first += column.width
    change = Arrangement(np.array(index, np.int64), np.array(shift, np.float32), tuple(fills))
    return change if change.changes or first != len(index) else None


def check_kinds(graph: str, column: Column, expected: Column, hint: str = "") -> None:
    """Raise ConfigError unless a column has numbers, dates or categories as the run's ``expected``.

    A column without a value passes. ``hint`` is the setting that makes the column categories.
    """
    got, content = column.content, expected.content
    if column.is_empty or got == content:
        return
    if column.categories:
        got = f"categories such as {brief(repr(column.categories[0]))}"
    raise ConfigError(
        f"dataset: column {brief(repr(expected.name))} of {graph}: expected {content} as in "
        f"training, got {got}"
        + (f"; set {hint}" if expected.categories and not column.categories else "")
    )


def _category_index(
    graph: str, column: Column, expected: Column, first: int, unseen: str
) -> list[int]:
    """Return the graph's feature of each category of the run's column ``expected``, or -1."""
    assert expected.categories is not None
    names = column.categories or ()
    unknown = sorted(set(names) - set(expected.categories))
    if unknown and unseen == "refuse":
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ConfigError(
            f"dataset: column {brief(repr(expected.name))} of {graph}: expected the categories of "
            f"training, got {brief(repr(unknown[0]))}{more}; gnnscale predict reads them as empty "
            "cells with unseen=empty"
        )
    number: Mapping[str, int] = {name: index for index, name in enumerate(names)}
    return [first + number[name] if name in number else -1 for name in expected.categories]


def unseen_categories(
    columns: Sequence[Column], expected_columns: Sequence[Column]
) -> Iterator[tuple[str, list[str], list[int]]]:
    """Yield each column with categories that training lacked: its name, they, their features."""
    first = 0
    for column, expected in zip(columns, expected_columns, strict=True):
        unknown = sorted(set(column.categories or ()) - set(expected.categories or ()))
        if unknown and column.categories is not None:
            yield (
                expected.name,
                unknown,
                [first + column.categories.index(name) for name in unknown],
            )
        first += column.width


def count_cells(rows: Array, features: Sequence[int], dtype: str, width: int) -> int:
    """Return how many of the ``rows`` stored as ``dtype`` have a value in one of ``features``."""
    step = max(1, _SLICE_BYTES // (4 * width))
    parts = (as_float32(rows[at : at + step], dtype, width) for at in range(0, len(rows), step))
    return sum(int(np.count_nonzero(part[:, features])) for part in parts)


def arrange_rows(
    matrix: FeatureMatrix, target: Arrangement, count: int | None = None
) -> FeatureMatrix:
    """Return feature rows as ``target``, in a temporary file: ``count`` rows, then rows of zeros.

    They become float32 if numbers change, or they are int8 or int4. ``count`` of None: all rows.
    """
    dtype, width = matrix.dtype, matrix.width
    count = len(matrix.rows) if count is None else count
    if target.only_moves and dtype not in MAX_QUANTIZED:
        rows = _arranged(matrix.rows, target, count)
    else:
        rows = _arranged(matrix.rows, target, count, lambda part: as_float32(part, dtype, width))
        dtype = "float32"
    return FeatureMatrix(rows=rows, dtype=dtype, width=len(target.index))


def _arranged(
    features: Array,
    target: Arrangement,
    count: int,
    read: Callable[[Array], Array] = np.asarray,
) -> Array:
    """Return ``features`` as ``target``: ``count`` rows, then zeros, mapped from a temporary file.

    ``read`` decodes stored rows.
    """
    shape, dtype = (len(features), len(target.index)), read(features[:0]).dtype
    num_bytes = shape[0] * shape[1] * dtype.itemsize
    check_space("features by column", Path(tempfile.gettempdir()), disk=num_bytes)
    with tempfile.TemporaryFile() as file:  # the map keeps it
        rows = np.memmap(file, dtype, "w+", shape=shape)
    copied = np.flatnonzero(target.index >= 0)
    step = max(1, _SLICE_BYTES // (dtype.itemsize * max(shape[1], features.shape[1])))
    for first in range(0, count, step):
        part = read(features[first : min(first + step, count)])
        arranged = rows[first : first + len(part)]
        arranged[:, copied] = part[:, target.index[copied]]
        if not target.only_moves:
            arranged += target.shift
        for feature, marks, value in target.fills:
            arranged[part[:, marks] == 1, feature] = value
    return rows
