"""Split by time: rows train, validate or test by their cut-offs."""

import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, Int64Array, brief
from gnnscale.data.storage import StoreWriter
from gnnscale.graph import DATE_CODES, Split, TimeUnit, format_time, has_label

#: Parts of a split, in the order of their times.
PARTS = ("train", "valid", "test")
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
    prefix: str = "dataset."  #: beginning of the names of both in errors

    def bounds(self, unit: str) -> tuple[int, int]:
        """Return both bounds in ``unit``; ConfigError: one is missing, or they are out of order."""
        valid = parse_time(f"{self.prefix}valid_from", self.valid_from, unit)
        test = parse_time(f"{self.prefix}test_from", self.test_from, unit)
        if valid >= test:
            raise ConfigError(
                f"{self.prefix}test_from={brief(self.test_from)}: expected a time after "
                f"{self.prefix}valid_from={brief(self.valid_from)}"
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
                f"{source}: {self.prefix}valid_from={brief(self.valid_from)}: expected a row with "
                f"an earlier cut-off, to train; the first cut-off is {first}"
            )
        return Split(train_idx=train_idx, valid_idx=valid_idx, test_idx=test_idx)


def check_part_times(
    split: Split, cutoffs: Int64Array, unit: TimeUnit, source: object, advice: str = ""
) -> None:
    """Raise GraphError unless training is before validation, and both before test.

    ``cutoffs`` are those of all rows. ``source`` begins the message, and ``advice`` ends it.
    """
    parts = {name: getattr(split, f"{name}_idx") for name in PARTS}
    for (earlier, rows), (later, later_rows) in combinations(parts.items(), 2):
        if not (len(rows) and len(later_rows)):
            continue
        last, first = int(cutoffs[rows].max()), int(cutoffs[later_rows].min())
        if last >= first:
            raise GraphError(
                f"{source}: expected {earlier} rows before {later} rows, got cut-offs up to "
                f"{format_time(last, unit)} and from {format_time(first, unit)} on{advice}"
            )


def parse_time(option: str, text: str | None, unit: str) -> int:
    """Return the time in ``unit`` that an option names: a date of ISO 8601, or an integer.

    ConfigError, which begins with ``option``: it is missing, or no time.
    """
    if text is None:
        raise ConfigError(f"{option}: required for a split by time, as 2024-01-31")
    if _INTEGER.fullmatch(text):
        return int(text)
    if unit in DATE_CODES and _DATE.fullmatch(text):
        try:
            # In nanoseconds NumPy wraps dates beyond 2262.
            exact = np.array([text], "datetime64[ns]" if unit == "ns" else "datetime64[us]")
        except ValueError:  # such as 2024-02-30
            pass
        else:
            whole = exact.astype(f"datetime64[{DATE_CODES[unit]}]")
            # Times in the unit are before a bound between two of them if the next one is not.
            return int(whole.astype(np.int64)[0]) + bool(whole[0] < exact[0])
    what = "a date, as 2024-01-31, or an integer" if unit in DATE_CODES else "an integer"
    raise ConfigError(f"{option}={brief(text)}: expected {what} of time_unit={unit}")


def check_bounds(split: str, *, valid_from: str | None, test_from: str | None) -> None:
    """Raise ConfigError for a bound without ``dataset.split=time``, or ``split=time`` without."""
    for option, value in (("valid_from", valid_from), ("test_from", test_from)):
        if value is not None and split != "time":
            raise ConfigError(
                f"dataset.{option}={brief(value)}: expected dataset.split=time, got {split}"
            )
        if value is None and split == "time":
            parse_time(f"dataset.{option}", value, "s")


def write_split(split: TimeSplit, writer: StoreWriter, name: str) -> None:
    """Split the labeled vertices and edges in ``writer``, of the graph ``name``, by their times.

    ConfigError: bounds are no times, or out of order. GraphError: a part has none of them.
    """
    unit, vertex_times = writer.time_unit, writer.edges.vertex_times
    assert unit is not None  # options without a column of times are refused
    if writer.has_labels:
        assert vertex_times is not None
        parts = labeled_parts(split, writer.labels, vertex_times, unit, f"vertices of {name}")
        writer.set_split(*parts, source=f"split of {name} by time")
    if (labels := writer.edges.labels) is not None:
        times = writer.edges.times()
        assert times is not None
        parts = labeled_parts(split, labels, times, unit, f"edges of {name}")
        writer.set_edge_split(*parts, source=f"split of the edges of {name} by time")


def labeled_parts(
    split: TimeSplit, labels: Array, times: Int64Array, unit: str, what: str
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the numbers of labeled vertices or edges in each part, by their times.

    ``labels`` and ``times`` are ``[n]``. GraphError, which names them ``what``: a part is empty.
    """
    labeled = np.flatnonzero(has_label(labels))
    labeled_times = np.asarray(times)[labeled]
    valid, test = split.bounds(unit)
    part = (labeled_times >= valid).astype(np.int8) + (labeled_times >= test)
    counts = np.bincount(part, minlength=3).tolist()
    if not all(counts):
        span = "none"
        if len(labeled_times):
            ends = (int(labeled_times.min()), int(labeled_times.max()))
            span = " to ".join(format_time(time, unit) for time in ends)
        raise GraphError(
            f"dataset.valid_from={brief(split.valid_from)}, dataset.test_from="
            f"{brief(split.test_from)}: expected labeled {what} in each part, got {counts[0]} for "
            f"train, {counts[1]} for valid, {counts[2]} for test; their times are {span}"
        )
    train, validation, held_out = (labeled[part == number] for number in range(3))
    return train, validation, held_out
