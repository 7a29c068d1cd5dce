"""Columns of times: dates, timestamps, or numbers in a unit that the user states."""

from typing import Any, get_args

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, Int64Array, brief, pyarrow
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, is_number
from gnnscale.data.tables.table import Table
from gnnscale.graph import NO_TIME, TIME_UNITS, TimeUnit

#: Values of the option ``time_unit``; ``auto`` reads dates as seconds.
TIME_UNIT_CHOICES = ("auto", *TIME_UNITS)
#: Nanoseconds of each unit.
_NS: dict[str, int] = {
    "day": 86_400 * 10**9,
    **{"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1},
}


class TimeColumn:
    """Reader of a column of times, an int64 in ``unit`` each, rounded down; none may be empty.

    Args:
        table: table with the column.
        name: name of the column.
        unit: one of ``TIME_UNIT_CHOICES``; ``auto`` is for dates and timestamps alone.
        option: option that names the column, for errors.

    Raises:
        GraphError: the column is missing, holds texts, holds numbers and ``unit`` is ``auto``, or
            holds dates and ``unit`` is ``step``.
    """

    def __init__(self, table: Table, name: str, unit: str, option: str) -> None:
        self.name = table.require(option, name)
        kind = table.types[name]
        where = f"{table.path}: column {brief(repr(name))} (dataset.{option})"
        if cells.is_date(kind):
            if unit == "step":
                raise GraphError(
                    f"{where} holds {brief(kind)}: expected numbers, as dataset.time_unit=step; "
                    "dataset.time_unit=auto reads dates"
                )
        elif not is_number(kind) or pyarrow.types.is_boolean(kind):
            raise GraphError(
                f"{where} holds {brief(kind)}: expected dates as 2024-01-31, timestamps of ISO "
                "8601, all with a zone or all without, or numbers"
            )
        elif unit == "auto":
            units = ", ".join(TIME_UNITS)
            raise GraphError(
                f"{where} holds numbers ({brief(kind)}): expected their unit as "
                f"dataset.time_unit, one of {units}"
            )
        self.unit: TimeUnit = next(
            of for of in get_args(TimeUnit) if of == ("s" if unit == "auto" else unit)
        )
        csv = cells.csv_date_type(kind) if cells.is_date(kind) else kind
        #: Arrow type to parse the CSV column as
        self.csv_types: dict[str, Any] = {name: csv if table.is_csv else kind}

    def read(self, batch: Batch) -> Int64Array:
        """Return the times of a batch; report cells that are empty or out of range."""
        array = batch.columns[self.name]
        empty = batch.report_nulls(self.name)
        if cells.is_date(array.type):
            times, wrong = _of_dates(array, self.unit)
        else:
            times, wrong = _of_numbers(batch, self.name)
        times[empty] = 0
        batch.report(
            wrong & ~empty,
            (self.name, "time"),
            lambda index: (
                f"{brief(self.name)}: expected a time in the range of int64 {self.unit}, got "
                f"{brief(str(array[index]))}"
            ),
        )
        return times


class TimesOfRows:
    """Collector of the times of all rows of a table."""

    def __init__(self, column: TimeColumn) -> None:
        self.column = column
        self._parts: list[Int64Array] = []

    def add(self, batch: Batch) -> None:
        """Append the times of a batch; report those that cannot be read."""
        self._parts.append(self.column.read(batch))

    def finish(self) -> Int64Array:
        """Return the times ``[num_rows]``."""
        return np.concatenate([np.empty(0, np.int64), *self._parts])


def _of_dates(array: Any, unit: str) -> tuple[Int64Array, BoolArray]:
    """Return dates or timestamps in ``unit``, and which are out of its range."""
    if pyarrow.types.is_date(array.type):
        array = pyarrow.compute.cast(array, pyarrow.timestamp("ms"))
    counts = pyarrow.compute.cast(array, pyarrow.int64()).fill_null(0)
    times: Int64Array = np.array(counts.to_numpy(zero_copy_only=False), np.int64)
    source, target = _NS[array.type.unit], _NS[unit]
    if source <= target:
        return np.floor_divide(times, target // source), np.zeros(len(times), np.bool_)
    factor = source // target
    limit = np.iinfo(np.int64).max // factor
    wrong = (times < -limit) | (times > limit)
    times[wrong] = 0
    return times * factor, wrong


def _of_numbers(batch: Batch, name: str) -> tuple[Int64Array, BoolArray]:
    """Return numbers, rounded down, and which are no int64."""
    array = batch.columns[name]
    if pyarrow.types.is_signed_integer(array.type):
        times = np.array(array.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        return times, np.asarray(times == NO_TIME)
    values: Array = np.floor(batch.floats(name, np.float64))
    wrong = ~(np.abs(values) < 2.0**63)
    return np.where(wrong, 0, values).astype(np.int64), wrong
