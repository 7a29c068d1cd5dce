import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gnnscale.core import GraphError
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TimeColumn, TimesOfRows

DAY = 86_400


def table_of(folder: Path, cells: Any) -> Table:
    """Return a table with a column ``at``: CSV of texts, or Parquet of an Arrow array."""
    if isinstance(cells, list):
        path = folder / "t.csv"
        path.write_text("\n".join(["at,other", *(f"{cell},1" for cell in cells)]) + "\n")
    else:
        path = folder / "t.parquet"
        parquet.write_table(pa.table({"at": cells}), path)
    return Table([path], ",", 1 << 20)


def read(folder: Path, cells: Any, unit: str = "auto") -> tuple[list[int], str]:
    table = table_of(folder, cells)
    times = TimesOfRows(TimeColumn(table, "at", unit, "time"))
    for batch in table.batches(["at"], times.column.csv_types, 8):
        times.add(batch)
    table.problems.raise_any()
    return times.finish().tolist(), times.column.unit


@pytest.mark.parametrize(
    ("cells", "unit", "expected"),
    [
        (["1970-01-02", "1969-12-31"], "auto", [DAY, -DAY]),
        (["1970-01-02", "1969-12-31"], "day", [1, -1]),
        (["1970-01-01 00:01:00", "1970-01-01T00:00:01"], "auto", [60, 1]),
        (["1970-01-01 00:00:01.75", "1969-12-31 23:59:59.25"], "auto", [1, -1]),
        (["1970-01-01 00:00:01.75", "1970-01-01 00:00:00.5"], "ms", [1750, 500]),
        (["1970-01-01T02:00:00+01:00", "1970-01-01T00:00:00Z"], "auto", [3600, 0]),
        (["9999-12-31"], "auto", [253_402_214_400]),
        (["5", "-7"], "s", [5, -7]),
        (["3", "4"], "step", [3, 4]),
        (["1289241911.72836", "-0.5"], "s", [1_289_241_911, -1]),
        (pa.array([1, -1], pa.date32()), "auto", [DAY, -DAY]),
        (pa.array([DAY * 1000], pa.date64()), "day", [1]),
        (pa.array([1_500_000, -1], pa.timestamp("us")), "auto", [1, -1]),
        (pa.array([7], pa.timestamp("s", "Europe/Oslo")), "ns", [7 * 10**9]),
        (pa.array([7, 8], pa.uint8()), "day", [7, 8]),
    ],
)
def test_columns_of_times(tmp_path: Path, cells: Any, unit: str, expected: Any) -> None:
    assert read(tmp_path, cells, unit) == (expected, "s" if unit == "auto" else unit)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2250, 1, 1)), min_size=1
    ),
    st.sampled_from(["day", "s", "ms", "us", "ns"]),
)
def test_timestamps_are_rounded_down_as_numpy_does(
    tmp_path_factory: pytest.TempPathFactory, moments: list[datetime.datetime], unit: str
) -> None:
    cells = pa.array(moments, pa.timestamp("us"))
    expected = np.array(moments, "M8[us]").astype(f"M8[{'D' if unit == 'day' else unit}]")
    assert read(tmp_path_factory.mktemp("t"), cells, unit)[0] == expected.astype(np.int64).tolist()


@pytest.mark.parametrize(
    ("cells", "unit", "message"),
    [
        (
            ["1", "2"],
            "auto",
            "column 'at' .dataset.time. holds numbers .int64.: expected their unit",
        ),
        (["2001-01-01"], "step", "holds date32.day.: expected numbers, as dataset.time_unit=step"),
        (["May", "June"], "auto", "holds string: expected dates as 2024-01-31, timestamps of ISO"),
        (["true"], "s", "holds bool: expected dates"),
        (["2001-01-01", "", ""], "auto", "row 2: at is empty .and 1 more like it"),
        (["3", ""], "s", "row 2: at is empty"),
        (
            ["2001-01-01", "9999-12-31"],
            "ns",
            "row 2: at: expected a time in the range of int64 ns, g",
        ),
        (pa.array([2.0**63]), "s", "row 1: at: expected a time in the range of int64 s, got"),
        (
            pa.array([float("nan"), 1]),
            "s",
            "row 1: at: expected a time in the range of int64 s, got nan",
        ),
        (pa.array([-(2**63)]), "s", "row 1: at: expected a time in the range"),
        (pa.array([None, 3], pa.date32()), "auto", "row 1: at is empty"),
    ],
)
def test_bad_columns(tmp_path: Path, cells: Any, unit: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read(tmp_path, cells, unit)


def test_a_missing_column(tmp_path: Path) -> None:
    with pytest.raises(
        GraphError, match=r"has no column 'when' .dataset.edge_time., it has at, other"
    ):
        TimeColumn(table_of(tmp_path, ["1"]), "when", "s", "edge_time")
