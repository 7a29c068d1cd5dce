"""Times of a graph, on numbers small enough to check by hand."""

import numpy as np
import pytest

from gnnscale.graph import NO_TIME, GraphTimes, format_time


@pytest.mark.parametrize(
    ("edges", "vertices", "first"),
    [
        ([NO_TIME, 5, 3], None, 3),
        ([NO_TIME, 5, 3], [NO_TIME, 2], 2),
        ([5], [7], 5),
        ([NO_TIME], [NO_TIME], None),
        ([], None, None),
    ],
)
def test_first_time(edges, vertices, first) -> None:
    of_vertices = None if vertices is None else np.array(vertices, np.int64)
    times = GraphTimes(unit="s", edges=np.array(edges, np.int64), vertices=of_vertices)
    assert times.first == first


def test_ages_are_days_or_steps() -> None:
    vertices = np.array([NO_TIME, 0, 86_400])
    asked, cutoffs = np.array([0, 1, 2]), np.array([172_800] * 3)
    for unit, ages in (("s", [0, 2, 1]), ("step", [0, 172_800, 86_400])):
        times = GraphTimes(unit=unit, edges=np.zeros(0, np.int64), vertices=vertices)
        assert times.ages(asked, cutoffs).tolist() == ages
    always = GraphTimes(unit="s", edges=np.zeros(0, np.int64))
    assert always.ages(asked, cutoffs).tolist() == [0, 0, 0]


def test_vertices_of_a_type_have_times_or_none() -> None:
    vertices = np.array([NO_TIME, NO_TIME, 4])
    times = GraphTimes(unit="s", edges=np.zeros(0, np.int64), vertices=vertices)
    assert not times.are_timed(slice(0, 2))
    assert times.are_timed(slice(2, 3))
    assert not times.are_timed(slice(3, 3))


@pytest.mark.parametrize(
    ("time", "unit", "text"),
    [
        (19_723, "day", "2024-01-01"),
        (1_704_067_200, "s", "2024-01-01 00:00:00"),
        (-250, "ms", "1969-12-31 23:59:59.750"),
        (3, "step", "3 (step)"),
    ],
)
def test_times_are_told_as_dates(time, unit, text) -> None:
    assert format_time(time, unit) == text
