from typing import Any

import numpy as np
import pandas
import pytest
import torch

from gnnscale.core import GraphError
from gnnscale.data.time_inputs import TimeValues, common_unit, read_times, read_typed_times
from gnnscale.graph import NO_TIME, GraphSchema

SCHEMA = GraphSchema.of({"user": 2, "item": 1}, [("user", "buys", "item"), ("item", "of", "user")])
DAYS = np.array(["1970-01-02", "1970-01-11"], "datetime64[D]")


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        ([1, -2], None, [1, -2]),
        (torch.tensor([[1], [2]]), None, [1, 2]),
        (np.uint64([1, 2]), None, [1, 2]),
        (DAYS, "day", [1, 10]),
        (DAYS.astype("datetime64[s]"), "s", [86_400, 864_000]),
        (pandas.Series(DAYS.astype("datetime64[ms]")), "ms", [86_400_000, 864_000_000]),
        (DAYS.astype(">M8[ns]"), "ns", [86_400 * 10**9, 864_000 * 10**9]),
    ],
)
def test_times_are_integers_or_dates(values: Any, unit: str | None, expected: list[int]) -> None:
    times = read_times(values, 2, "times")
    assert (times.values.tolist(), times.values.dtype, times.unit) == (expected, np.int64, unit)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], r"t: expected 2, got \[1\]"),
        ([[1, 2], [3, 4]], r"t: expected 2, got \[2, 2\]"),
        ([1.0, 2.0], "t: expected integers or datetime64, got float64; astype"),
        ([True, False], "t: expected integers or datetime64, got bool; astype"),
        (["2001-01-01", "2002-01-01"], "t: expected integers or datetime64, got <U10; astype"),
        (
            np.array([0, 2**63], np.uint64),
            "t: expected integers below 2\\^63, got 9223372036854775",
        ),
        (np.array(["NaT", "2001"], "M8[s]"), "t: expected a time each, got NaT for 1 of 2"),
        ([NO_TIME, NO_TIME], "t: expected a time each, got NaT for 2 of 2"),
        (np.array(["2001", "2002"], "M8[Y]"), r"t: expected datetime64 of D, s, ms, us, ns, got"),
        (np.array([1, 2], "M8[25s]"), r"t: expected datetime64 of D, .*, got datetime64\[25s\]"),
    ],
)
def test_bad_times(values: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_times(values, 2, "t")


def test_one_unit() -> None:
    integers, seconds = TimeValues(np.arange(2)), TimeValues(np.arange(2), "s")
    assert common_unit({"a": integers}, None, "g") == "s"
    assert common_unit({"a": integers, "b": TimeValues(np.arange(1), "ms")}, "ms", "g") == "ms"
    assert common_unit({"a": integers}, "step", "g") == "step"
    with pytest.raises(GraphError, match="g: expected times of one unit, got a in s, b in ms; ast"):
        common_unit({"a": seconds, "b": TimeValues(np.arange(1), "ms")}, None, "g")
    with pytest.raises(GraphError, match="g: time_unit=day: expected the unit of a, which is s"):
        common_unit({"a": seconds}, "day", "g")
    with pytest.raises(
        GraphError, match="g: time_unit=h: expected one of day, s, ms, us, ns, step"
    ):
        common_unit({"a": integers}, "h", "g")


def test_times_by_type() -> None:
    times = read_typed_times(
        SCHEMA, {"user": [3, 4]}, {("user", "buys", "item"): [5]}, [1, 2], unit=None, name="g"
    )
    assert times is not None
    assert (times.unit, times.vertices[1], times.edges[1]) == ("s", None, None)
    assert times.of_all_vertices(SCHEMA).tolist() == [3, 4, NO_TIME]
    assert times.of_edges(SCHEMA, 0, np.array([1])).tolist() == [5]
    assert times.of_edges(SCHEMA, 1, np.array([0, 0])) is None
    assert read_typed_times(SCHEMA, {}, {}, [1, 2], unit=None, name="g") is None


@pytest.mark.parametrize(
    ("vertices", "edges", "message"),
    [
        ({"shop": [1]}, {}, "g: times of vertices of shop: no such type, allowed are user, item"),
        (
            {},
            {("a", "b", "c"): [1]},
            "g: times of edges of .*: no such type, allowed are user-buys",
        ),
        ({"user": [1]}, {}, r"g: times of vertices of user: expected 2, got \[1\]"),
        (
            {"user": DAYS},
            {("user", "buys", "item"): DAYS[:1].astype("M8[ms]")},
            "g: expected times of one unit, got vertices of user in day, edges of user-buys-item",
        ),
    ],
)
def test_bad_times_by_type(vertices: Any, edges: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_typed_times(SCHEMA, vertices, edges, [1, 2], unit=None, name="g")
