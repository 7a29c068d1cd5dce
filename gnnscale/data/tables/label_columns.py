"""Columns of labels and of words of the split of a table, gathered batch by batch."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, UInt8Array, shown
from gnnscale.data.labels import wrapped_label, wrapped_message
from gnnscale.data.tables.batch import Batch, floats, is_text, plain
from gnnscale.graph.store_format import MAX_CLASSES, has_label

_LOG = logging.getLogger(__name__)
#: Classes, values to regress on, or what the column holds.
LABEL_KINDS = ("auto", "classes", "values")
#: More texts than that are no classes; meta.json has their names.
MAX_CLASS_NAMES = 1 << 16
_MAX_NAME_BYTES = 1 << 20
#: Words of the split and the part that each means; null and nothing mean none.
_WORDS = {"": 0} | dict.fromkeys(("train", "training"), 1) | {"test": 3, "testing": 3}
_WORDS |= dict.fromkeys(("valid", "val", "validation", "dev", "development"), 2)
_PARTS = ("train", "valid", "test")
#: What becomes of vertices that are to train or validate, and have no label.
UNLABELLED = ("refuse", "drop")


def are_parts(texts: Sequence[str]) -> bool:
    """Whether all of ``texts`` name parts of a split, training and another one among them."""
    parts = {_WORDS.get(text.lower()) for text in texts}
    return 1 in parts and len(parts) > 1 and None not in parts


class RowOrder(Protocol):
    """Places of the rows of a table."""

    def place(self, index: int, /) -> str:
        """Return the name of row ``index`` in errors."""
        ...


def csv_label_type(guessed: Any) -> Any:
    """Return the Arrow type that labels of CSV are parsed as: numbers of any kind, or texts."""
    from pyarrow import float64, string, types

    numeric = types.is_integer(guessed) or types.is_floating(guessed) or types.is_null(guessed)
    return float64() if numeric else string()


def _unsigned_dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of an unsigned Arrow type; None for another."""
    from pyarrow import types

    return np.dtype(kind.to_pandas_dtype()) if types.is_unsigned_integer(kind) else None


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
        self._dtype: np.dtype[Any] | None = None  # of numbers, before they are floats
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
            self._dtype = _unsigned_dtype(array.type)
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

    def finish(self, places: RowOrder) -> tuple[Array, list[str] | None]:
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
        labels = np.concatenate(found)
        if self._dtype is not None and not regression:
            place = wrapped_label(labels, self._dtype)
            if place is not None:
                raise GraphError(
                    f"{places.place(place)}: {shown(self._column)} {wrapped_message(self._dtype)}"
                )
        return labels, None

    def _values(self, labels: Array, first: int, places: RowOrder) -> Float32Array:
        """Return values to regress on of the vertices from ``first`` on."""
        with np.errstate(over="ignore"):
            values = labels.astype(np.float32)
        wrong = ~np.isnan(labels) & ~np.isfinite(values)
        if wrong.any():
            self._refuse(labels, wrong, first, places, "a finite value of float32")
        return values

    def _classes(self, labels: Array, first: int, places: RowOrder) -> Int64Array:
        """Return classes of the vertices from ``first`` on, -1 for unknown."""
        known = ~np.isnan(labels)
        good = ~known | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        if not good.all():
            self._refuse(
                labels, ~good, first, places, f"a class, allowed are 0 to {MAX_CLASSES - 1}"
            )
        return np.where(known, labels, -1).astype(np.int64)

    def _refuse(
        self, labels: Array, wrong: BoolArray, first: int, places: RowOrder, allowed: str
    ) -> None:
        index = int(wrong.argmax())
        raise GraphError(
            f"{places.place(first + index)}: {shown(self._column)} {labels[index]:.12g} is not "
            f"{allowed} (dataset.{self._option}={self._kind})"
        )

    def _named(self, codes: Array, places: RowOrder) -> tuple[Int64Array, list[str] | None]:
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
        self._column = column
        self._parts: list[UInt8Array] = []

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type that each column of CSV is parsed as."""
        import pyarrow

        return {self._column: pyarrow.string()}

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
        self,
        labels: Array,
        places: RowOrder,
        *,
        unlabelled: str,
        source: object,
        what: str = "vertices",
    ) -> list[Int64Array]:
        """Return the vertices, or edges, of training, validation and test.

        Args:
            labels: of all, in order.
            places: of their rows.
            unlabelled: one of ``UNLABELLED``.
            source: the table, in errors.
            what: names them in errors.

        Raises:
            GraphError: a part has no vertex; or vertices of the first two have no label, and
                ``refuse`` is asked for; names how many, and the first row.
        """
        parts = np.concatenate(self._parts)
        self._parts = []
        wrong = ~has_label(labels) & ((parts == 1) | (parts == 2))
        count = np.count_nonzero(wrong)
        if count and unlabelled == "refuse":
            total = np.count_nonzero((parts == 1) | (parts == 2))
            raise GraphError(
                f"{places.place(int(wrong.argmax()))}: has no label; {count} of {total} {what} "
                "that are to train or validate lack one; dataset.unlabelled=drop takes them out "
                "of the split"
            )
        parts[wrong] = 0
        if count:
            _LOG.warning(
                "%s: %s %s without a label neither train nor validate", self._column, count, what
            )
        found = [np.flatnonzero(parts == part) for part in (1, 2, 3)]
        empty = [name for name, ids in zip(_PARTS, found, strict=True) if not len(ids)]
        if empty:
            raise GraphError(
                f"{source}: {self._column} names no {what} for {' and '.join(empty)}; training "
                "needs all three parts, and dataset.split=random draws them"
            )
        return found


class SplitMasks(SplitColumn):
    """Gathers the part of the split of each vertex, or edge, from a mask for each part."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        """Take the columns of training, validation and test, and their Arrow types."""
        super().__init__(", ".join(columns))
        self._columns = columns

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type that each column of CSV is parsed as."""
        from pyarrow import bool_, types

        return {
            name: kind if types.is_floating(kind) or types.is_integer(kind) else bool_()
            for name, kind in self._columns.items()
        }

    def add(self, batch: Batch) -> None:
        """Take the masks of a batch; raise GraphError, naming the row, for one that is no mask."""
        parts = np.zeros(len(batch), np.uint8)
        for part, column in enumerate(self._columns, 1):
            kind = batch.columns[column].type
            if is_text(kind):
                raise GraphError(
                    f"{batch.file}: column {shown(repr(column))} holds {shown(kind)}, a mask is of "
                    "booleans, or of 1 and 0"
                )
            values = np.nan_to_num(floats(batch, column, np.float64))
            self._refuse(batch, column, (values != 0) & (values != 1), "true and false, or 1 and 0")
            self._refuse(batch, column, (values == 1) & (parts > 0), "one part for each row")
            parts[values == 1] = part
        self._parts.append(parts)

    @staticmethod
    def _refuse(batch: Batch, column: str, wrong: BoolArray, allowed: str) -> None:
        if wrong.any():
            index = int(wrong.argmax())
            value = batch.columns[column][index]
            raise GraphError(
                f"{batch.place(index)}: {shown(column)} is {shown(value)}, allowed are {allowed}"
            )
