"""Columns of labels and of the split, gathered batch by batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.artifact.graph_store import MAX_CLASSES, has_label
from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.tables.batch import Batch, floats, is_text, plain
from gnnscale.dataset.tables.ids import IdColumn

__all__ = ["LABEL_KINDS", "MAX_CLASS_NAMES", "LabelColumn", "SplitColumn"]

#: Classes, values to regress on, or what the column holds.
LABEL_KINDS = ("auto", "classes", "values")
#: More texts than that are no classes; meta.json has their names.
MAX_CLASS_NAMES = 1 << 16
_MAX_NAME_BYTES = 1 << 20
#: Words of the split and the part that each means; null and nothing mean none.
_WORDS = {"": 0, "train": 1, "valid": 2, "val": 2, "validation": 2, "test": 3}


class LabelColumn:
    """Gathers the labels of all vertices.

    Args:
        column: name of the column.
        kind: one of ``LABEL_KINDS``.
    """

    def __init__(self, column: str, kind: str) -> None:
        self._column = column
        self._kind = kind
        self._parts: list[NDArray[Any]] = []
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

    def _coded(self, array: Any, batch: Batch) -> NDArray[Any]:
        """Return the number of each text, -1 for null."""
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
        found: NDArray[Any] = np.array([*codes, -1], np.int32)[places]
        return found

    def finish(self, ids: IdColumn) -> tuple[NDArray[Any], list[str] | None]:
        """Return the labels, and the names of the classes where they are texts.

        Returns:
            ``[num_vertices]`` int64 classes with -1 for unknown, or float32 values with NaN.

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

    def _values(self, labels: NDArray[Any], first: int, ids: IdColumn) -> NDArray[np.float32]:
        """Return values to regress on of the vertices from ``first`` on."""
        with np.errstate(over="ignore"):
            values = labels.astype(np.float32)
        wrong = ~np.isnan(labels) & ~np.isfinite(values)
        if wrong.any():
            self._refuse(labels, wrong, first, ids, "a finite value of float32")
        return values

    def _classes(self, labels: NDArray[Any], first: int, ids: IdColumn) -> NDArray[np.int64]:
        """Return classes of the vertices from ``first`` on, -1 for unknown."""
        known = ~np.isnan(labels)
        good = ~known | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        if not good.all():
            self._refuse(labels, ~good, first, ids, f"a class, allowed are 0 to {MAX_CLASSES - 1}")
        return np.where(known, labels, -1).astype(np.int64)

    def _refuse(
        self,
        labels: NDArray[Any],
        wrong: NDArray[np.bool_],
        first: int,
        ids: IdColumn,
        allowed: str,
    ) -> None:
        index = int(wrong.argmax())
        raise GraphError(
            f"{ids.place(first + index)}: {shown(self._column)} {labels[index]:.12g} is not "
            f"{allowed} (dataset.label_kind={self._kind})"
        )

    def _named(
        self, codes: NDArray[Any], ids: IdColumn
    ) -> tuple[NDArray[np.int64], list[str] | None]:
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


def _has_fractions(labels: NDArray[Any]) -> bool:
    return bool((~np.isnan(labels) & (labels != np.floor(labels))).any())


class SplitColumn:
    """Gathers which part of the split each vertex is in.

    Args:
        column: name of the column.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._parts: list[NDArray[np.uint8]] = []

    def add(self, batch: Batch) -> None:
        """Take the words of a batch.

        Raises:
            GraphError: a word is none of those that mean a part; names the row.
        """
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
        return "train, valid (val, validation), test, and nothing for none"

    def finish(self, labels: NDArray[Any], ids: IdColumn) -> list[NDArray[np.int64]]:
        """Return the vertices to train on, to choose the epoch by, and to report.

        Raises:
            GraphError: a vertex of the first two has no label; names the row.
        """
        parts = np.concatenate(self._parts)
        self._parts = []
        wrong = ~has_label(labels) & ((parts == 1) | (parts == 2))
        if wrong.any():
            raise GraphError(
                f"{ids.place(int(wrong.argmax()))}: is in the split to train or validate, and has "
                "no label"
            )
        return [np.flatnonzero(parts == part) for part in (1, 2, 3)]
