"""Columns of numbers, and lists of them, as feature rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.tables.batch import Batch, first_null, floats, refuse_nulls
from gnnscale.dataset.tables.table import Table


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
                    "leave it out"
                )
        values = [kind.value_type if _is_list(kind) else kind for kind in kinds]
        self.dtype = _stored(values)
        self._widths = self._measured()

    @property
    def num_features(self) -> int:
        """Length of a row."""
        return sum(self._widths)

    def batches(self) -> Iterator[Batch]:
        """Yield the columns as they are."""
        import pyarrow

        types = {column: pyarrow.float32() for column in self._columns}
        return self._table.batches(self._columns, types, 8 * self.num_features)

    def rows(self) -> Iterator[NDArray[np.float32]]:
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


def _list_values(batch: Batch, column: str, width: int) -> NDArray[Any]:
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
