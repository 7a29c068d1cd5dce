"""Columns of features of a table, read batch by batch."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, shown
from gnnscale.data.tables.batch import Batch, first_null, floats, is_binary, refuse_nulls
from gnnscale.data.tables.categories import Column, find_categories, mixed_up, one_hot
from gnnscale.data.tables.label_columns import are_parts
from gnnscale.data.tables.table import Table
from gnnscale.graph import Graph
from gnnscale.graph.store_format import GRAPH_STORE, read_meta

_LOG = logging.getLogger(__name__)
#: Names of columns take at most so many bytes of meta.json.
_MAX_NAME_BYTES = 1 << 20
#: Fewer rows may well be counted by a feature.
_FEW_ROWS = 16
#: Words of CSV, and of Python, for numbers that are not finite.
_NOT_FINITE = ("inf", "infinity", "nan")


@dataclass(frozen=True, kw_only=True)
class _WithColumns:
    """The entries of ``meta.json`` that name the columns."""

    columns: tuple[Column, ...] | None = None
    edge_columns: tuple[Column, ...] | None = None


def read_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the columns of the table whose numbers are the features; None without a table.

    Raises:
        GraphError: ``meta.json`` holds something else.
    """
    return _read(graph, "columns", graph.num_features) if graph.origin.own_features else None


def read_edge_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the columns whose numbers are the features of edges; None without features.

    It raises as ``read_columns`` does.
    """
    width = graph.num_edge_features
    return _read(graph, "edge_columns", width) if width else None


def _read(graph: Graph, name: str, num_features: int) -> tuple[Column, ...] | None:
    if graph.path is None:
        return None
    record = GRAPH_STORE.record(_WithColumns, read_meta(graph.path).entries, graph.path)
    columns: tuple[Column, ...] | None = getattr(record, name)
    width = sum(each.width for each in columns or ())
    if columns is not None and width != num_features:
        problem = f"{name} have {width} features, the graph has {num_features}"
        raise GRAPH_STORE.refused(graph.path, problem)
    return columns


class FeatureColumns:
    """The features of a table: columns of numbers, of lists of numbers, and of categories in turn.

    If the user ``named`` them, a cell of CSV that is no number is an error later, which names it.
    ``options`` are the one that names them, and the one that makes numbers categories.

    Args:
        categories: those of ``columns`` that hold categories, with a feature for each; and whether
            the user says so. Of a column of others, all or no categories are numbers.

    Raises:
        GraphError: a column holds neither numbers nor lists of numbers; or too many categories.
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
        self._options = options
        self._categories = self._found_categories(categories or {}, named=named)
        kinds = [table.types[column] for column in columns]
        self._lists = [_is_list(kind) for kind in kinds]
        for column, kind in zip(columns, kinds, strict=True):
            if column in self._categories:
                continue
            if table.is_csv and is_binary(kind):
                raise GraphError(
                    f"{table.path}: column {shown(repr(column))} is not UTF-8; save the table as "
                    "UTF-8"
                )
            if not _holds_numbers(kind) and not (named and table.is_csv):
                raise GraphError(
                    f"{table.path}: column {shown(repr(column))} holds {shown(kind)}, features are "
                    f"numbers, lists of numbers or texts; name their columns by "
                    f"dataset.{options[0]}=[...], or leave it out"
                )
        numbers = [
            kind
            for column, kind in zip(columns, kinds, strict=True)
            if column not in self._categories
        ]
        values = [kind.value_type if _is_list(kind) else kind for kind in numbers]
        self.dtype = _stored(values)
        self._widths = self._measured()

    def _found_categories(
        self, asked: Mapping[str, bool], *, named: bool
    ) -> dict[str, tuple[str, ...]]:
        """Return the categories of the columns ``asked``.

        Raises:
            GraphError: as the class says.
        """
        columns, categories = self._options
        found = find_categories(self._table, list(asked), option=columns)
        for column, sure in asked.items():
            text = None if sure else mixed_up(found[column])
            if text is not None and named and self._table.is_csv:
                del found[column]  # the row is named when its number is read
            elif text is not None:
                raise GraphError(
                    f"{self._table.path}: column {shown(repr(column))} has both numbers and the "
                    f"text {shown(repr(text))}; if all are categories, set "
                    f"dataset.{categories}=[{shown(column)}]"
                )
        return found

    @property
    def num_features(self) -> int:
        """Length of a row."""
        return sum(self._widths)

    def described(self) -> list[dict[str, Any]]:
        """Return name and width of each column, for ``meta.json``.

        Raises:
            GraphError: the names take over 1 MiB.
        """
        pairs = zip(self._columns, self._widths, strict=True)
        columns = (
            Column(name=name, width=width, categories=self._categories.get(name))
            for name, width in pairs
        )
        # A column of numbers has no entry for them.
        found = [{k: v for k, v in asdict(each).items() if v is not None} for each in columns]
        if len(json.dumps(found)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{self._table.path}: the names of {len(found)} columns of features take over "
                f"{_MAX_NAME_BYTES} bytes; a column may hold a list of numbers"
            )
        return found

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type that each column of CSV is parsed as."""
        import pyarrow

        return {
            column: pyarrow.string() if column in self._categories else pyarrow.float32()
            for column in self._columns
        }

    def batches(self) -> Iterator[Batch]:
        """Yield the columns as they are."""
        return self._table.batches(self._columns, self.csv_types, 8 * self.num_features)

    def rows(self) -> Iterator[Float32Array]:
        """Yield ``[rows, num_features]`` float32, in order; raises as ``of_batch``.

        A warning names columns that the user has not named, and that number the rows.
        """
        starts = np.append(0, np.cumsum(self._widths)[:-1])
        numbers = _RowNumbers([] if self._named else starts[np.array(self._widths) == 1])
        for batch in self.batches():
            rows = self.of_batch(batch)
            numbers.look_at(rows)
            yield rows
        for feature in numbers.found:
            column = self._columns[int(np.searchsorted(starts, feature))]
            _LOG.warning(
                "%s: feature %s numbers the rows; if their order means nothing, leave it out by "
                "dataset.features=[...]",
                *(self._table.path, shown(repr(column))),
            )
        if not self._named:
            self._warn_of_texts(numbers.count)

    def _warn_of_texts(self, num_rows: int) -> None:
        """Warn of categories that are ids, or parts of a split."""
        for column, names in self._categories.items():
            place = self._table.path, shown(repr(column))
            if len(names) == num_rows >= _FEW_ROWS:
                _LOG.warning(
                    "%s: feature %s has another text in each row, as an id has; leave it out by "
                    "dataset.features=[...]",
                    *place,
                )
            elif are_parts(names):
                _LOG.warning(
                    "%s: feature %s holds words of a split; dataset.split_column reads it, and "
                    "dataset.features=[...] leaves it out",
                    *place,
                )

    def of_batch(self, batch: Batch) -> Float32Array:
        """Return ``[rows, num_features]`` float32 of a batch that has the columns.

        Raises:
            GraphError: a value is missing, or a list has another length; names the row.
        """
        rows = np.empty((len(batch), self.num_features), np.float32)
        first = 0
        for column, width, is_list in zip(self._columns, self._widths, self._lists, strict=True):
            place = slice(first, first + width)
            first += width
            if column in self._categories:
                rows[:, place] = one_hot(batch, column, self._categories[column])
                continue
            refuse_nulls(batch, column)
            if is_list:
                rows[:, place] = values = _list_values(batch, column, width)
            else:
                rows[:, place.start] = values = floats(batch, column, np.float32)
            self._refuse_infinite(batch, column, values)
        return rows

    def _refuse_infinite(self, batch: Batch, column: str, values: Array) -> None:
        """Raise GraphError if ``values``, ``[rows]`` or ``[rows, width]``, are not finite."""
        finite = np.isfinite(values)
        if finite.all():
            return
        index, *number = map(int, np.argwhere(~finite)[0])
        which = f"number {number[0] + 1} of {shown(column)}" if number else shown(column)
        cell = self._cell(batch, column, index)
        value = cell[number[0]] if number else cell
        infinite = str(value).strip().lower().lstrip("+-") in _NOT_FINITE
        reason = "features must be finite" if infinite else "float32 cannot hold it"
        raise GraphError(f"{batch.place(index)}: {which} is {shown(value)}, {reason}")

    def _cell(self, batch: Batch, column: str, index: int) -> Any:
        """Return a cell as the table has it: CSV has been parsed as float32."""
        import pyarrow

        if not self._table.is_csv:
            return batch.columns[column][index].as_py()
        row = batch.row + index
        for part in self._table.batches([column], {column: pyarrow.string()}, 64):
            if part.file == batch.file and part.row <= row < part.row + len(part):
                return part.columns[column][row - part.row].as_py()
        raise GraphError(f"{batch.file}: was changed while it was read")

    def _measured(self) -> list[int]:
        """Return how many features each column has: categories, or numbers of the first row.

        Raises:
            GraphError: a column has none; names it.
        """
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
            raise GraphError(f"{batch.place(0)}: {shown(column)} has no number, needed is one")
        return widths


class _RowNumbers:
    """Features that number the rows, among ``features``, numbers of columns.

    They are whole numbers of equal distance, or those from a first to a last one in any order.
    """

    def __init__(self, features: Sequence[int]) -> None:
        self._features = np.asarray(features, np.int64)
        self._firsts: Float32Array | None = None  # the first two rows of these features
        self._extremes: list[Array] = []  # least and greatest number of each, and its sum
        self._in_line: Array = np.ones(len(self._features), np.bool_)  # of equal distance so far
        self.count = 0  #: rows so far

    def look_at(self, rows: Float32Array) -> None:
        """Look at the next ``rows``, ``[n, num_features]``."""
        if self._firsts is None:
            self._begin(rows)
            self._firsts = rows[:2, self._features]
        self._keep((rows[:, self._features] == np.floor(rows[:, self._features])).all(axis=0))
        values = rows[:, self._features].astype(np.float64)
        first, distance = self._firsts[0], self._firsts[-1].astype(np.float64) - self._firsts[0]
        row_numbers = np.arange(self.count, self.count + len(rows))[:, None]
        self._in_line &= (values == (first + row_numbers * distance).astype(np.float32)).all(axis=0)
        found = [values.min(axis=0), values.max(axis=0), values.sum(axis=0)]
        if self._extremes:
            least, greatest, total = self._extremes
            found = [np.minimum(found[0], least), np.maximum(found[1], greatest), found[2] + total]
        self._extremes = found
        self.count += len(rows)

    def _begin(self, rows: Float32Array) -> None:
        """Leave out features that repeat within a few rows, which most do."""
        few = np.sort(rows[:64, self._features], axis=0)
        self._keep((few[1:] != few[:-1]).all(axis=0))

    def _keep(self, kept: Array) -> None:
        self._features, self._in_line = self._features[kept], self._in_line[kept]
        self._extremes = [each[kept] for each in self._extremes]
        if self._firsts is not None:
            self._firsts = self._firsts[:, kept]

    @property
    def found(self) -> list[int]:
        """Those features; nothing is said of a few rows."""
        if self.count < _FEW_ROWS:
            return []
        least, greatest, total = self._extremes
        full = (greatest - least == self.count - 1) & (total == (least + greatest) / 2 * self.count)
        found: list[int] = self._features[self._in_line | full].tolist()
        return found


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _holds_numbers(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if _is_list(kind) else kind
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    # CSV of which the first rows are empty: the row that is will be named.
    return bool(numeric or types.is_boolean(kind) or types.is_null(kind))


def _stored(kinds: Sequence[Any]) -> str:
    from pyarrow import types

    if kinds and all(types.is_float16(kind) for kind in kinds):
        return "float16"
    if all(types.is_uint8(kind) or types.is_boolean(kind) for kind in kinds):
        return "uint8"
    return "float32"


def _list_values(batch: Batch, column: str, width: int) -> Array:
    from pyarrow import compute

    array = batch.columns[column]
    lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        index = int((lengths != width).argmax())
        raise GraphError(
            f"{batch.place(index)}: {shown(column)} has {lengths[index]} numbers, the first row "
            f"has {width}"
        )
    flat = array.flatten()
    empty = first_null(flat)
    if empty is not None:
        raise GraphError(
            f"{batch.place(empty // width)}: number {empty % width + 1} of {shown(column)} is empty"
        )
    values = floats(Batch(batch.file, batch.row, {column: flat}), column, np.float32)
    return values.reshape(-1, width)
