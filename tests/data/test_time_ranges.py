import numpy as np
import pytest

from gnnscale.data import from_arrays
from gnnscale.data.time_ranges import time_ranges

ENDS, X = ([0, 1, 1], [1, 0, 1]), np.ones((2, 1), np.float32)


@pytest.mark.parametrize(
    ("unit", "times", "expected"),
    [
        ("s", [86_400, -1, 5], "1969-12-31 to 1970-01-02"),
        ("day", [365, 0, 1], "1970-01-01 to 1971-01-01"),
        ("ns", [1, 2, 3], "1970-01-01"),
        ("step", [1200, 3, 4], "step 3 to step 1,200"),
    ],
)
def test_ranges_are_dates(unit: str, times: list[int], expected: str) -> None:
    graph = from_arrays(ENDS, X, edge_times=times, time_unit=unit)
    assert time_ranges(graph) == {"vertices": "always", "edges": expected}


def test_vertices_have_their_range_and_graphs_without_times_have_none() -> None:
    graph = from_arrays(ENDS, X, vertex_times=[7, 9], time_unit="step")
    assert time_ranges(graph) == dict.fromkeys(("vertices", "edges"), "step 7 to step 9")
    assert time_ranges(from_arrays(ENDS, X)) == {}
    assert time_ranges(from_arrays(([], []), X, edge_times=[])) == {
        "vertices": "always",
        "edges": "always",
    }
