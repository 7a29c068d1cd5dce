"""Feature columns of a table, read in batches."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, brief, one_line, pyarrow
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, is_text, null_mask, plain
from gnnscale.data.tables.categories import Column, one_hot
from gnnscale.data.tables.label_columns import are_parts
from gnnscale.data.tables.survey import FEW_ROWS, Surveyed, csv_type
from gnnscale.data.tables.table import Table
from gnnscale.graph import GRAPH_STORE, Graph, read_meta

_LOG = logging.getLogger(__name__)
#: Bytes of column names in meta.json, at most.
_MAX_NAME_BYTES = 1 << 20
#: Columns in the log, at most.
_MAX_TOLD = 40


@dataclass(frozen=True, kw_only=True)
class _WithColumns:
    """Entries of ``meta.json``: feature columns of vertices and edges, and changes to the data.

    ``type_columns`` are the columns of vertices by their type, ``edge_type_columns`` of edges.
    """

    columns: tuple[Column, ...] | None = None
    edge_columns: tuple[Column, ...] | None = None
    type_columns: dict[str, tuple[Column, ...]] | None = None
    edge_type_columns: dict[str, tuple[Column, ...]] | None = None
    changes: tuple[str, ...] | None = None


def read_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the vertex feature columns in a graph's store; None: it is not from a table."""
    return _read(graph, "columns", graph.num_features) if graph.origin.has_stored_features else None


def read_edge_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the edge feature columns in a graph's store; None: there are none from a table."""
    width = graph.num_edge_features
    return _read(graph, "edge_columns", width) if width else None


def read_type_columns(graph: Graph, *, edges: bool = False) -> dict[str, tuple[Column, ...]]:
    """Return the feature columns in a graph's store by vertex type, of those that have a table.

    With ``edges`` they are those by edge type. The store of a graph without types has those of the
    only type that runs read it with. GraphError: the columns have another number of features than
    the type has.
    """
    widths = graph.feature_widths(edges=edges)
    if graph.path is None or widths is None:
        return {}
    record = GRAPH_STORE.record(_WithColumns, read_meta(graph.path).entries, graph.path)
    by_type = record.edge_type_columns if edges else record.type_columns
    of_one = record.edge_columns if edges else record.columns
    columns_by_type = by_type or {}
    if graph.schema.is_homogeneous and of_one is not None:
        columns_by_type = {next(iter(widths)): of_one}
    for name, columns in columns_by_type.items():
        width = sum(column.width for column in columns)
        if width != widths.get(name):
            name_of = f"{'edge_' if edges else ''}type_columns of {brief(name)}"
            problem = f"{name_of} have {width} features, the type has {widths.get(name, 'none')}"
            raise GRAPH_STORE.refused(graph.path, problem)
    return columns_by_type


def log_columns(store: Path) -> None:
    """Log the feature columns of a graph store, and warn of what was filled, added or left out."""
    record = GRAPH_STORE.record(_WithColumns, read_meta(store).entries, store)
    described = {"vertices": record.columns, "edges": record.edge_columns}
    for by_type in (record.type_columns, record.edge_type_columns):
        described |= {brief(name): columns for name, columns in (by_type or {}).items()}
    for what, columns in described.items():
        if columns:
            listed = "; ".join(column.describe() for column in columns[:_MAX_TOLD])
            more = len(columns) - _MAX_TOLD
            listed += f"; and {more} more columns" if more > 0 else ""
            _LOG.info("features of %s: %s", what, listed)
    for change in record.changes or ():
        _LOG.warning("%s", one_line(change, 1000))


def _read(graph: Graph, name: str, num_features: int) -> tuple[Column, ...] | None:
    if graph.path is None:
        return None
    record = GRAPH_STORE.record(_WithColumns, read_meta(graph.path).entries, graph.path)
    columns: tuple[Column, ...] | None = getattr(record, name)
    width = sum(column.width for column in columns or ())
    if columns is not None and width != num_features:
        problem = f"{name} have {width} features, the graph has {num_features}"
        raise GRAPH_STORE.refused(graph.path, problem)
    return columns


class FeatureColumns:
    """Feature columns of a table: numbers, lists of numbers, dates, and one-hot categories.

    Example: columns ``age`` of numbers with an empty cell, ``vector`` of lists of 3 numbers and
    ``color`` of 2 categories have ``num_features`` of 7. If the user has not ``named`` the columns,
    those that look like ids are warned of.
    """

    def __init__(self, table: Table, columns: Sequence[Surveyed], *, named: bool) -> None:
        self._table = table
        self.columns = columns
        self._named = named
        self.num_features = sum(column.width for column in columns)  #: length of a feature row
        self.dtype = _storage_dtype(columns)  #: stored type, one of ``FEATURE_DTYPES``
        #: Arrow type to parse each CSV column as, by column name
        self.csv_types = {
            column.name: csv_type(table.types[column.name], is_category=bool(column.categories))
            for column in columns
        }

    def described(self) -> list[dict[str, Any]]:
        """Return the columns for ``meta.json``, without their means; GraphError over 1 MiB."""
        # A column of numbers has no entry ``categories``.
        entries = [
            {k: v for k, v in asdict(surveyed.column).items() if v is not None and v is not False}
            for surveyed in self.columns
        ]
        if len(json.dumps(entries)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{self._table.path}: the names of {len(entries)} columns of features take over "
                f"{_MAX_NAME_BYTES} bytes; a column may hold a list of numbers"
            )
        return entries

    def batches(self) -> Iterator[Batch]:
        """Yield batches of the columns, not yet converted."""
        names = [column.name for column in self.columns]
        return self._table.batches(names, self.csv_types, 8 * self.num_features)

    def rows(self, num_empty: int = 0) -> Iterator[Float32Array]:
        """Yield the features of all rows in order, ``[rows, num_features]`` float32 per batch.

        ``num_empty`` rows without a value follow. At the end, warn of columns that look like row
        numbers or names of splits, unless the user has named the columns.
        """
        ends = np.cumsum([column.width for column in self.columns])
        numbers = {
            end - 1: column.name
            for end, column in zip(ends.tolist(), self.columns, strict=True)
            if column.width == 1 and column.encoding != "date"
        }
        row_numbers = _RowNumbers([] if self._named else [*numbers])
        for batch in self.batches():
            rows = self.of_batch(batch)
            row_numbers.add(rows)
            yield rows
        if num_empty:
            row = np.zeros(self.num_features, np.float32)
            row[ends[[column.has_gaps for column in self.columns]] - 1] = 1
            yield np.tile(row, (num_empty, 1))
        if self._named:
            return
        setting = self._table.setting("features", "[...]")
        for feature in row_numbers.features:
            _LOG.warning(
                "%s: feature %s numbers the rows; if their order means nothing, leave it out by %s",
                *(self._table.path, brief(repr(numbers[feature])), setting),
            )
        for column in self.columns:
            if are_parts(column.categories or ()):
                _LOG.warning(
                    "%s: feature %s holds words of a split; dataset.split_column reads it, and %s "
                    "leaves it out",
                    *(self._table.path, brief(repr(column.name)), setting),
                )

    def empty(self, batch: Batch) -> BoolArray:
        """Return which rows of a batch have an empty cell, of categories apart, ``[rows]``."""
        rows = np.zeros(len(batch), np.bool_)
        for column in self.columns:
            if column.categories is None:
                rows |= self._numbers(batch, column)[1]
        return rows

    def of_batch(self, batch: Batch) -> Float32Array:
        """Return the features ``[rows, num_features]`` float32 of a batch.

        An empty cell of numbers has zeros and, as its last feature, 1.
        """
        rows = np.zeros((len(batch), self.num_features), np.float32)
        first = 0
        for column in self.columns:
            part = rows[:, first : first + column.width]
            first += column.width
            if column.categories is not None:
                part[:] = one_hot(batch, column.name, column.categories)
                continue
            values, empty = self._numbers(batch, column)
            part[:, : column.length] = values
            if column.has_gaps:
                part[:, -1] = empty
            elif empty.any():
                raise GraphError(f"{batch.file}: was changed while it was read")
        return rows

    def _numbers(self, batch: Batch, column: Surveyed) -> tuple[Float32Array, BoolArray]:
        """Return the numbers of a column ``[rows, length]``, 0 in empty cells, and which are."""
        array = plain(batch.columns[column.name])
        if column.encoding == "list":
            is_empty = null_mask(array)
            filled = array.filter(pyarrow.array(~is_empty)).flatten()
            values = np.zeros((len(batch), column.length), np.float32)
            if len(filled) != np.count_nonzero(~is_empty) * column.length:
                raise GraphError(f"{batch.file}: was changed while it was read")
            flat = batch.floats(column.name, np.float32, filled)
            values[~is_empty] = flat.reshape(-1, column.length)
            return values, is_empty
        if is_text(array.type):
            array = cells.parsed(array, column.kind, self._table.decimal)[0]
        if column.encoding == "date":
            numbers = (cells.days(array) - column.origin).astype(np.float32)
        else:
            numbers = batch.floats(column.name, np.float32, array)
        is_empty = np.isnan(numbers)
        return np.where(is_empty, 0, numbers)[:, None], is_empty


class _RowNumbers:
    """Detector of columns that number the rows, among the columns ``features`` (indices).

    Such a column has as many integers of equal distance as there are rows, in any order.
    """

    def __init__(self, features: Sequence[int]) -> None:
        self._features = np.asarray(features, np.int64)
        self._extremes: Array | None = None  # minimum, maximum and sum of each feature
        self.count = 0  #: number of rows added

    def add(self, rows: Float32Array) -> None:
        """Examine the next rows of all features, ``[n, num_features]``."""
        values = rows[:, self._features].astype(np.float64)
        is_whole = (values == np.floor(values)).all(axis=0)
        extremes = np.stack([values.min(axis=0), values.max(axis=0), values.sum(axis=0)])
        if self._extremes is None:
            # Drop features that repeat within the first rows, as most do.
            few = np.sort(values[:64], axis=0)
            is_whole &= (few[1:] != few[:-1]).all(axis=0)
        else:
            least, greatest, total = self._extremes
            extremes[0] = np.minimum(least, extremes[0])
            extremes[1] = np.maximum(greatest, extremes[1])
            extremes[2] += total
        self._features, self._extremes = self._features[is_whole], extremes[:, is_whole]
        self.count += len(rows)

    @property
    def features(self) -> list[int]:
        """Indices of the feature columns that number the rows; empty for fewer than 16 rows."""
        if self.count < FEW_ROWS or self._extremes is None:
            return []
        least, greatest, total = self._extremes
        distance = (greatest - least) / (self.count - 1)
        is_even = (distance == np.floor(distance)) & (2 * total == (least + greatest) * self.count)
        features: list[int] = self._features[is_even].tolist()
        return features


def _storage_dtype(columns: Sequence[Surveyed]) -> str:
    kinds = [column.kind for column in columns if column.categories is None]
    if any(column.has_gaps or column.encoding == "date" for column in columns):
        return "float32"
    if kinds and all(pyarrow.types.is_float16(kind) for kind in kinds):
        return "float16"
    if all(pyarrow.types.is_uint8(kind) or pyarrow.types.is_boolean(kind) for kind in kinds):
        return "uint8"
    return "float32"
