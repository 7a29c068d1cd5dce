"""Columns of labels and of the split, gathered batch by batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.dataset.tables.arrays import floats, is_text, plain
from gnnscale.dataset.tables.batch import Batch
from gnnscale.dataset.tables.ids import IdColumn
from gnnscale.errors import shown
from gnnscale.graph import MAX_CLASSES, GraphError

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
            self._codes.setdefault(name, len(self._codes))
        if len(self._codes) > MAX_CLASS_NAMES:
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds over {MAX_CLASS_NAMES} "
                "different texts, classes are fewer"
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
        labels = np.concatenate(self._parts)
        self._parts = []
        if self._codes is not None:
            return self._named(labels, ids)
        known = ~np.isnan(labels)
        whole = ~known | ((labels >= -1) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
        if self._kind == "values" or (self._kind == "auto" and self._fractions(labels, known)):
            with np.errstate(over="ignore"):
                values = labels.astype(np.float32)
            wrong = known & ~np.isfinite(values)
            if wrong.any():
                self._refuse(labels, wrong, ids, "a finite value of float32")
            return values, None
        if not whole.all():
            self._refuse(labels, ~whole, ids, f"a class, allowed are 0 to {MAX_CLASSES - 1}")
        return np.where(known, labels, -1).astype(np.int64), None

    @staticmethod
    def _fractions(labels: NDArray[Any], known: NDArray[np.bool_]) -> bool:
        return bool((known & (labels != np.floor(labels))).any())

    def _refuse(
        self, labels: NDArray[Any], wrong: NDArray[np.bool_], ids: IdColumn, allowed: str
    ) -> None:
        vertex = int(wrong.argmax())
        raise GraphError(
            f"{ids.place(vertex)}: {shown(self._column)} {labels[vertex]:.12g} is not {allowed} "
            f"(dataset.label_kind={self._kind})"
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
        from pyarrow import compute, types

        array = plain(batch.columns[self._column])
        if types.is_null(array.type):
            self._parts.append(np.zeros(len(array), np.uint8))
            return
        if not is_text(array.type):
            raise GraphError(
                f"{batch.file}: column {shown(repr(self._column))} holds {shown(array.type)}, a "
                f"split is told by words: {self._allowed()}"
            )
        encoded = compute.utf8_lower(array.fill_null("")).dictionary_encode()
        words = encoded.dictionary.to_pylist()
        codes = np.array([_WORDS.get(word, 255) for word in words], np.uint8)
        parts = codes[encoded.indices.to_numpy()]
        if (codes == 255).any():
            index = int((parts == 255).argmax())
            raise GraphError(
                f"{batch.place(index)}: {shown(self._column)} is "
                f"{shown(repr(array[index].as_py()))}, allowed are {self._allowed()}"
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
        unknown = np.isnan(labels) if labels.dtype.kind == "f" else labels < 0
        wrong = unknown & ((parts == 1) | (parts == 2))
        if wrong.any():
            raise GraphError(
                f"{ids.place(int(wrong.argmax()))}: is in the split to train or validate, and has "
                "no label"
            )
        return [np.flatnonzero(parts == part) for part in (1, 2, 3)]
