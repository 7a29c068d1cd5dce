"""Splits by time against comparisons of dates."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core import ConfigError, GraphError
from gnnscale.data.time_split import TimeSplit, parse_time


@given(days=st.lists(st.integers(10_000, 20_000), min_size=1, max_size=9))
def test_parts_are_those_of_compared_dates(days: list[int]) -> None:
    days = [9_999, *days]
    split = TimeSplit("2005-01-01", "2010-01-01").parts(np.array(days) * 86_400, "s", "t.csv")
    dates = np.array(days).astype("datetime64[D]").astype(str)
    assert split.train_idx.tolist() == np.flatnonzero(dates < "2005-01-01").tolist()
    later = (dates >= "2005-01-01") & (dates < "2010-01-01")
    assert split.valid_idx.tolist() == np.flatnonzero(later).tolist()
    assert split.test_idx.tolist() == np.flatnonzero(dates >= "2010-01-01").tolist()


@pytest.mark.parametrize(
    ("text", "unit", "time"),
    [
        ("1970-01-02", "s", 86_400),
        ("1970-01-02", "day", 1),
        ("1970-01-02 00:00:01", "day", 2),  # day 1 is before it, day 2 is not
        ("1969-12-31T23:59:59.5", "s", 0),
        ("1970-01-01 00:00:00.000000001", "ns", 1),
        ("-5", "step", -5),
        ("7", "ms", 7),
    ],
)
def test_bounds(text: str, unit: Any, time: int) -> None:
    assert parse_time("dataset.valid_from", text, unit) == time


@pytest.mark.parametrize(
    ("bounds", "unit", "message"),
    [
        ((None, "2010-01-01"), "s", "dataset.valid_from: required for a split by time"),
        (("2010-01-01", "2005-01-01"), "s", "test_from=2005-01-01: expected a time after dataset"),
        (("2010-01-01", "2010-01-01"), "s", "expected a time after dataset.valid_from=2010-01-01"),
        (("May 2010", "2011-01-01"), "s", "valid_from=May 2010: expected a date, as 2024-01-31"),
        (("2010-02-30", "2011-01-01"), "s", "valid_from=2010-02-30: expected a date"),
        (("2010-01-01", "2011-01-01"), "step", "2010-01-01: expected an integer of time_unit=step"),
    ],
)
def test_bounds_that_are_refused(bounds: Any, unit: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TimeSplit(*bounds).bounds(unit)
    assert message in str(caught.value)


def test_no_row_trains() -> None:
    with pytest.raises(GraphError, match=r"t.csv: .*the first cut-off is 2005-01-01 00:00:00"):
        TimeSplit("2005-01-01", "2010-01-01").parts(np.array([1104537600]), "s", "t.csv")
