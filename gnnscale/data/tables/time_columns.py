"""Columns of times of a table, gathered in batches as int64 in one unit."""

from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, Int64Array, brief, pyarrow
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, is_text, null_mask, plain
from gnnscale.data.tables.table import Table
from gnnscale.graph import NO_TIME, TimeUnit

#: Nanoseconds of the units that dates are converted to.
_NANOSECONDS = {"day": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class TimeColumn:
    """Collector of the times of rows: dates become int64 in ``unit``, integers are in it already.

    A row without a time is reported, and a date that is no whole number of units.
    """

    def __init__(self, table: Table, name: str, unit: TimeUnit) -> None:
        self.name, self._unit = name, unit
        self._parts: list[Int64Array] = []
        kind = table.types[name]
        if cells.is_date(kind):
            kind = cells.csv_date_type(kind)
        elif not pyarrow.types.is_integer(kind):
            kind = pyarrow.string()
        #: Arrow type to parse each CSV column as, by column name
        self.csv_types: dict[str, Any] = {name: kind}

    def add(self, batch: Batch) -> None:
        """Append the times of a batch; report cells that have none."""
        array, is_wrong = _dates(plain(batch.columns[self.name]))
        texts = batch.columns[self.name]
        batch.report(
            is_wrong,
            (self.name, "time"),
            lambda index: (
                f"{brief(self.name)} is {brief(repr(texts[index].as_py()))}, expected a date or "
                "time of ISO 8601, as 2024-01-31 12:00:00"
            ),
        )
        is_empty = null_mask(array) & ~is_wrong & ~batch.unread.get(self.name, np.False_)
        batch.report(
            is_empty,
            (self.name, "empty"),
            lambda index: f"{brief(self.name)} is empty, expected a time in each row",
        )
        values, is_whole = self._in_unit(batch, array)
        batch.report(
            ~(is_whole | null_mask(array)),
            (self.name, "unit"),
            lambda index: (
                f"{brief(self.name)} is {array[index]}, expected a whole number of time_unit="
                f"{self._unit}; a smaller unit holds it"
            ),
        )
        self._parts.append(values)

    def finish(self) -> Int64Array:
        """Return the times of all rows, ``[n]``; valid if no problem was reported."""
        return np.concatenate(self._parts) if self._parts else np.empty(0, np.int64)

    def _in_unit(self, batch: Batch, array: Any) -> tuple[Int64Array, BoolArray]:
        """Return times in the unit, and which are whole in it; 0 stands for an empty cell."""
        if not cells.is_date(array.type):
            if not pyarrow.types.is_integer(array.type):
                raise GraphError(
                    f"{batch.name(self.name)}: expected dates or whole numbers as times, got "
                    f"{brief(array.type)}"
                )
            return _integers(array), np.ones(len(array), np.bool_)
        if self._unit not in _NANOSECONDS:
            raise GraphError(
                f"{batch.name(self.name)}: expected whole numbers, as time_unit={self._unit}, got "
                "dates"
            )
        if pyarrow.types.is_date(array.type):
            array = pyarrow.compute.cast(array, pyarrow.timestamp("s"))
        return _converted(_integers(array), array.type.unit, self._unit)


def _dates(array: Any) -> tuple[Any, BoolArray]:
    """Return a column with texts as timestamps, and which texts are no times, ``[n]``."""
    if not is_text(array.type):
        return array, np.zeros(len(array), np.bool_)
    dates, is_wrong = cells.parsed(array, pyarrow.timestamp("us"))
    if is_wrong.any():
        zoned, no_zone = cells.parsed(array, pyarrow.timestamp("us", "UTC"))
        if no_zone.sum() < is_wrong.sum():
            return zoned, no_zone
    return dates, is_wrong


def _integers(array: Any) -> Int64Array:
    values: Array = pyarrow.compute.cast(array, pyarrow.int64()).fill_null(0).to_numpy()
    return values


def _converted(values: Int64Array, unit: str, into: str) -> tuple[Int64Array, BoolArray]:
    """Return ``values`` of ``unit`` in the unit ``into``, and which are whole and of 64 bits."""
    if _NANOSECONDS[unit] < _NANOSECONDS[into]:
        quotient, rest = np.divmod(values, _NANOSECONDS[into] // _NANOSECONDS[unit])
        return quotient, rest == 0
    factor = _NANOSECONDS[unit] // _NANOSECONDS[into]
    limit = -(NO_TIME + 1) // factor
    fits = (values >= -limit) & (values <= limit)
    return np.where(fits, values, 0) * factor, fits
