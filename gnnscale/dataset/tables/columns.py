"""Columns of features, labels and the split of a table, read batch by batch."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.artifact.graph_store import (
    GRAPH_STORE,
    MAX_CLASSES,
    MAX_FEATURES,
    has_label,
    read_meta,
)
from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, UInt8Array, shown
from gnnscale.dataset.tables.batch import Batch, first_null, floats, is_text, plain, refuse_nulls
from gnnscale.dataset.tables.ids import IdColumn
from gnnscale.dataset.tables.table import Table
from gnnscale.graph import Graph

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table whose numbers are features."""

    name: str
    width: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]  #: features; 1 unless it holds lists


@dataclass(frozen=True, kw_only=True)
class _WithColumns:
    """The entry of ``meta.json`` that names the columns."""

    columns: tuple[Column, ...] | None = None


def read_columns(graph: Graph) -> tuple[Column, ...] | None:
    """Return the columns of the table whose numbers are the features; None without a table.

    Raises:
        GraphError: ``meta.json`` holds something else.
    """
    if graph.path is None or not graph.origin.own_features:
        return None
    entries = read_meta(graph.path).entries
    columns = GRAPH_STORE.record(_WithColumns, entries, graph.path).columns
    width = sum(each.width for each in columns or ())
    if columns is not None and width != graph.num_features:
        problem = f"columns have {width} features, the graph has {graph.num_features}"
        raise GRAPH_STORE.refused(graph.path, problem)
    return columns


class FeatureColumns:
    """The features of a table: columns of numbers, and of lists of numbers, one after the other.

    If the user ``named`` them, a cell of CSV that is no number is an error later, which names it.

    Raises:
        GraphError: a column holds neither numbers nor lists of numbers.
    """

    def __init__(self, table: Table, columns: Sequence[str], *, named: bool) -> None:
        self._table = table
        self._columns = columns
        kinds = [table.types[column] for column in columns]
        self._lists = [_is_list(kind) for kind in kinds]
        for column, kind in zip(columns, kinds, strict=True):
            if not _holds_numbers(kind) and not (named and table.is_csv):
                raise GraphError(
                    f"{table.path}: column {shown(repr(column))} holds {shown(kind)}, features are "
                    "numbers or lists of numbers; name their columns by dataset.features=[...], or "
                    "nothing by dataset.features=[], or leave it out"
                )
        values = [kind.value_type if _is_list(kind) else kind for kind in kinds]
        self.dtype = _stored(values)
        self._widths = self._measured()

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
        found = [asdict(Column(name=name, width=width)) for name, width in pairs]
        if len(json.dumps(found)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{self._table.path}: the names of {len(found)} columns of features take over "
                f"{_MAX_NAME_BYTES} bytes; a column may hold a list of numbers"
            )
        return found

    def batches(self) -> Iterator[Batch]:
        """Yield the columns as they are."""
        import pyarrow

        types = {column: pyarrow.float32() for column in self._columns}
        return self._table.batches(self._columns, types, 8 * self.num_features)

    def rows(self) -> Iterator[Float32Array]:
        """Yield ``[rows, num_features]`` float32, in order.

        Raises:
            GraphError: a value is missing, or a list has another length; names the row.
        """
        for batch in self.batches():
            rows = np.empty((len(batch), self.num_features), np.float32)
            first = 0
            for column, width, is_list in zip(
                self._columns, self._widths, self._lists, strict=True
            ):
                refuse_nulls(batch, column)
                if is_list:
                    rows[:, first : first + width] = _list_values(batch, column, width)
                else:
                    rows[:, first] = floats(batch, column, np.float32)
                first += width
            yield rows

    def _measured(self) -> list[int]:
        """Return how many numbers the first row has of each column.

        Raises:
            GraphError: a column has none; names it.
        """
        if not any(self._lists):
            return [1] * len(self._columns)
        batch = next(self._table.batches(self._columns, {}, 1 << 20))
        for column in self._columns:
            refuse_nulls(batch, column)
        widths = [
            len(batch.columns[column][0]) if is_list else 1
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

    if all(types.is_float16(kind) for kind in kinds):
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


class LabelColumn:
    """Gathers the labels of all vertices; ``kind`` is one of ``LABEL_KINDS``."""

    def __init__(self, column: str, kind: str) -> None:
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
                "dataset.label_kind=values needs numbers"
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

    def finish(self, ids: IdColumn) -> tuple[Array, list[str] | None]:
        """Return the labels, and the names of the classes if they are texts.

        Labels are ``[num_vertices]`` int64 classes with -1 for unknown, or float32 values with NaN.

        Raises:
            GraphError: a label is neither a class nor unknown; names the row.
        """
        parts, self._parts = self._parts, []
        if self._codes is not None:
            return self._named(np.concatenate(parts), ids)
        regression = self._kind == "values" or (
            self._kind == "auto" and any(map(_has_fractions, parts))
        )
        first, found = 0, []
        for part in parts:
            found.append((self._values if regression else self._classes)(part, first, ids))
            first += len(part)
        return np.concatenate(found), None

    def _values(self, labels: Array, first: int, ids: IdColumn) -> Float32Array:
        """Return values to regress on of the vertices from ``first`` on."""
        with np.errstate(over="ignore"):
            values = labels.astype(np.float32)
        wrong = ~np.isnan(labels) & ~np.isfinite(values)
        if wrong.any():
            self._refuse(labels, wrong, first, ids, "a finite value of float32")
        return values

    def _classes(self, labels: Array, first: int, ids: IdColumn) -> Int64Array:
        """Return classes of the vertices from ``first`` on, -1 for unknown."""
        known = ~np.isnan(labels)
        good = ~known | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        if not good.all():
            self._refuse(labels, ~good, first, ids, f"a class, allowed are 0 to {MAX_CLASSES - 1}")
        return np.where(known, labels, -1).astype(np.int64)

    def _refuse(
        self, labels: Array, wrong: BoolArray, first: int, ids: IdColumn, allowed: str
    ) -> None:
        index = int(wrong.argmax())
        raise GraphError(
            f"{ids.place(first + index)}: {shown(self._column)} {labels[index]:.12g} is not "
            f"{allowed} (dataset.label_kind={self._kind})"
        )

    def _named(self, codes: Array, ids: IdColumn) -> tuple[Int64Array, list[str] | None]:
        assert self._codes is not None
        names = sorted(self._codes)
        if len(json.dumps(names)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{ids.place(0)}: the names of {len(names)} classes take over "
                f"{_MAX_NAME_BYTES} bytes, number them"
            )
        place = {name: number for number, name in enumerate(names)}
        number_of = np.array([*(place[name] for name in self._codes), -1], np.int64)
        return number_of[codes], names


def _has_fractions(labels: Array) -> bool:
    return bool((~np.isnan(labels) & (labels != np.floor(labels))).any())


class SplitColumn:
    """Gathers the part of the split of each vertex."""

    def __init__(self, column: str) -> None:
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

    def finish(self, labels: Array, ids: IdColumn, *, unlabelled: str) -> list[Int64Array]:
        """Return the vertices of training, validation and test.

        Args:
            unlabelled: one of ``UNLABELLED``.

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
                f"{ids.place(int(wrong.argmax()))}: has no label; so have {count} of {total} "
                "vertices that are to train or validate; dataset.unlabelled=drop takes them out of "
                "the split"
            )
        parts[wrong] = 0
        if count:
            _LOG.warning(
                "%s: %s vertices without a label neither train nor validate", self._column, count
            )
        return [np.flatnonzero(parts == part) for part in (1, 2, 3)]
