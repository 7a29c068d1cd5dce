"""Rows of a user: ids and cut-offs in tables, arrays and lists."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import from_arrays
from gnnscale.data.tables.row_selection import select_rows

NONE = np.zeros(0, np.int64)


def graph(unit="s", first=0):
    times = np.array([first, first + 5])
    return from_arrays(([0, 1], [1, 2]), np.eye(3), edge_times=times, time_unit=unit, name="small")


DAY = 86_400


@pytest.mark.parametrize(
    ("cells", "unit", "expected"),
    [
        (["1970-01-02", "1970-01-03 00:00:07"], "s", [DAY, 2 * DAY + 7]),
        (["1970-01-02T00:00:01Z", "1970-01-02T01:00:00+01:00"], "s", [DAY + 1, DAY]),
        (["1970-01-02", "1970-02-01"], "day", [1, 31]),
        (["1970-01-02", "1970-01-02 00:00:00.25"], "ms", [DAY * 1000, DAY * 1000 + 250]),
        (["12", "7"], "step", [12, 7]),
        (["12", "7"], "ns", [12, 7]),
    ],
)
def test_cutoffs_of_a_csv_file(tmp_path: Path, cells, unit, expected) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("cutoff,id,more\n" + "".join(f"{cell},{i},x\n" for i, cell in enumerate(cells)))
    vertices, cutoffs = select_rows(str(file), graph(unit), None, None)
    assert (vertices.tolist(), cutoffs.tolist()) == ([0, 1], expected)


def test_cutoffs_of_a_parquet_file_and_of_arrays(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    ids = pa.array(["c", "a"])
    table = pa.table({"id": ["a", "c", "a"], "cutoff": pa.array([1, 2, 1], pa.date32())})
    pq.write_table(table, file)
    known = pa.array(["a", "b", "c"], pa.large_string())
    vertices, cutoffs = select_rows(file, graph(), known, None)
    assert (vertices.tolist(), cutoffs.tolist()) == ([0, 2, 0], [DAY, 2 * DAY, DAY])
    dates = np.array(["1970-01-02", "1970-01-03"], "datetime64[D]")
    for selection in ((ids.to_pylist(), dates), (["c", "a"], [DAY, 2 * DAY])):
        vertices, cutoffs = select_rows(selection, graph(), known, None)
        assert (vertices.tolist(), cutoffs.tolist()) == ([2, 0], [DAY, 2 * DAY])


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (([0, 7, -2], [9, 9, 9]), ("rows: 2 of 3 rows", "small does not have", "such as 7")),
        (([0, 1], [9, -4]), ("1 of 2 cut-offs are before small begins", "1969-12-31 23:59:56")),
        (([0], [[9]]), ("columns id and cutoff",)),
        (([0, 1], [9]), ("columns id and cutoff",)),
        ("rows.json", ("rows=rows.json", "columns id and cutoff")),
        ((NONE, NONE), ("at least one row",)),
        (([0], ["1970-13-01"]), ("such as 2024-01-31", "1970-13-01", "in row 1")),
        (([0] * 5, ["1970-01-02"] * 3 + ["NaT", "9"]), ("got NaT in row 4",)),
        (([0] * 3, ["1970-01-02", "1970-01-03", "9"]), ("of one form, got 9 in row 3",)),
        (([0], [0.5]), ("cut-offs", "float64")),
        (([0], np.array(["NaT"], "datetime64[s]")), ("NaT",)),
    ],
)
def test_what_is_refused(selection, words) -> None:
    with one_line(*words):
        select_rows(selection, graph(), None, None)


def test_what_the_graph_does_not_allow(tmp_path: Path) -> None:
    dates = np.array(["1970-01-02T10"], "datetime64[h]").astype("datetime64[s]")
    with one_line("whole in the graph's unit of time, day"):
        select_rows(([0], dates), graph("day"), None, None)
    with one_line("which count steps"):
        select_rows(([0], dates), graph("step"), None, None)
    with one_line("rows: expected a graph with times"):
        select_rows(([0], [1]), replace(graph(), times=None), None, None)
    file = tmp_path / "rows.csv"
    file.write_text("id,when\n0,1\n")
    with one_line("no column cutoff", error=GraphError):
        select_rows(str(file), graph(), None, None)
    file.write_text("id,cutoff\n0,\n")
    with one_line("rows.csv", "cutoff", error=GraphError):
        select_rows(str(file), graph(), None, None)
