import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.graph import NO_TIME, GraphSchema, time_order
from gnnscale.graph.time_order import (
    degrees_between,
    edge_times,
    list_slices,
    order_problem,
    sort_by_time,
)

#: Times whose difference exceeds 63 bits.
FAR = (1 - 2**63, 2**63 - 1)


@settings(max_examples=100, deadline=None)
@given(
    lists=st.lists(st.lists(st.sampled_from([*range(-3, 4), *FAR]), max_size=6), max_size=8),
    size=st.integers(1, 7),
)
def test_lists_are_sorted_as_python_sorts(lists: list[list[int]], size: int) -> None:
    indptr = np.cumsum([0, *map(len, lists)])
    times = np.array([time for row in lists for time in row], np.int64)
    numbers, pairs = np.arange(len(times)), np.arange(2 * len(times)).reshape(-1, 2)
    expected = [
        int(first) + position
        for first, row in zip(indptr, lists, strict=False)
        for position in sorted(range(len(row)), key=row.__getitem__)
    ]
    ordered = times[expected]
    original, time_order._SORTED = time_order._SORTED, size
    try:
        sort_by_time(indptr, times, [numbers, pairs])
    finally:
        time_order._SORTED = original
    assert numbers.tolist() == expected
    assert times.tolist() == ordered.tolist()
    assert (pairs // 2 == numbers[:, None]).all()
    slices = list(list_slices(indptr, size))
    assert sum(len(ends) - 1 for _, ends in slices) == len(lists)
    assert all(len(ends) == 2 or ends[-1] - ends[0] <= size for _, ends in slices)
    assert [int(indptr[first]) for first, _ in slices] == [int(ends[0]) for _, ends in slices]


def test_lists_without_times_are_left_as_they_are() -> None:
    indptr, times = np.array([0, 3, 5, 7]), np.array([5, 3, 4, NO_TIME, NO_TIME, 2, 1])
    numbers = np.arange(7)
    sort_by_time(indptr, times, [numbers])
    assert times.tolist() == [3, 4, 5, NO_TIME, NO_TIME, 1, 2]
    assert numbers.tolist() == [1, 2, 0, 3, 4, 6, 5]


def test_an_edge_is_known_from_the_later_of_two_times_on() -> None:
    own, of_vertices, sources = np.array([5, 1, 3]), np.array([2, 4]), np.array([0, 0, 1])
    assert edge_times(own, of_vertices, sources).tolist() == [5, 2, 4]
    assert own.tolist() == [5, 1, 3]
    assert edge_times(None, of_vertices, sources).tolist() == [2, 2, 4]
    assert edge_times(own, None, sources) is own
    assert edge_times(None, None, sources) is None


@pytest.mark.parametrize(
    ("times", "ids", "problem"),
    [
        ([1, 2, 0, 0], [1, 0, 0, 1], None),
        ([NO_TIME, NO_TIME, 0, 0], [0, 1, 0, 0], None),
        ([1, 2, 1, 0], [0, 0, 1, 0], "the neighbors of vertex 1 are not sorted by time"),
        ([1, 1, 0, 0], [1, 0, 0, 0], "the neighbors of vertex 0 of one time are not sorted"),
        ([1, 1, NO_TIME, 0], [0, 0, 0, 0], "the neighbors of vertex 1 have times in part"),
    ],
)
def test_a_list_out_of_order_is_told(times: list[int], ids: list[int], problem: str | None) -> None:
    indptr, schema = np.array([0, 2, 2 + 2]), GraphSchema.homogeneous(2)
    arrays = (indptr, np.array(ids), np.array(times, np.int64))
    assert order_problem(*arrays, schema) == problem


def test_the_edge_type_of_a_list_out_of_order_is_told() -> None:
    schema = GraphSchema.of({"a": 1, "b": 1}, [("a", "x", "b"), ("b", "y", "b")])
    arrays = (np.array([0, 1, 3]), np.array([0, 1, 1]), np.array([9, 3, 2]))
    assert order_problem(*arrays, schema) == (
        "the neighbors of vertex 1 by b-y-b are not sorted by time"
    )


@given(
    lists=st.lists(st.lists(st.integers(-4, 4)), min_size=1, max_size=5),
    always=st.booleans(),
    data=st.data(),
)
def test_degrees_between_times(lists, always, data) -> None:
    lists = [sorted(times) for times in lists]
    if always:
        lists[0] = [NO_TIME] * len(lists[0])
    indptr = np.cumsum([0, *map(len, lists)])
    times = np.array([time for each in lists for time in each], np.int64)
    vertex = st.integers(0, len(lists) - 1)
    bound = st.integers(-5, 5) | st.sampled_from([NO_TIME, 2**63 - 1])
    asked = data.draw(st.lists(st.tuples(vertex, bound, bound)))
    vertices, *intervals = np.array(asked, np.int64).reshape(-1, 3).T
    intervals = np.sort(intervals, axis=0)
    expected = [
        sum(time == NO_TIME or low <= time <= high for time in lists[vertex])
        for vertex, low, high in zip(vertices, *intervals, strict=True)
    ]
    degrees = degrees_between(indptr, times, vertices, intervals)
    assert degrees.tolist() == expected
