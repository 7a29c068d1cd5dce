"""Split by time: rows train, validate or test by their cut-offs."""

import re
from dataclasses import dataclass

import numpy as np

from gnnscale.core import ConfigError, GraphError, Int64Array, brief
from gnnscale.graph import Split

#: Units of NumPy's datetime64 by unit of times.
_NUMPY_UNITS = {"day": "D", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?")
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class TimeSplit:
    """Bounds of a split by time, as the options have them.

    A row trains if its cut-off is before ``valid_from``, validates if it is before ``test_from``,
    and is for test otherwise.
    """

    valid_from: str | None  #: date, or integer in the unit of the times
    test_from: str | None  #: date, or integer in the unit of the times

    def bounds(self, unit: str) -> tuple[int, int]:
        """Return both bounds in ``unit``; ConfigError: one is missing, or they are out of order."""
        valid = parse_time("dataset.valid_from", self.valid_from, unit)
        test = parse_time("dataset.test_from", self.test_from, unit)
        if valid >= test:
            raise ConfigError(
                f"dataset.test_from={brief(self.test_from)}: expected a time after "
                f"dataset.valid_from={brief(self.valid_from)}"
            )
        return valid, test

    def parts(self, cutoffs: Int64Array, unit: str, source: object) -> Split:
        """Return the row numbers of the parts by ``cutoffs`` ``[num_rows]``.

        GraphError, which names ``source``: no row trains.
        """
        valid, test = self.bounds(unit)
        part = (cutoffs >= valid).astype(np.int8) + (cutoffs >= test)
        train_idx, valid_idx, test_idx = (np.flatnonzero(part == number) for number in range(3))
        if not len(train_idx):
            first = "none" if not len(cutoffs) else format_time(int(cutoffs.min()), unit)
            raise GraphError(
                f"{source}: dataset.valid_from={brief(self.valid_from)}: expected a row with an "
                f"earlier cut-off, to train; the first cut-off is {first}"
            )
        return Split(train_idx=train_idx, valid_idx=valid_idx, test_idx=test_idx)


def parse_time(option: str, text: str | None, unit: str) -> int:
    """Return the time in ``unit`` that an option names: a date of ISO 8601, or an integer.

    ConfigError, which begins with ``option``: it is missing, or no time.
    """
    if text is None:
        raise ConfigError(f"{option}: required with dataset.split=time, as 2024-01-31")
    if _INTEGER.fullmatch(text):
        return int(text)
    if unit in _NUMPY_UNITS and _DATE.fullmatch(text):
        try:
            # In nanoseconds NumPy wraps dates beyond 2262.
            exact = np.array([text], "datetime64[ns]" if unit == "ns" else "datetime64[us]")
        except ValueError:  # such as 2024-02-30
            pass
        else:
            whole = exact.astype(f"datetime64[{_NUMPY_UNITS[unit]}]")
            # Times in the unit are before a bound between two of them if the next one is not.
            return int(whole.astype(np.int64)[0]) + bool(whole[0] < exact[0])
    what = "a date, as 2024-01-31, or an integer" if unit in _NUMPY_UNITS else "an integer"
    raise ConfigError(f"{option}={brief(text)}: expected {what} of time_unit={unit}")


def format_time(time: int, unit: str) -> str:
    """Return a time in ``unit`` as a date, for messages; an integer if it is none."""
    if unit not in _NUMPY_UNITS:
        return f"{time} ({unit})"
    (date,) = np.array([time]).astype(f"datetime64[{_NUMPY_UNITS[unit]}]")
    return str(date).replace("T", " ")
