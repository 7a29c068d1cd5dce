from itertools import cycle

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache import CacheTask
from gnnscale.cache.base import (
    deal,
    feature_cache,
    group_by_owner,
    hottest_rows,
    predict_traffic,
    share_out,
)

LISTS = [[1, 2], [2], [], [0, 1, 2]]  # out-degrees 1, 2, 3 and 0


@pytest.fixture
def task(graph_of: Make, make_task: Make, reading: Make) -> CacheTask:
    """Devices 1 and 2 of three, whose rows have 8 bytes and take a request of 4 each."""
    made = make_task(graph_of(LISTS), [None, 100, 100], cliques=[(1, 2)], request_bytes=4)
    return reading(made, ([5, 1, 7, 0], [4, 3, 0, 9]), ([5, 2, 1, 6], [6, 0, 0, 2]))


def test_the_hottest_rows_are_shared_out(task: CacheTask) -> None:
    for hotness, num_rows, expected in (
        (np.array([1, 3, 0, 2]), 3, [1, 3, 0]),
        (np.array([5, 5, 0, 5]), 4, [1, 0, 3, 2]),
        (np.zeros(4, np.float32), 2, [2, 1]),
        (np.zeros(4, np.int32), 0, []),
        (np.zeros(4, np.int32), 1 << 40, [2, 1, 0, 3]),
    ):
        assert hottest_rows(task, hotness, num_rows).tolist() == expected
    local = [np.array([9, 1, 5, 0], np.int32), np.array([0, 2, 1, 7], np.int32)]
    order = np.array([0, 2, 3, 1], np.int32)
    for room, expected in ((16, [[0, 2], [3, 1]]), (8, [[0], [2, 3]])):
        kept = share_out(task, order, local, [room, 16])
        assert [each.tolist() for each in kept] == expected
    cache = feature_cache(task, task.device_at[2], np.array([3, 0]), np.array([3, 2]))
    assert (cache.device, cache.name, cache.budget_bytes) == (2, "emulated:2", 100)
    assert (cache.feature_bytes, cache.topology_bytes) == (2 * 8, 8 + 3 * 4 + 8)
    assert cache.look_ahead is None
    order, owner = np.array([7, 5, 3, 1]), np.array([1, -1, 0, 1])
    assert [each.tolist() for each in group_by_owner(order, owner, 3)] == [[3], [7, 1], []]


@settings(max_examples=30)
@given(st.integers(0, 30), st.lists(st.integers(0, 20) | st.just(1 << 50), min_size=1, max_size=5))
def test_dealing_is_fair(num_vertices: int, capacities: list[int]) -> None:
    order = np.arange(num_vertices)[::-1]
    kept = [each.tolist() for each in deal(order, capacities)]
    # In turn, hottest first; who is full is passed over.
    expected: list[list[int]] = [[] for _ in capacities]
    turns = cycle(range(len(capacities)))
    for vertex in order[: sum(capacities)].tolist():
        expected[next(at for at in turns if len(expected[at]) < capacities[at])].append(vertex)
    assert kept == expected


def test_reads_by_place(task) -> None:
    for cliques, rows, lists in (
        ([(1, 2)], [(0, 7, 5, 1), (0, 1, 11, 2)], [(0, 9, 0, 7), (0, 2, 0, 6)]),
        # Who is alone reads no other cache.
        ([(1,), (2,)], [(0, 7, 0, 6), (0, 0, 11, 3)], [(0, 9, 0, 7), (0, 0, 0, 8)]),
    ):
        first = feature_cache(task, task.device_at[1], np.array([2]), np.array([3]))
        second = feature_cache(task, task.device_at[2], np.array([0, 3]), np.array([], np.int32))
        found = predict_traffic(task, [first, second], cliques, task.presampled)
        assert [each.rows for each in found] == rows
        assert [each.lists for each in found] == lists
        assert [each.link_bytes for each in found] == [8 * each[-1] for each in rows]
        # Rows take two requests, and each read of a list takes one.
        expected = [2 * row[-1] + list_[-1] for row, list_ in zip(rows, lists, strict=True)]
        assert [each.transactions for each in found] == expected


def test_reads_of_empty_lists_and_packed_rows(graph_of, make_task, reading) -> None:
    made = make_task(graph_of(LISTS), [100], samples=False, loads=False, request_bytes=64)
    task = reading(made, ([5, 1, 7, 0], [4, 3, 0, 9]))
    empty = feature_cache(task, task.device_at[0], np.array([2]), np.array([], np.int32))
    (found,) = predict_traffic(task, [empty], [(0,)], task.presampled)
    assert (found.rows, found.lists) == ((7, 6), (0, 0))
    assert (found.transactions, found.link_bytes) == (round(6 * 8 / 64), 48)
    task = make_task(graph_of([[], [], []]), [100], batch_size=3, fanouts=(2, 2))
    empty = feature_cache(task, task.device_at[0], np.array([], int), np.array([], int))
    (found,) = predict_traffic(task, [empty], [(0,)], task.presampled)
    # Three rows of one request, and the offsets of three lists at each hop.
    assert found.transactions == 3 + 2 * 3 == 3 + task.presampled.lists.total(0)
    kept = feature_cache(task, task.device_at[0], np.array([], int), np.array([1, 2]))
    (found,) = predict_traffic(task, [kept], [(0,)], task.presampled)
    assert (found.lists, found.transactions) == ((4, 2), 3 + 2)
