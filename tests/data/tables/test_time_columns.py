"""Columns of times against dates that NumPy converts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from gnnscale.core import GraphError
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TimeColumn


def read(file: Path, unit: Any = "s") -> list[int]:
    table = Table([file], ",", 1 << 20)
    column = TimeColumn(table, "time", unit)
    for batch in table.batches(["time"], column.csv_types, 8):
        column.add(batch)
    table.problems.raise_any()
    return column.finish().tolist()


@pytest.mark.parametrize(
    ("cells", "unit", "times"),
    [
        ("1970-01-02\n1969-12-31", "s", [86400, -86400]),
        ("1970-01-02\n1969-12-31", "day", [1, -1]),
        ("1970-01-01 00:01\n1970-01-01T00:00:02", "s", [60, 2]),
        ("1970-01-01 00:00:00.5\n1970-01-01", "ms", [500, 0]),
        ("1970-01-01T02:00:00+02:00\n1970-01-01T00:00:01Z", "s", [0, 1]),
        ("7\n-3", "s", [7, -3]),
        ("7\n-3", "step", [7, -3]),
    ],
)
def test_dates_and_integers_of_csv(tmp_path: Path, cells: str, unit: str, times: list[int]) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"time,x\n{cells.replace(chr(10), ',1' + chr(10))},1\n")
    assert read(file, unit) == times


@given(
    days=st.lists(st.integers(-(10**5), 10**5), min_size=1, max_size=5),
    stored=st.sampled_from(["s", "ms", "us", "ns"]),
    unit=st.sampled_from(["day", "s", "ms", "us", "ns"]),
)
def test_timestamps_of_parquet(
    tmp_path_factory: pytest.TempPathFactory, days: list[int], stored: str, unit: str
) -> None:
    dates = np.array(days).astype("datetime64[D]")
    file = tmp_path_factory.mktemp("times") / "t.parquet"
    kind = pa.timestamp(stored)
    parquet.write_table(
        pa.table({"time": pa.array(dates.astype(f"datetime64[{stored}]"), kind)}), file
    )
    numpy_unit = "D" if unit == "day" else unit
    assert read(file, unit) == dates.astype(f"datetime64[{numpy_unit}]").astype(np.int64).tolist()


@pytest.mark.parametrize(
    ("cells", "unit", "message"),
    [
        (["2024-01-01", "", ""], "s", "row 2: time is empty, expected a time in each row (and 1"),
        (["2024-01-01", "NaT"], "s", "row 2: time is empty, expected a time in each row"),
        (["2024-01-01", "soon"], "s", "row 2: time is 'soon', expected a date or time of ISO 8601"),
        (["2024-01-01", "2024-02-30"], "s", "row 2: time is '2024-02-30', expected a date"),
        (["2024-01-01 12:00"], "day", "expected a whole number of time_unit=day; a smaller unit"),
        (["2024-01-01"], "step", "expected whole numbers, as time_unit=step, got dates"),
        (["9000-01-01"], "ns", "expected a whole number of time_unit=ns"),
    ],
)
def test_what_is_refused(tmp_path: Path, cells: list[str], unit: str, message: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text("time,x\n" + "".join(f"{cell},1\n" for cell in cells))
    with pytest.raises(GraphError) as caught:
        read(file, unit)
    assert message in str(caught.value)


def test_numbers_that_are_no_times(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"time": [0.5]}), file)
    with pytest.raises(GraphError, match="expected dates or whole numbers as times, got double"):
        read(file)
