import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.data.tables import cells


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1))
def test_numbers_are_read_as_they_are_written(numbers) -> None:
    texts = pa.array(["" if each is None else f" {each!r} " for each in numbers], pa.large_string())
    array, wrong = cells.parsed(texts, pa.float32())
    assert not wrong.any()
    assert array.to_pylist() == numbers


@given(st.lists(st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(9999, 1, 1))))
def test_times_are_days_since_1970(times) -> None:
    kind = pa.timestamp("us")
    texts = pa.array([each.isoformat() for each in times], pa.large_string())
    array, wrong = cells.parsed(texts, kind)
    assert not wrong.any()
    day = datetime.timedelta(days=1)
    expected = [(each - datetime.datetime(1970, 1, 1)) / day for each in times]
    np.testing.assert_allclose(cells.days(array), expected, rtol=1e-12, atol=1e-9)


def test_units_and_zones_of_days() -> None:
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        array = pa.array([86_400 * factor * 3 // 2, None], pa.timestamp(unit, "Asia/Tokyo"))
        assert cells.days(array)[0] == 1.5
        assert np.isnan(cells.days(array)[1])
    assert cells.days(pa.array([3], pa.date32())).tolist() == [3]
    zoned = pa.array(["1970-01-02T00:00:00+02:00", "1970-01-01 12:00Z"], pa.large_string())
    array, wrong = cells.parsed(zoned, pa.timestamp("us", "UTC"))
    assert not wrong.any()
    np.testing.assert_allclose(cells.days(array), [22 / 24, 0.5])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.float32(), ["NA", "1e3", "-.5", "null"], ["1,5", "€ 3", "1 000", "inf", "0x1"]),
        (
            pa.int64(),
            ["7", "-8", "7.0"],
            ["7.5", "x", "99999999999999999999", "9999999999999999999"],
        ),
        (pa.bool_(), ["True", "FALSE", "1"], ["yes", "T"]),
        (pa.timestamp("us"), ["2024-02-29", "2024-01-01 12:00"], ["2024-02-30", "1.2.2024"]),
    ],
)
def test_texts_of_another_kind_are_told(kind, good, bad) -> None:
    array, wrong = cells.parsed(pa.array([*good, *bad], pa.large_string()), kind)
    assert wrong.tolist() == [False] * len(good) + [True] * len(bad)
    assert array.type == kind


def test_decimal_commas() -> None:
    texts = pa.array(["1,5", "2", "1.000,5"], pa.large_string())
    array, wrong = cells.parsed(texts, pa.float32(), ",")
    assert array.to_pylist() == [1.5, 2, None]
    assert wrong.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("texts", "likely"),
    [
        (["31.12.2024", "01.02.2023"], "dates such as '01.02.2023'? write them as 2024-01-31"),
        (["1/5/24 10:30", "12/31/24"], "dates such as"),
        (["Jan 5, 2024", "March 7 2023"], "dates such as"),
        (["1,000.50", "€ 3.10", "20 EUR"], "amounts such as"),
        (["17", "4"], "numbers such as '17'?"),
        (["a@b.c", "x@y.z"], "an id or a name, such as 'a@b.c'?"),
        (["2024-01-31", "2024-01-31T09:30Z"], "dates such as '2024-01-31'? write all with a zone"),
        (["called twice", "no answer"], "free text, such as"),
    ],
)
def test_likely_content(texts, likely) -> None:
    assert cells.likely_content(texts, True).startswith(likely)
