"""Columns of features, labels and the split of a table, read batch by batch."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from gnnscale.artifact.graph_store import (
    GRAPH_STORE,
    MAX_CLASSES,
    has_label,
    read_meta,
)
from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, UInt8Array, shown
from gnnscale.dataset.tables.batch import Batch, first_null, floats, is_text, plain, refuse_nulls
from gnnscale.dataset.tables.categories import Column, find_categories, mixed_up, one_hot
from gnnscale.dataset.tables.table import Table
from gnnscale.graph import Graph

_LOG = logging.getLogger(__name__)


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
    ``option`` is the one that names them.

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
        option: str = "features",
    ) -> None:
        self._table = table
        self._columns = columns
        self._categories = self._found_categories(categories or {}, named=named)
        kinds = [table.types[column] for column in columns]
        texts = option == "features"
        allowed = f"numbers{', lists of numbers or texts' if texts else ' or lists of numbers'}"
        self._lists = [_is_list(kind) for kind in kinds]
        for column, kind in zip(columns, kinds, strict=True):
            if column in self._categories:
                continue
            if not _holds_numbers(kind) and not (named and table.is_csv):
                raise GraphError(
                    f"{table.path}: column {shown(repr(column))} holds {shown(kind)}, features are "
                    f"{allowed}; name their columns by dataset.{option}=[...], or leave it out"
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
        found = find_categories(self._table, list(asked))
        for column, sure in asked.items():
            text = None if sure else mixed_up(found[column])
            if text is not None and named and self._table.is_csv:
                del found[column]  # the row is named when its number is read
            elif text is not None:
                raise GraphError(
                    f"{self._table.path}: column {shown(repr(column))} has both numbers and the "
                    f"text {shown(repr(text))}; if all are categories, set "
                    f"dataset.categories=[{shown(column)}]"
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
        """Yield ``[rows, num_features]`` float32, in order; raises as ``of_batch``."""
        for batch in self.batches():
            yield self.of_batch(batch)

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
                rows[:, place] = _list_values(batch, column, width)
            else:
                rows[:, place.start] = floats(batch, column, np.float32)
        return rows

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
    return floats(Batch(batch.file, batch.row, {column: flat}), column, np.float32).reshape(
        -1, width
    )


#: Classes, values to regress on, or what the column holds.
LABEL_KINDS = ("auto", "classes", "values")
#: More texts than that are no classes; meta.json has their names.
MAX_CLASS_NAMES = 1 << 16
_MAX_NAME_BYTES = 1 << 20
#: Words of the split and the part that each means; null and nothing mean none.
_WORDS = {"": 0} | dict.fromkeys(("train", "training"), 1) | {"test": 3, "testing": 3}
_WORDS |= dict.fromkeys(("valid", "val", "validation", "dev", "development"), 2)
#: What becomes of vertices that are to train or validate, and have no label.
UNLABELLED = ("refuse", "drop")


class Places(Protocol):
    """Places of the rows of a table."""

    def place(self, index: int, /) -> str:
        """Return the name of row ``index`` in errors."""
        ...


def csv_label_type(guessed: Any) -> Any:
    """Return the Arrow type that labels of CSV are parsed as: numbers of any kind, or texts."""
    from pyarrow import float64, string, types

    numeric = types.is_integer(guessed) or types.is_floating(guessed) or types.is_null(guessed)
    return float64() if numeric else string()


class LabelColumn:
    """Gathers the labels of all vertices, or edges; ``kind`` is one of ``LABEL_KINDS``.

    ``option`` is the one that sets the kind.
    """

    def __init__(self, column: str, kind: str, option: str = "label_kind") -> None:
        self.name = column
        self._option = option
        self._column = column
        self._kind = kind
        self._parts: list[Array] = []
        self._codes: dict[str, int] | None = None  # number of each text, in order of appearance
        self._name_bytes = 0

    def add(self, batch: Batch) -> None:
        """Take the labels of a batch; null is unknown.

        Raises:
            GraphError: they are neither numbers nor texts; or there are too many texts.
        """
        array = plain(batch.columns[self._column])
        text = is_text(array.type)
        if self._parts and text != (self._codes is not None):
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds {shown(array.type)}, "
                f"files before it hold {'numbers' if text else 'texts'}"
            )
        if not text:
            self._parts.append(floats(batch, self._column, np.float64))
            return
        if self._kind == "values":
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds texts, "
                f"dataset.{self._option}=values needs numbers"
            )
        if self._codes is None:
            self._codes = {}
        self._parts.append(self._coded(array, batch))

    def _coded(self, array: Any, batch: Batch) -> Array:
        assert self._codes is not None
        encoded = array.dictionary_encode()
        for name in encoded.dictionary.to_pylist():
            if name not in self._codes:
                self._codes[name] = len(self._codes)
                self._name_bytes += len(name)
        if len(self._codes) > MAX_CLASS_NAMES:
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds over {MAX_CLASS_NAMES} "
                "different texts, classes are fewer"
            )
        if self._name_bytes > _MAX_NAME_BYTES:
            raise GraphError(
                f"{batch.file}: the names of {len(self._codes)} classes in column "
                f"{shown(repr(self._column))} take over {_MAX_NAME_BYTES} bytes, number them"
            )
        codes = [self._codes[name] for name in encoded.dictionary.to_pylist()]
        places = encoded.indices.fill_null(len(codes)).to_numpy()
        found: Array = np.array([*codes, -1], np.int32)[places]
        return found

    def finish(self, places: Places) -> tuple[Array, list[str] | None]:
        """Return the labels, and the names of the classes if they are texts.

        Labels are ``[num_vertices]`` int64 classes with -1 for unknown, or float32 values with NaN.

        Raises:
            GraphError: a label is neither a class nor unknown; names the row.
        """
        parts, self._parts = self._parts, []
        if self._codes is not None:
            return self._named(np.concatenate(parts), places)
        regression = self._kind == "values" or (
            self._kind == "auto" and any(map(_has_fractions, parts))
        )
        first, found = 0, []
        for part in parts:
            found.append((self._values if regression else self._classes)(part, first, places))
            first += len(part)
        return np.concatenate(found), None

    def _values(self, labels: Array, first: int, places: Places) -> Float32Array:
        """Return values to regress on of the vertices from ``first`` on."""
        with np.errstate(over="ignore"):
            values = labels.astype(np.float32)
        wrong = ~np.isnan(labels) & ~np.isfinite(values)
        if wrong.any():
            self._refuse(labels, wrong, first, places, "a finite value of float32")
        return values

    def _classes(self, labels: Array, first: int, places: Places) -> Int64Array:
        """Return classes of the vertices from ``first`` on, -1 for unknown."""
        known = ~np.isnan(labels)
        good = ~known | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        if not good.all():
            self._refuse(
                labels, ~good, first, places, f"a class, allowed are 0 to {MAX_CLASSES - 1}"
            )
        return np.where(known, labels, -1).astype(np.int64)

    def _refuse(
        self, labels: Array, wrong: BoolArray, first: int, places: Places, allowed: str
    ) -> None:
        index = int(wrong.argmax())
        raise GraphError(
            f"{places.place(first + index)}: {shown(self._column)} {labels[index]:.12g} is not "
            f"{allowed} (dataset.{self._option}={self._kind})"
        )

    def _named(self, codes: Array, places: Places) -> tuple[Int64Array, list[str] | None]:
        assert self._codes is not None
        names = sorted(self._codes)
        if len(json.dumps(names)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{places.place(0)}: the names of {len(names)} classes take over "
                f"{_MAX_NAME_BYTES} bytes, number them"
            )
        place = {name: number for number, name in enumerate(names)}
        number_of = np.array([*(place[name] for name in self._codes), -1], np.int64)
        return number_of[codes], names


def _has_fractions(labels: Array) -> bool:
    return bool((~np.isnan(labels) & (labels != np.floor(labels))).any())


class SplitColumn:
    """Gathers the part of the split of each vertex, or edge."""

    def __init__(self, column: str) -> None:
        self.name = column
        self._column = column
        self._parts: list[UInt8Array] = []

    def add(self, batch: Batch) -> None:
        """Take the words of a batch; raise GraphError, naming the row, for one that is no part."""
        from pyarrow import types

        array = batch.columns[self._column]
        if types.is_null(array.type):
            self._parts.append(np.zeros(len(array), np.uint8))
            return
        kind = array.type.value_type if types.is_dictionary(array.type) else array.type
        if not is_text(kind):
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds {shown(array.type)}, a "
                f"split is told by words: {self._allowed()}"
            )
        encoded = plain(array).dictionary_encode()
        codes = [_WORDS.get(word.lower(), 255) for word in encoded.dictionary.to_pylist()]
        parts = np.array([*codes, 0], np.uint8)[encoded.indices.fill_null(len(codes)).to_numpy()]
        if 255 in codes:
            index = int((parts == 255).argmax())
            word = shown(repr(encoded[index].as_py()))
            raise GraphError(
                f"{batch.place(index)}: {shown(self._column)} is {word}, allowed are "
                f"{self._allowed()}"
            )
        self._parts.append(parts)

    @staticmethod
    def _allowed() -> str:
        return "train, valid (val, validation, dev), test, and an empty cell"

    def finish(
        self, labels: Array, places: Places, *, unlabelled: str, what: str = "vertices"
    ) -> list[Int64Array]:
        """Return the vertices, or edges, of training, validation and test.

        Args:
            labels: of all, in order.
            places: of their rows.
            unlabelled: one of ``UNLABELLED``.
            what: names them in errors.

        Raises:
            GraphError: vertices of the first two have no label, and ``refuse`` is asked for; names
                how many, and the first row.
        """
        parts = np.concatenate(self._parts)
        self._parts = []
        wrong = ~has_label(labels) & ((parts == 1) | (parts == 2))
        count = np.count_nonzero(wrong)
        if count and unlabelled == "refuse":
            total = np.count_nonzero((parts == 1) | (parts == 2))
            raise GraphError(
                f"{places.place(int(wrong.argmax()))}: has no label; so have {count} of {total} "
                f"{what} that are to train or validate; dataset.unlabelled=drop takes them out of "
                "the split"
            )
        parts[wrong] = 0
        if count:
            _LOG.warning(
                "%s: %s %s without a label neither train nor validate", self._column, count, what
            )
        return [np.flatnonzero(parts == part) for part in (1, 2, 3)]
