"""Columns of labels and of the split of a table, gathered in batches."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Float32Array, GraphError, Int64Array, UInt8Array, brief
from gnnscale.core.lazy import pyarrow
from gnnscale.data.labels import wrapped_label, wrapped_message
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, RowLocations, floats, is_text, null_mask, plain
from gnnscale.graph import MAX_CLASSES, has_label

_LOG = logging.getLogger(__name__)
#: Kinds of labels: by the column, classes, or regression targets.
LABEL_KINDS = ("auto", "classes", "values")
#: Classes with a name, at most; meta.json has the names.
MAX_CLASS_NAMES = 1 << 16
_MAX_NAME_BYTES = 1 << 20
#: Words of the split with their part: 1 train, 2 valid, 3 test; 0 and null: none.
_WORDS = {"": 0} | dict.fromkeys(("train", "training"), 1) | {"test": 3, "testing": 3}
_WORDS |= dict.fromkeys(("valid", "val", "validation", "dev", "development"), 2)
_ALLOWED_WORDS = "train, valid (val, validation, dev), test, and an empty cell"
_PARTS = ("train", "valid", "test")
#: Treatment of training and validation vertices without a label.
UNLABELED_POLICIES = ("refuse", "drop")


def are_parts(texts: Sequence[str]) -> bool:
    """Whether all ``texts`` name parts of a split, including training and another part."""
    parts = {_WORDS.get(text.lower()) for text in texts}
    return 1 in parts and len(parts) > 1 and None not in parts


def csv_label_type(guessed: Any) -> Any:
    """Return the type to parse CSV labels as: float64 if Arrow ``guessed`` numbers, else text."""
    numeric = (
        pyarrow.types.is_integer(guessed)
        or pyarrow.types.is_floating(guessed)
        or pyarrow.types.is_null(guessed)
    )
    return pyarrow.float64() if numeric else pyarrow.string()


class LabelColumn:
    """Collector of the labels of all vertices, or all edges, from the batches of a table.

    ``kind`` is one of ``LABEL_KINDS``, and ``option`` the name of its option, for errors.
    """

    def __init__(self, column: str, kind: str, option: str = "label_kind") -> None:
        self.name = column
        self._option = option
        self._column = column
        self._kind = kind
        self._parts: list[Array] = []
        self._dtype: np.dtype[Any] | None = None  # unsigned type before the cast to float
        self._codes: dict[str, int] | None = None  # number of each text by first appearance
        self._name_bytes = 0

    def add(self, batch: Batch) -> None:
        """Append the labels of a batch, numbers or texts; null is unknown."""
        array = plain(batch.columns[self._column])
        text = is_text(array.type)
        if self._parts and text != (self._codes is not None):
            raise GraphError(
                f"{batch.file}: column {brief(repr(self._column))} holds {brief(array.type)}, "
                f"files before it hold {'numbers' if text else 'texts'}"
            )
        if not text:
            self._parts.append(floats(batch, self._column, np.float64))
            unsigned = str(array.type).startswith("uint")
            self._dtype = np.dtype(array.type.to_pandas_dtype()) if unsigned else None
            return
        if self._kind == "values":
            raise GraphError(
                f"{batch.file}: column {brief(repr(self._column))} holds texts, "
                f"dataset.{self._option}=values needs numbers"
            )
        if self._codes is None:
            self._codes = {}
        self._parts.append(self._encode(array, batch))

    def _encode(self, array: Any, batch: Batch) -> Array:
        assert self._codes is not None
        encoded = array.dictionary_encode()
        for name in encoded.dictionary.to_pylist():
            if name not in self._codes:
                self._codes[name] = len(self._codes)
                self._name_bytes += len(name)
        if len(self._codes) > MAX_CLASS_NAMES:
            raise GraphError(
                f"{batch.file}: column {brief(repr(self._column))} holds over {MAX_CLASS_NAMES} "
                "different texts, classes are fewer"
            )
        if self._name_bytes > _MAX_NAME_BYTES:
            raise GraphError(
                f"{batch.file}: the names of {len(self._codes)} classes in column "
                f"{brief(repr(self._column))} take over {_MAX_NAME_BYTES} bytes, number them"
            )
        codes = [self._codes[name] for name in encoded.dictionary.to_pylist()]
        indices = encoded.indices.fill_null(len(codes)).to_numpy()
        coded: Array = np.array([*codes, -1], np.int32)[indices]
        return coded

    def finish(self, rows: RowLocations) -> tuple[Array, list[str] | None]:
        """Return the labels, and the names of classes that are texts (else None).

        Labels are classes ``[n]`` int64, -1 if unknown, or targets ``[n]`` float32, NaN if unknown.
        ``rows`` locates rows in errors.
        """
        parts, self._parts = self._parts, []
        if self._codes is not None:
            numbers = self._numbers()
            if numbers is None:
                return self._named_classes(np.concatenate(parts), rows)
            parts = [numbers[part] for part in parts]
        fractions = ((~np.isnan(part) & (part != np.floor(part))).any() for part in parts)
        regression = self._kind == "values" or (self._kind == "auto" and any(fractions))
        first, converted = 0, []
        for part in parts:
            converted.append((self._values if regression else self._classes)(part, first, rows))
            first += len(part)
        labels = np.concatenate(converted)
        if self._dtype is not None and not regression:
            row = wrapped_label(labels, self._dtype)
            if row is not None:
                raise GraphError(
                    f"{rows.locate(row)}: {brief(self._column)} {wrapped_message(self._dtype)}"
                )
        return labels, None

    def _numbers(self) -> Array | None:
        """Return the number of each text, then NaN, if words such as NA stand among numbers alone.

        None: the texts are names of classes.
        """
        texts = pyarrow.array([*(self._codes or ()), None], pyarrow.large_string())
        array, wrong = cells.parsed(texts, pyarrow.float64())
        is_unknown = null_mask(array)
        if wrong.any() or is_unknown.all() or np.count_nonzero(is_unknown) == 1:
            return None
        numbers: Array = array.to_numpy(zero_copy_only=False)
        return numbers

    def _values(self, labels: Array, first: int, rows: RowLocations) -> Float32Array:
        """Return ``labels``, from row ``first`` on, as float32 targets; report infinities."""
        with np.errstate(over="ignore"):
            values = labels.astype(np.float32)
        wrong = ~np.isnan(labels) & ~np.isfinite(values)
        self._report(labels, wrong, first, rows, "a finite value of float32")
        return values

    def _classes(self, labels: Array, first: int, rows: RowLocations) -> Int64Array:
        """Return ``labels``, of rows from ``first`` on, as classes, -1 for NaN.

        Labels that are no classes are reported.
        """
        labeled = ~np.isnan(labels)
        good = ~labeled | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        self._report(labels, ~good, first, rows, f"a class, allowed are 0 to {MAX_CLASSES - 1}")
        return np.where(labeled & good, labels, -1).astype(np.int64)

    def _report(
        self, labels: Array, wrong: BoolArray, first: int, rows: RowLocations, allowed: str
    ) -> None:
        rows.report(
            wrong,
            (self._column, "label"),
            lambda index: (
                f"{brief(self._column)} {labels[index]:.12g} is not {allowed} "
                f"(dataset.{self._option}={self._kind})"
            ),
            first=first,
        )

    def _named_classes(
        self, codes: Array, rows: RowLocations
    ) -> tuple[Int64Array, list[str] | None]:
        assert self._codes is not None
        names = sorted(self._codes)
        if len(json.dumps(names)) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{rows.locate(0)}: the names of {len(names)} classes take over "
                f"{_MAX_NAME_BYTES} bytes, number them"
            )
        number = {name: number for number, name in enumerate(names)}
        return np.array([*(number[name] for name in self._codes), -1], np.int64)[codes], names


class SplitColumn:
    """Collector of the part of the split of each vertex, or edge, from a column of words."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._parts: list[UInt8Array] = []

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type to parse each CSV column as, by column name."""
        return {self._column: pyarrow.string()}

    def add(self, batch: Batch) -> None:
        """Append the words of a batch; report unknown words. GraphError: no words, but numbers."""
        array = batch.columns[self._column]
        if pyarrow.types.is_null(array.type):
            self._parts.append(np.zeros(len(array), np.uint8))
            return
        kind = array.type.value_type if pyarrow.types.is_dictionary(array.type) else array.type
        if not is_text(kind):
            raise GraphError(
                f"{batch.file}: column {brief(repr(self._column))} holds {brief(array.type)}, a "
                f"split is told by words: {_ALLOWED_WORDS}"
            )
        encoded = plain(array).dictionary_encode()
        codes = [_WORDS.get(word.strip().lower(), 255) for word in encoded.dictionary.to_pylist()]
        parts = np.array([*codes, 0], np.uint8)[encoded.indices.fill_null(len(codes)).to_numpy()]
        batch.report(
            parts == 255,
            (self._column, "split"),
            lambda index: (
                f"{brief(self._column)} is {brief(repr(encoded[index].as_py()))}, allowed are "
                f"{_ALLOWED_WORDS}"
            ),
        )
        self._parts.append(parts)

    def finish(
        self,
        labels: Array,
        rows: RowLocations,
        *,
        unlabeled: str,
        source: object,
        what: str = "vertices",
    ) -> list[Int64Array]:
        """Return the ids of training, validation and test; GraphError: none are to train.

        ``unlabeled``, one of ``UNLABELED_POLICIES``, refuses or drops training and validation ids
        without a label. ``rows`` and ``what``, ``vertices`` or ``edges``, are for errors.
        """
        parts = np.concatenate(self._parts)
        self._parts = []
        wrong = ~has_label(labels) & ((parts == 1) | (parts == 2))
        count = np.count_nonzero(wrong)
        if count and unlabeled == "refuse":
            total = np.count_nonzero((parts == 1) | (parts == 2))
            raise GraphError(
                f"{rows.locate(int(wrong.argmax()))}: has no label; {count} of {total} {what} "
                "that are to train or validate lack one; dataset.unlabelled=drop takes them out "
                "of the split"
            )
        parts[wrong] = 0
        if count:
            _LOG.warning(
                "%s: %s %s without a label neither train nor validate", self._column, count, what
            )
        ids_by_part = [np.flatnonzero(parts == part) for part in (1, 2, 3)]
        if not len(ids_by_part[0]):
            raise GraphError(
                f"{source}: {self._column} names no {what} for train; dataset.split=random draws "
                "a split"
            )
        return ids_by_part


class GroupColumn:
    """Collector of the group of each vertex, for a random split by groups."""

    def __init__(self, column: str) -> None:
        self.name = column
        self._parts: list[Any] = []

    @property
    def csv_type(self) -> Any:
        """Arrow type to parse the CSV column as: text, so that 007 and 7 are two groups."""
        return pyarrow.string()

    def add(self, batch: Batch) -> None:
        """Append the groups of a batch: texts, or else as texts; GraphError: no text exists."""
        array = plain(batch.columns[self.name])
        try:
            self._parts.append(pyarrow.compute.cast(array, pyarrow.large_string()))
        except pyarrow.ArrowNotImplementedError:
            raise GraphError(
                f"{batch.file}: column {brief(repr(self.name))}: expected numbers or texts as "
                f"groups, got {brief(array.type)}"
            ) from None

    def finish(self) -> Int64Array:
        """Return the group numbers of all rows, ``[n]``, -1 for an empty cell."""
        encoded = pyarrow.concat_arrays(self._parts).dictionary_encode()
        numbers: Int64Array = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        return numbers


class SplitMasks(SplitColumn):
    """Collector of the part of the split of each row, from a column for each part, a mask.

    ``columns`` has the Arrow types of the masks by name: train, valid, test. ``None`` is the name
    of a part without a mask, which is empty.
    """

    def __init__(self, columns: Sequence[tuple[str | None, Any]]) -> None:
        self._part_of = {name: part for part, (name, _) in enumerate(columns, 1) if name}
        self._columns = {name: kind for name, kind in columns if name}
        super().__init__(", ".join(self._columns))

    @property
    def csv_types(self) -> dict[str, Any]:
        """Arrow type to parse each CSV column as, by column name."""
        return {
            name: kind
            if pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)
            else pyarrow.bool_()
            for name, kind in self._columns.items()
        }

    def add(self, batch: Batch) -> None:
        """Append the masks of a batch; report values that are neither 0 nor 1, and rows in two."""
        parts = np.zeros(len(batch), np.uint8)
        for column, part in self._part_of.items():
            kind = batch.columns[column].type
            if is_text(kind):
                raise GraphError(
                    f"{batch.file}: column {brief(repr(column))} holds {brief(kind)}, a mask is of "
                    "booleans, or of 1 and 0"
                )
            values = np.nan_to_num(floats(batch, column, np.float64))
            self._report(batch, column, (values != 0) & (values != 1), "true and false, or 1 and 0")
            self._report(batch, column, (values == 1) & (parts > 0), "one part for each row")
            parts[values == 1] = part
        self._parts.append(parts)

    @staticmethod
    def _report(batch: Batch, column: str, wrong: BoolArray, allowed: str) -> None:
        batch.report(
            wrong,
            (column, allowed),
            lambda index: (
                f"{brief(column)} is {brief(batch.columns[column][index])}, allowed are {allowed}"
            ),
        )
