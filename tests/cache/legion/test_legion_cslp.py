from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache import CacheTask
from gnnscale.cache.legion.legion import candidates
from gnnscale.cache.problem import list_bytes

#: Lists of 16, 12, 8 and 20 bytes; rows of 8.
LISTS = [[1, 2], [2], [], [0, 1, 2]]
#: What two devices read: rows, and lists.
READS = ([5, 1, 7, 0], [4, 3, 0, 9]), ([5, 2, 1, 6], [6, 0, 0, 2])


@pytest.fixture
def two(graph_of: Make, make_task: Make, reading: Make) -> CacheTask:
    return reading(make_task(graph_of(LISTS), [200, 200], cliques=[(0, 1)]), *READS)


def test_vertices_come_in_the_order_of_all_reads(two, graph_of, make_task, reading) -> None:
    found = candidates(two, [0, 1], two.presampled)
    assert found.rows.tolist() == [0, 2, 3, 1]  # 10, 8, 6, 3
    assert found.row_hotness.between(0, 4).tolist() == [0, 10, 18, 24, 27]
    assert found.lists.tolist() == [3, 0, 1]  # 11, 10, 3; nobody reads list 2
    assert found.list_hotness.between(0, 3).tolist() == [0, 11, 21, 24]
    assert found.list_bytes.between(0, 3).tolist() == [0, 20, 36, 48]
    assert (found.total_row_hotness, found.total_list_hotness) == (27, 24)
    alone = candidates(two, [1], two.presampled)
    assert alone.rows.tolist() == [3, 0, 1, 2]
    assert (alone.total_row_hotness, alone.total_list_hotness) == (14, 8)
    found = candidates(with_budgets(two, 8, 0), [0, 1], two.presampled)
    assert found.rows.tolist() == [0]
    assert found.lists.tolist() == []  # list 2 of 8 bytes would fit, but is never read
    assert (found.total_row_hotness, found.total_list_hotness) == (27, 24)
    task = make_task(graph_of(LISTS), [200])  # out-degrees are 1, 2, 3 and 0
    task = reading(task, ([1, 1, 1, 1], [2, 2, 2, 2]))
    found = candidates(task, [0], task.presampled)
    assert found.rows.tolist() == found.lists.tolist() == [2, 1, 0, 3]


def changed(task: CacheTask, **devices: Any) -> CacheTask:
    found = replace(task, **devices)
    found.__dict__.update(presampled=task.presampled, counted=task.counted)
    return found


def with_budgets(task: CacheTask, *budgets: int) -> CacheTask:
    devices = zip(task.devices, budgets, strict=True)
    return changed(task, devices=tuple(replace(d, budget_bytes=b) for d, b in devices))


@pytest.mark.parametrize(("budgets", "lists"), [((20, 0), [3]), ((19, 19), [0, 1]), ((15, 9), [1])])
def test_a_list_larger_than_each_memory_lets_others_pass(two, budgets, lists) -> None:
    """List 3 has 20 bytes, lists 0 and 1 have 16 and 12."""
    assert candidates(with_budgets(two, *budgets), [0, 1], two.presampled).lists.tolist() == lists


@pytest.mark.long
@settings(max_examples=20)
@given(data=st.data(), counted=st.booleans())
def test_rows_count_as_they_are_foretold_to_be_read(tasks, data, counted) -> None:
    task = data.draw(tasks())
    clique = task.cliques[0]
    reads = task.presampled if counted else task.expected
    found, appearances = candidates(task, clique, reads), task.counted.rows.sum(clique)
    wide = np.int64 if appearances.dtype == np.int32 else np.float64
    sums = np.concatenate([[0], np.cumsum(appearances[found.rows], dtype=wide)])
    assert np.allclose(found.row_hotness.between(0, len(found.rows)), sums, rtol=1e-12)
    assert np.allclose(found.row_hotness.sums, [*sums[: len(sums) > 1], sums[-1]], rtol=1e-12)


def test_the_host_reads_no_list_over_a_link(two: CacheTask) -> None:
    """Lists are rated by the reads of devices that sample; the others still may keep some."""
    task = changed(two, devices=(replace(two.devices[0], samples=False), two.devices[1]))
    found = candidates(task, [0, 1], task.presampled)
    assert found.lists.tolist() == [0, 3]  # 6, 2; it reads no other
    assert found.total_list_hotness == 8
    shared = found.share_lists(task, [0, 1], 2, np.array([40, 20]))
    assert [each.tolist() for each in shared.vertices] == [[3], [0]]
    assert found.rows.tolist() == [0, 2, 3, 1]
    nobody = candidates(task, [0], task.presampled)
    assert (len(nobody.lists), nobody.total_list_hotness) == (0, 0)


@settings(max_examples=20)
@given(data=st.data())
def test_capacities_hold_and_nothing_is_kept_twice(tasks: Make, data: st.DataObject) -> None:
    task = data.draw(tasks())
    clique = data.draw(st.sampled_from(task.cliques))
    found = candidates(task, clique, task.presampled)
    rooms = np.array([task.device_at[each].budget_bytes for each in clique], np.int64)
    rows = found.share_rows(task, clique, rooms)
    lists = found.share_lists(task, clique, len(found.lists), rooms)
    for kept, size in (
        (rows, lambda vertices: len(vertices) * task.row_bytes),
        (lists, lambda vertices: list_bytes(task.graph, vertices)),
    ):
        together = np.concatenate(kept.vertices)
        assert len(np.unique(together)) == len(together)
        assert kept.bytes.tolist() == [size(each) for each in kept.vertices]
        assert (kept.bytes <= rooms).all()
    # Of rows, which are equal, as many as fit; and these are the hottest.
    num_rows = min(sum(int(room) // task.row_bytes for room in rooms), task.graph.num_vertices)
    assert sorted(np.concatenate(rows.vertices)) == sorted(found.rows[:num_rows])
    # A list is left out only where no device has room for it.
    left = rooms - lists.bytes
    for vertex in set(found.lists) - set(np.concatenate(lists.vertices)):
        assert list_bytes(task.graph, np.array([vertex])) > left.max()


@settings(max_examples=20)
@given(data=st.data())
def test_with_room_for_everything_it_is_algorithm_1(tasks: Make, data: st.DataObject) -> None:
    task = data.draw(tasks())
    everything = tuple(replace(each, budget_bytes=10_000) for each in task.devices)
    task = replace(task, devices=everything)
    clique = data.draw(st.sampled_from(task.cliques))
    found, rooms = candidates(task, clique, task.presampled), np.full(len(clique), 10_000)
    for kept, local in (
        (found.share_rows(task, clique, rooms), task.presampled.rows.of),
        (found.share_lists(task, clique, len(found.lists), rooms), task.presampled.lists.of),
    ):
        for device, vertices in zip(clique, kept.vertices, strict=True):
            for vertex in vertices:
                assert local(device)[vertex] == max(local(each)[vertex] for each in clique)
