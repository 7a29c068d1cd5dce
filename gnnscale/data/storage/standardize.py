"""Means in the empty cells of feature columns, standardization, and warnings on magnitudes."""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, IntArray, brief
from gnnscale.core.artifact.files import check_space
from gnnscale.graph import (
    GRAPH_STORE,
    MAX_FEATURES,
    FeatureMatrix,
    Graph,
    as_float32,
    read_meta,
)

_LOG = logging.getLogger(__name__)
#: Bytes of rows that are converted at a time.
_SLICE_BYTES = 16 << 20
#: First rows that are checked for columns of large magnitude.
SAMPLED_ROWS = 1 << 16
#: Ratio of the largest column to the median column from which a warning is logged.
_WIDE = 100
#: Magnitude from which squares and sums overflow float32.
_LARGE = 1e18
#: Typical magnitude of the hidden rows that edge features are added to or concatenated with.
MAGNITUDE_OF_LAYERS = 1.0


@dataclass(frozen=True, kw_only=True)
class ColumnScaling:
    """Scaling of feature columns: ``(x - mean) / deviation``."""

    mean: list[float]  #: ``[num_features]`` means
    deviation: list[float]  #: ``[num_features]`` standard deviations; 1 for a constant column

    def __post_init__(self) -> None:
        if not 1 <= len(self.mean) == len(self.deviation) <= MAX_FEATURES:
            raise ValueError(f"{len(self.mean)} means, {len(self.deviation)} deviations")
        if min(self.deviation) <= 0:
            raise ValueError(f"a deviation of {min(self.deviation)}")

    @classmethod
    def of(
        cls, rows: Array, train: IntArray | None, what: str = "training vertices"
    ) -> "ColumnScaling":
        """Return the scaling by mean and deviation over the rows ``train`` of ``rows``; None: all.

        GraphError, naming ``what``: there are no such rows.
        """
        count, width = len(rows) if train is None else len(train), rows.shape[1]
        if not count:
            raise GraphError(f"dataset.standardize=true: expected {what}, got none")
        sums = sum((part.sum(axis=0) for part in row_slices(rows, train)), np.zeros(width))
        mean = sums / count
        # Two passes: the difference of large sums would lose a small deviation.
        squares = sum(
            (((part - mean) ** 2).sum(axis=0) for part in row_slices(rows, train)), 0 * mean
        )
        deviation = np.sqrt(squares / count)
        # Rounding leaves a tiny deviation in a constant column.
        deviation[deviation <= 1e-7 * np.abs(mean)] = 0
        return cls(mean=mean.tolist(), deviation=np.where(deviation > 0, deviation, 1).tolist())

    def leaving(self, columns: Sequence[Mapping[str, Any]]) -> "ColumnScaling":
        """Return the scaling of numbers alone, without the 0/1 features of ``columns``.

        Those of categories and of empty cells stay 0 and 1: rare ones would become large.
        """
        mean, deviation = list(self.mean), list(self.deviation)
        for feature in _indicators(columns):
            mean[feature], deviation[feature] = 0.0, 1.0
        return ColumnScaling(mean=mean, deviation=deviation)

    def scaled(self, rows: Array, dtype: str = "float32") -> Iterator[Float32Array]:
        """Yield ``rows``, stored as ``dtype``, scaled: slices ``[n, num_features]`` float32."""
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        for part in row_slices(rows, None, dtype, len(mean)):
            with np.errstate(over="ignore"):  # infinity is refused when it is stored
                scaled = ((part - mean) / deviation).astype(np.float32)
            yield scaled


def row_slices(
    rows: Array, vertices: IntArray | None, dtype: str = "float32", width: int | None = None
) -> Iterator[Array]:
    """Yield the rows of ``vertices`` (None: all) in float64 slices ``[n, width]``.

    ``dtype`` is the stored type of ``rows``; ``width`` of None is their number of columns.
    """
    width = rows.shape[1] if width is None else width
    step = max(1, _SLICE_BYTES // (8 * width))
    for first in range(0, len(rows) if vertices is None else len(vertices), step):
        chosen = slice(first, first + step) if vertices is None else vertices[first : first + step]
        yield as_float32(rows[chosen], dtype, width).astype(np.float64)


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


def completed_rows(
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
    scaling = ColumnScaling.of(rows, train, what).leaving(columns)
    return scaling.scaled(rows), scaling


def _indicators(columns: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the features that are 0 or 1: those of categories, and those that mark empty cells."""
    for column, features in _parts(columns):
        num_numbers = 0 if "categories" in column else len(_numbers(column, features))
        yield from features[num_numbers:]


def _parts(columns: Sequence[Any]) -> Iterator[tuple[Any, range]]:
    """Yield each column with its features."""
    first = 0
    for column in columns:
        yield column, range(first, first + column["width"])
        first += column["width"]


def _numbers(column: Mapping[str, Any], part: range) -> range:
    """Return the features of a column without that which marks empty cells."""
    return part[:-1] if column.get("has_gaps") else part


class Spread:
    """Largest magnitude of each feature column in the first rows, to be compared with their median.

    ``reference`` are magnitudes that count in the median like further columns.
    """

    def __init__(self, reference: Sequence[float] = ()) -> None:
        self._reference = reference
        self._max: Float32Array | None = None  # ``[num_features]`` magnitudes
        self._rows_left = SAMPLED_ROWS

    def watch(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """Yield ``chunks`` of rows unchanged, and measure the first ``SAMPLED_ROWS`` rows."""
        for rows in chunks:
            if rows.ndim == 2:
                self.add(rows)
            yield rows

    def add(self, rows: Array) -> None:
        """Measure ``rows`` ``[n, num_features]`` until ``SAMPLED_ROWS`` rows are measured."""
        if self._rows_left > 0 and len(rows):
            with np.errstate(over="ignore"):  # infinity is refused later
                part = np.abs(rows[: self._rows_left].astype(np.float32)).max(axis=0)
            self._max = part if self._max is None else np.maximum(self._max, part)
            self._rows_left -= len(rows)

    @property
    def largest(self) -> float:
        """Largest magnitude of a value in the measured rows; 0 without rows."""
        return 0.0 if self._max is None or not len(self._max) else float(self._max.max())

    @property
    def widest(self) -> tuple[int, float, float] | None:
        """Index of the column of the largest magnitude, that magnitude, and the columns' median.

        None: the largest magnitude is below 100 times the median.
        """
        if self._max is None or not self._max.any():
            return None
        magnitudes = np.append(self._max[self._max > 0], self._reference)
        usual = float(np.sort(magnitudes)[(len(magnitudes) - 1) // 2])
        column, largest = int(self._max.argmax()), float(self._max.max())
        return (column, largest, usual) if largest >= _WIDE * usual else None


def warn_of_spread(
    spread: Spread, source: object, hint: str, names: Sequence[str] = (), *, of: str = ""
) -> None:
    """Warn if a feature column's magnitude is at least 100 times the columns' median.

    ``names`` are those of all features (empty: their numbers), ``of`` follows the name, and
    ``hint`` ends the message.
    """
    if spread.widest is not None:
        column, largest, usual = spread.widest
        name = f"{brief(repr(names[column])) if names else column}{of}"
        _LOG.warning(
            "%s: feature %s reaches %.3g, and most only %.3g; a model learns little of these. %s",
            *(source, name, largest, usual, hint),
        )


def warn_of_large(largest: float, source: object) -> None:
    """Warn if features up to magnitude ``largest`` may overflow float32 in sums and squares."""
    if largest > _LARGE:
        _LOG.warning(
            "%s: features reach %.3g; sums and squares of numbers above %.0e overflow float32, and "
            "the loss becomes NaN. Scale them, or replace the number that stands for unknown",
            *(source, largest, _LARGE),
        )


@dataclass(frozen=True, kw_only=True)
class _WithScaling:
    """Entries of ``meta.json`` with the scalings of vertex and edge features."""

    scaling: ColumnScaling | None = None
    edge_scaling: ColumnScaling | None = None
    type_scaling: dict[str, ColumnScaling] | None = None  #: of vertices by their type
    edge_type_scaling: dict[str, ColumnScaling] | None = None  #: of edges by their type


def read_scaling(graph: Graph) -> ColumnScaling | None:
    """Return the scaling by which a graph's store has its vertex features; None: not scaled."""
    return _read(graph, "scaling", graph.num_features) if graph.origin.has_stored_features else None


def read_edge_scaling(graph: Graph) -> ColumnScaling | None:
    """Return the scaling by which a graph's store has its edge features; None: not scaled."""
    width = graph.num_edge_features
    return _read(graph, "edge_scaling", width) if width else None


def read_type_scaling(graph: Graph, *, edges: bool = False) -> dict[str, ColumnScaling]:
    """Return the scalings of a graph's store by vertex type; a type that is not scaled has none.

    With ``edges`` they are those by edge type. GraphError: a scaling has another number of features
    than its type has.
    """
    widths = graph.feature_widths(edges=edges)
    if graph.path is None or widths is None:
        return {}
    record = GRAPH_STORE.record(_WithScaling, read_meta(graph.path).entries, graph.path)
    of_one = record.edge_scaling if edges else record.scaling
    scalings = (record.edge_type_scaling if edges else record.type_scaling) or {}
    if graph.schema.is_homogeneous and of_one is not None:  # the store has no types
        scalings = {next(iter(widths)): of_one}
    for name, scaling in scalings.items():
        if len(scaling.mean) != widths.get(name):
            name_of = f"{'edge_' if edges else ''}type_scaling of {brief(name)}"
            problem = f"{name_of} is of {len(scaling.mean)} features"
            raise GRAPH_STORE.refused(graph.path, problem)
    return scalings


def _read(graph: Graph, name: str, num_features: int) -> ColumnScaling | None:
    if graph.path is None:
        return None
    record = GRAPH_STORE.record(_WithScaling, read_meta(graph.path).entries, graph.path)
    scaling: ColumnScaling | None = getattr(record, name)
    if scaling is not None and len(scaling.mean) != num_features:
        raise GRAPH_STORE.refused(graph.path, f"{name} is of {len(scaling.mean)} features")
    return scaling


def scale_rows(
    matrix: FeatureMatrix, scaling: ColumnScaling, count: int | None = None
) -> FeatureMatrix:
    """Return feature rows scaled by ``scaling``, float32, mapped from a temporary file.

    ``count`` rows (None: all) are scaled; zeros follow, such as the row of edges that self-loops
    share.
    """
    folder, shape = Path(tempfile.gettempdir()), (len(matrix.rows), len(scaling.mean))
    check_space("scaled features", folder, disk=4 * shape[0] * shape[1])
    with tempfile.TemporaryFile() as file:  # the map keeps it
        copy = np.memmap(file, np.float32, "w+", shape=shape)
    first = 0
    for part in scaling.scaled(matrix.rows[:count], matrix.dtype):
        copy[first : first + len(part)] = part
        first += len(part)
    return FeatureMatrix(rows=copy, dtype="float32", width=shape[1])
