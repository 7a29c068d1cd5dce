"""Columns of labels and of the split of a table, gathered in batches."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, Int64Array, UInt8Array, brief
from gnnscale.core.lazy import pyarrow
from gnnscale.data.labels import wrapped_label, wrapped_message
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, RowLocations, is_text, plain
from gnnscale.data.tables.table import Table
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
#: Treatment of training and validation vertices without a label.
UNLABELED_POLICIES = ("refuse", "drop")


def are_parts(texts: Sequence[str]) -> bool:
    """Whether all ``texts`` name parts of a split, including training and another part."""
    parts = {_WORDS.get(text.lower()) for text in texts}
    return 1 in parts and len(parts) > 1 and None not in parts


class LabelColumns:
    """Collector of the labels of vertices or edges and, with a ``split``, of their parts.

    Column ``name`` holds labels of a ``kind`` of ``LABEL_KINDS``, which ``option`` names in errors.
    """

    def __init__(
        self, table: Table, name: str, kind: str, split: "SplitColumn | None", *, option: str
    ) -> None:
        self._label = _LabelColumn(name, kind, option)
        self._split = split
        self._rows = RowLocations()
        self._source = table.path
        #: Arrow type to parse each CSV column as, by column name
        guessed, types = table.types[name], pyarrow.types
        is_number = types.is_integer(guessed) or types.is_floating(guessed)
        is_number = is_number or types.is_null(guessed)
        self.csv_types = {name: pyarrow.float64() if is_number else pyarrow.string()}
        if split is not None:
            self.csv_types |= split.csv_types

    def add(self, batch: Batch) -> None:
        """Append the labels and parts of a batch; report cells that are not valid."""
        self._rows.add(batch)
        self._label.add(batch)
        if self._split is not None:
            self._split.add(batch)

    def labels(self) -> tuple[Array, list[str] | None]:
        """Return the labels, and the names of classes that are texts (else None).

        Labels are classes ``[n]`` int64, -1 if unknown, or targets ``[n]`` float32, NaN if unknown.
        """
        return self._label.finish(self._rows)

    def parts(self, labels: Array, *, unlabeled: str, what: str) -> list[Int64Array] | None:
        """Return the ids of training, validation and test; None: no split.

        ``unlabeled``, one of ``UNLABELED_POLICIES``, refuses or drops training and validation ids
        without one of ``labels``. GraphError, about ``what``, vertices or edges: none are to train.
        """
        if self._split is None:
            return None
        parts = np.concatenate(self._split.parts)
        is_used = (parts == 1) | (parts == 2)
        wrong = is_used & ~has_label(labels)
        count = np.count_nonzero(wrong)
        if count and unlabeled == "refuse":
            raise GraphError(
                f"{self._rows.locate(int(wrong.argmax()))}: has no label; {count} of "
                f"{np.count_nonzero(is_used)} {what} that are to train or validate lack one; "
                "dataset.unlabelled=drop takes them out of the split"
            )
        if count:
            _LOG.warning(
                "%s: %s %s without a label neither train nor validate",
                *(self._split.name, count, what),
            )
        parts[wrong] = 0
        ids_by_part = [np.flatnonzero(parts == part) for part in (1, 2, 3)]
        if not len(ids_by_part[0]):
            raise GraphError(
                f"{self._source}: {self._split.name} names no {what} for train; "
                "dataset.split=random draws a split"
            )
        return ids_by_part


class _LabelColumn:
    """Collector of labels, numbers or texts, from the batches of a table; null is unknown."""

    def __init__(self, column: str, kind: str, option: str) -> None:
        self._column, self._kind, self._option = column, kind, option
        self._parts: list[Array] = []
        self._dtype: np.dtype[Any] | None = None  # unsigned type before the cast to float
        self._codes: dict[str, int] | None = None  # number of each text by first appearance

    def add(self, batch: Batch) -> None:
        array = plain(batch.columns[self._column])
        text = is_text(array.type)
        if self._parts and text != (self._codes is not None):
            raise GraphError(
                f"{batch.name(self._column)} holds {brief(array.type)}, "
                f"files before it hold {'numbers' if text else 'texts'}"
            )
        if not text:
            self._parts.append(batch.floats(self._column, np.float64))
            unsigned = str(array.type).startswith("uint")
            self._dtype = np.dtype(array.type.to_pandas_dtype()) if unsigned else None
            return
        if self._kind == "values":
            raise GraphError(
                f"{batch.name(self._column)} holds texts, dataset.{self._option}=values needs "
                "numbers"
            )
        codes = self._codes = self._codes or {}
        self._parts.append(cells.coded(array, lambda text: codes.setdefault(text, len(codes)), -1))
        if len(codes) > MAX_CLASS_NAMES:
            raise GraphError(
                f"{batch.name(self._column)} holds over {MAX_CLASS_NAMES} different texts, classes "
                "are fewer"
            )
        if len(json.dumps([*codes])) > _MAX_NAME_BYTES:
            raise GraphError(
                f"{batch.file}: the names of {len(codes)} classes in column "
                f"{brief(repr(self._column))} take over {_MAX_NAME_BYTES} bytes, number them"
            )

    def finish(self, rows: RowLocations) -> tuple[Array, list[str] | None]:
        """Return the labels as ``LabelColumns.labels``; report those of another kind."""
        labels, self._parts = np.concatenate(self._parts), []
        if self._codes is not None:
            numbers = self._numbers()
            if numbers is None:
                names = sorted(self._codes)
                number = {name: number for number, name in enumerate(names)}
                return np.array([*map(number.get, self._codes), -1], np.int64)[labels], names
            labels = numbers[labels]
        is_known, is_whole = ~np.isnan(labels), labels == np.floor(labels)
        if self._kind == "values" or (self._kind == "auto" and (is_known & ~is_whole).any()):
            with np.errstate(over="ignore"):
                values = labels.astype(np.float32)
            wrong, allowed = is_known & ~np.isfinite(values), "a finite value of float32"
        else:
            is_class = is_whole & (labels >= -1) & (labels < MAX_CLASSES)
            values = np.where(is_class, labels, -1).astype(np.int64)
            wrong, allowed = is_known & ~is_class, f"a class, allowed are 0 to {MAX_CLASSES - 1}"
            row = None if self._dtype is None else wrapped_label(values, self._dtype)
            if row is not None and self._dtype is not None:
                raise GraphError(
                    f"{rows.locate(row)}: {brief(self._column)} {wrapped_message(self._dtype)}"
                )
        rows.report(
            wrong,
            (self._column, "label"),
            lambda index: (
                f"{brief(self._column)} {labels[index]:.12g} is not {allowed} "
                f"(dataset.{self._option}={self._kind})"
            ),
        )
        return values, None

    def _numbers(self) -> Array | None:
        """Return the number of each text, then NaN, if words such as NA stand among numbers alone.

        None: the texts are names of classes.
        """
        texts = pyarrow.array([*(self._codes or ()), None], pyarrow.large_string())
        array, wrong = cells.parsed(texts, pyarrow.float64())
        if wrong.any() or array.null_count in (1, len(array)):
            return None
        numbers: Array = array.to_numpy(zero_copy_only=False)
        return numbers


class SplitColumn:
    """Collector of the part of the split of each vertex, or edge, from a column of words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[UInt8Array] = []  #: numbers of parts of each batch; 0: none
        #: Arrow type to parse each CSV column as, by column name
        self.csv_types: dict[str, Any] = {name: pyarrow.string()}

    def add(self, batch: Batch) -> None:
        """Append the words of a batch; report unknown words. GraphError: no words, but numbers."""
        array = plain(batch.columns[self.name])
        if pyarrow.types.is_null(array.type):
            array = array.cast(pyarrow.large_string())
        if not is_text(array.type):
            raise GraphError(
                f"{batch.name(self.name)} holds {brief(array.type)}, a split is told by words: "
                f"{_ALLOWED_WORDS}"
            )
        parts = cells.coded(array, lambda word: _WORDS.get(word.strip().lower(), 255), 0)
        batch.report(
            parts == 255,
            (self.name, "split"),
            lambda index: (
                f"{brief(self.name)} is {brief(repr(array[index].as_py()))}, allowed are "
                f"{_ALLOWED_WORDS}"
            ),
        )
        self.parts.append(parts.astype(np.uint8))


class GroupColumn:
    """Collector of the group of each vertex, for a random split by groups."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arrays: list[Any] = []
        #: Arrow type to parse the CSV column as: text, so that 007 and 7 are two groups
        self.csv_types = {name: pyarrow.string()}

    def add(self, batch: Batch) -> None:
        """Append the groups of a batch: texts, or else as texts; GraphError: no text exists."""
        array = plain(batch.columns[self.name])
        try:
            self._arrays.append(array.cast(pyarrow.large_string()))
        except pyarrow.ArrowNotImplementedError:
            raise GraphError(
                f"{batch.name(self.name)}: expected numbers or texts as groups, got "
                f"{brief(array.type)}"
            ) from None

    def finish(self) -> Int64Array:
        """Return the group numbers of all rows, ``[n]``, -1 for an empty cell."""
        encoded = pyarrow.concat_arrays(self._arrays).dictionary_encode()
        numbers: Int64Array = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        return numbers


class SplitMasks(SplitColumn):
    """Collector of the part of the split of each row, from a column for each part, a mask.

    ``names`` are those of the masks of train, valid and test. None: the part is empty.
    """

    def __init__(self, table: Table, names: Sequence[str | None]) -> None:
        self._part_of = {name: part for part, name in enumerate(names, 1) if name}
        super().__init__(", ".join(self._part_of))
        types = pyarrow.types
        kinds = {name: table.types[name] for name in self._part_of}
        self.csv_types = {
            name: kind if types.is_floating(kind) or types.is_integer(kind) else pyarrow.bool_()
            for name, kind in kinds.items()
        }

    def add(self, batch: Batch) -> None:
        """Append the masks of a batch; report values that are neither 0 nor 1, and rows in two."""
        parts = np.zeros(len(batch), np.uint8)
        for column, part in self._part_of.items():
            kind = batch.columns[column].type
            if is_text(kind):
                raise GraphError(
                    f"{batch.name(column)} holds {brief(kind)}, a mask is of booleans, or of 1 "
                    "and 0"
                )
            values = np.nan_to_num(batch.floats(column, np.float64))
            _report(batch, column, (values != 0) & (values != 1), "true and false, or 1 and 0")
            _report(batch, column, (values == 1) & (parts > 0), "one part for each row")
            parts[values == 1] = part
        self.parts.append(parts)


def _report(batch: Batch, column: str, wrong: BoolArray, allowed: str) -> None:
    """Report the cells of a mask that ``wrong`` marks, which are not ``allowed``."""
    values = batch.columns[column]
    batch.report(
        wrong,
        (column, allowed),
        lambda index: f"{brief(column)} is {brief(values[index])}, allowed are {allowed}",
    )
