"""Feature columns of a table, read in batches."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, brief, pyarrow
from gnnscale.data.tables.batch import Batch, first_null, floats, is_binary, is_number, refuse_nulls
from gnnscale.data.tables.categories import Column, find_categories, mixed_up, one_hot
from gnnscale.data.tables.label_columns import are_parts
from gnnscale.data.tables.table import Table
from gnnscale.graph import GRAPH_STORE, Graph, read_meta

_LOG = logging.getLogger(__name__)
#: Bytes of column names in meta.json, at most.
_MAX_NAME_BYTES = 1 << 20
#: Rows from which a feature that numbers the rows is reported.
_FEW_ROWS = 16
#: Words for numbers that are not finite, of CSV and of Python.
_NOT_FINITE = ("inf", "infinity", "nan")


@dataclass(frozen=True, kw_only=True)
class _WithColumns:
    """Entries of ``meta.json`` with the feature columns of vertices and edges."""

    columns: tuple[Column, ...] | None = None
    edge_columns: tuple[Column, ...] | None = None


def read_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the vertex feature columns in a graph's store; None: it is not from a table."""
    return _read(graph, "columns", graph.num_features) if graph.origin.has_stored_features else None


def read_edge_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the edge feature columns in a graph's store; None: there are none from a table."""
    width = graph.num_edge_features
    return _read(graph, "edge_columns", width) if width else None


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
    """Feature columns of a table: numbers, lists of numbers, and one-hot categories.

    Example: columns ``age`` of numbers, ``vector`` of lists of 3 numbers and ``color`` of 2
    categories have ``num_features`` of 6. ``categories`` are the category columns, True if the user
    declares them; in others, a mix of numbers and texts is refused. If the user ``named`` the
    columns, such a column of CSV is read as numbers, and its first text is an error that names the
    row. ``options`` name the options that select columns and categories, for errors.
    """

    def __init__(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        named: bool,
        categories: Mapping[str, bool] | None = None,
        options: tuple[str, str] = ("features", "categories"),
    ) -> None:
        self._table = table
        self._columns = columns
        self._named = named
        self._categories = _find_categories(table, categories or {}, named=named, options=options)
        numbers = [column for column in columns if column not in self._categories]
        for column in numbers:
            _check_numbers(table, column, named=named, option=options[0])
        kinds = [table.types[column] for column in numbers]
        self._lists = [_is_list(table.types[column]) for column in columns]
        self.dtype = _storage_dtype([kind.value_type if _is_list(kind) else kind for kind in kinds])
        self._widths = self._measure_widths()

    @property
    def num_features(self) -> int:
        """Length of a feature row."""
        return sum(self._widths)

    def described(self) -> list[dict[str, Any]]:
        """Return name, width, categories of columns for ``meta.json``; GraphError over 1 MiB."""
        pairs = zip(self._columns, self._widths, strict=True)
        columns = (
            Column(name=name, width=width, categories=self._categories.get(name))
            for name, width in pairs
        )
        # A column of numbers has no entry ``categories``.
        entries = [{k: v for k, v in asdict(column).items() if v is not None} for column in columns]
        if len(json.dumps(entries)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{self._table.path}: the names of {len(entries)} columns of features take over "
                f"{_MAX_NAME_BYTES} bytes; a column may hold a list of numbers"
            )
        return entries

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type to parse each CSV column as, by column name."""
        booleans = {c for c in self._columns if pyarrow.types.is_boolean(self._table.types[c])}
        types = {c: pyarrow.bool_() if c in booleans else pyarrow.float32() for c in self._columns}
        return types | dict.fromkeys(self._categories, pyarrow.string())

    def batches(self) -> Iterator[Batch]:
        """Yield batches of the columns, not yet converted."""
        return self._table.batches(self._columns, self.csv_types, 8 * self.num_features)

    def rows(self) -> Iterator[Float32Array]:
        """Yield the features of all rows in order, ``[rows, num_features]`` float32 per batch.

        At the end, warn of columns that look like row numbers, ids or names of splits, unless the
        user has named the columns.
        """
        starts = np.append(0, np.cumsum(self._widths)[:-1])
        numbers = _RowNumbers([] if self._named else starts[np.array(self._widths) == 1])
        for batch in self.batches():
            rows = self.of_batch(batch)
            numbers.add(rows)
            yield rows
        for feature in numbers.features:
            column = self._columns[int(np.searchsorted(starts, feature))]
            _LOG.warning(
                "%s: feature %s numbers the rows; if their order means nothing, leave it out by "
                "dataset.features=[...]",
                *(self._table.path, brief(repr(column))),
            )
        if not self._named:
            self._warn_of_texts(numbers.count)

    def _warn_of_texts(self, num_rows: int) -> None:
        """Warn about category columns with another text in each row, or with parts of a split."""
        for column, names in self._categories.items():
            source = self._table.path, brief(repr(column))
            if len(names) == num_rows >= _FEW_ROWS:
                _LOG.warning(
                    "%s: feature %s has another text in each row, as an id has; leave it out by "
                    "dataset.features=[...]",
                    *source,
                )
            elif are_parts(names):
                _LOG.warning(
                    "%s: feature %s holds words of a split; dataset.split_column reads it, and "
                    "dataset.features=[...] leaves it out",
                    *source,
                )

    def of_batch(self, batch: Batch) -> Float32Array:
        """Return the features ``[rows, num_features]`` float32 of a batch; errors name the row."""
        rows = np.empty((len(batch), self.num_features), np.float32)
        first = 0
        for column, width, is_list in zip(self._columns, self._widths, self._lists, strict=True):
            part = slice(first, first + width)
            first += width
            if column in self._categories:
                rows[:, part] = one_hot(batch, column, self._categories[column])
                continue
            refuse_nulls(batch, column)
            if is_list:
                rows[:, part] = values = _list_values(batch, column, width)
            else:
                rows[:, part.start] = values = floats(batch, column, np.float32)
            self._refuse_infinite(batch, column, values)
        return rows

    def _refuse_infinite(self, batch: Batch, column: str, values: Array) -> None:
        """Raise GraphError if a value of a column, one or a list per row, is not finite."""
        finite = np.isfinite(values)
        if finite.all():
            return
        index, *number = map(int, np.argwhere(~finite)[0])
        which = f"number {number[0] + 1} of {brief(column)}" if number else brief(column)
        cell = self._cell(batch, column, index)
        value = cell[number[0]] if number else cell
        infinite = str(value).strip().lower().lstrip("+-") in _NOT_FINITE
        reason = "features must be finite" if infinite else "float32 cannot hold it"
        raise GraphError(f"{batch.locate(index)}: {which} is {brief(value)}, {reason}")

    def _cell(self, batch: Batch, column: str, index: int) -> Any:
        """Return a cell as the file has it, for an error; a CSV file is read again for its text."""
        if not self._table.is_csv:
            return batch.columns[column][index].as_py()
        row = batch.row + index
        for part in self._table.batches([column], {column: pyarrow.string()}, 64):
            if part.file == batch.file and part.row <= row < part.row + len(part):
                return part.columns[column][row - part.row].as_py()
        raise GraphError(f"{batch.file}: was changed while it was read")

    def _measure_widths(self) -> list[int]:
        """Return each column's number of features: of categories, of the first list, or 1."""
        sizes = {column: len(names) for column, names in self._categories.items()}
        if not any(self._lists):
            return [sizes.get(column, 1) for column in self._columns]
        batch = next(self._table.batches(self._columns, {}, 1 << 20))
        for column in self._columns:
            if column not in sizes:
                refuse_nulls(batch, column)
        widths = [
            len(batch.columns[column][0]) if is_list else sizes.get(column, 1)
            for column, is_list in zip(self._columns, self._lists, strict=True)
        ]
        if 0 in widths:
            column = self._columns[widths.index(0)]
            raise GraphError(f"{batch.locate(0)}: {brief(column)}: expected a number, got none")
        return widths


def _find_categories(
    table: Table, chosen: Mapping[str, bool], *, named: bool, options: tuple[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the categories of each category column, by name.

    ``chosen`` is True for columns that the user declares. In others a mix of numbers and texts is a
    GraphError; a CSV column that the user ``named`` is then left out, as one of numbers.
    """
    categories = find_categories(table, list(chosen), option=options[0])
    for column, is_sure in chosen.items():
        text = None if is_sure else mixed_up(categories[column])
        if text is not None and named and table.is_csv:
            del categories[column]  # reading the text as a number raises an error with the row
        elif text is not None:
            raise GraphError(
                f"{table.path}: column {brief(repr(column))}: expected numbers or texts, got "
                f"numbers and the text {brief(repr(text))}; if all are categories, set "
                f"dataset.{options[1]}=[{brief(column)}]"
            )
    return categories


def _check_numbers(table: Table, column: str, *, named: bool, option: str) -> None:
    """Raise GraphError unless a column has numbers or lists of numbers.

    CSV that the user ``named`` passes: a text in it is an error later.
    """
    kind = table.types[column]
    if table.is_csv and is_binary(kind):
        raise GraphError(
            f"{table.path}: column {brief(repr(column))}: expected UTF-8; save the table as UTF-8"
        )
    # Null: the first rows of CSV are empty; a later text is an error that names the row.
    holds_numbers = is_number(kind.value_type if _is_list(kind) else kind)
    if not holds_numbers and not (named and table.is_csv):
        raise GraphError(
            f"{table.path}: column {brief(repr(column))}: expected numbers, lists of numbers or "
            f"texts, got {brief(kind)}; name the feature columns by dataset.{option}=[...]"
        )


class _RowNumbers:
    """Detector of feature columns that number the rows, among the columns ``features`` (indices).

    Such a column has integers of equal distance, or a range of integers in any order.
    """

    def __init__(self, features: Sequence[int]) -> None:
        self._features = np.asarray(features, np.int64)
        self._firsts: Float32Array | None = None  # first two rows of the features
        self._extremes: list[Array] = []  # minimum, maximum and sum of each feature
        #: whether distances are equal so far
        self._in_line: Array = np.ones(len(self._features), np.bool_)
        self.count = 0  #: number of rows added

    def add(self, rows: Float32Array) -> None:
        """Examine the next rows of all features, ``[n, num_features]``."""
        if self._firsts is None:
            # Drop features that repeat within the first rows, as most do.
            few = np.sort(rows[:64, self._features], axis=0)
            self._keep((few[1:] != few[:-1]).all(axis=0))
            self._firsts = rows[:2, self._features]
        self._keep((rows[:, self._features] == np.floor(rows[:, self._features])).all(axis=0))
        values = rows[:, self._features].astype(np.float64)
        first, distance = self._firsts[0], self._firsts[-1].astype(np.float64) - self._firsts[0]
        row_numbers = np.arange(self.count, self.count + len(rows))[:, None]
        self._in_line &= (values == (first + row_numbers * distance).astype(np.float32)).all(axis=0)
        extremes = [values.min(axis=0), values.max(axis=0), values.sum(axis=0)]
        if self._extremes:
            least, greatest, total = self._extremes
            low, high, part_total = extremes
            extremes = [np.minimum(low, least), np.maximum(high, greatest), part_total + total]
        self._extremes = extremes
        self.count += len(rows)

    def _keep(self, selected: Array) -> None:
        self._features, self._in_line = self._features[selected], self._in_line[selected]
        self._extremes = [values[selected] for values in self._extremes]
        if self._firsts is not None:
            self._firsts = self._firsts[:, selected]

    @property
    def features(self) -> list[int]:
        """Indices of the feature columns that number the rows; empty for fewer than 16 rows."""
        if self.count < _FEW_ROWS:
            return []
        least, greatest, total = self._extremes
        full = (greatest - least == self.count - 1) & (total == (least + greatest) / 2 * self.count)
        features: list[int] = self._features[self._in_line | full].tolist()
        return features


def _is_list(kind: Any) -> bool:
    return bool(
        pyarrow.types.is_list(kind)
        or pyarrow.types.is_large_list(kind)
        or pyarrow.types.is_fixed_size_list(kind)
    )


def _storage_dtype(kinds: Sequence[Any]) -> str:
    if kinds and all(pyarrow.types.is_float16(kind) for kind in kinds):
        return "float16"
    if all(pyarrow.types.is_uint8(kind) or pyarrow.types.is_boolean(kind) for kind in kinds):
        return "uint8"
    return "float32"


def _list_values(batch: Batch, column: str, width: int) -> Array:
    array = batch.columns[column]
    lengths = pyarrow.compute.list_value_length(array).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        index = int((lengths != width).argmax())
        raise GraphError(
            f"{batch.locate(index)}: {brief(column)}: expected {width} numbers as in the first "
            f"row, got {lengths[index]}"
        )
    flat = array.flatten()
    empty = first_null(flat)
    if empty is not None:
        raise GraphError(
            f"{batch.locate(empty // width)}: number {empty % width + 1} of {brief(column)}: "
            "expected a number, got an empty cell"
        )
    values = floats(Batch(batch.file, batch.row, {column: flat}), column, np.float32)
    return values.reshape(-1, width)
