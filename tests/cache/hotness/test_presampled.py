from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnscale.cache import CacheTask, Draws
from gnnscale.cache.hotness import Presampled, presample
from gnnscale.cache.hotness.presampled import DeviceReads
from gnnscale.graph import Graph


def counted_plainly(draws: Draws, epochs: list[int], device: int) -> tuple[Any, Any]:
    """Count the vertices of batches one by one, and the reads of each list."""
    rows, lists = [0] * draws.graph.num_vertices, [0] * draws.graph.num_vertices
    for epoch in epochs:
        for draw in draws.epoch(epoch):
            if draw.device != device:
                continue
            vertices = draw.batch.input_vertices.tolist()
            for vertex in vertices:
                rows[vertex] += 1
            for block in draw.batch.blocks:
                for reader in range(block.num_dst):
                    lists[vertices[reader]] += 1  # its offsets
                reading = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
                for reader, read in zip(reading.tolist(), block.indices.tolist(), strict=True):
                    start, end = draws.graph.indptr[vertices[reader] :][:2]
                    assert vertices[read] in draws.graph.indices[start:end]
                    lists[vertices[reader]] += 1
    return rows, lists


@pytest.mark.parametrize("num_threads", [1, 4])
def test_batches_are_counted_read_by_read(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask], num_threads: int
) -> None:
    task = make_task(
        random_graph(), [0, 0, 0], batch_size=40, fanouts=(4, 3), num_threads=num_threads
    )
    found = presample(task.draws, [1, 5], devices=[0, 2])
    assert found.num_epochs == 2
    assert list(found.reads) == [0, 2]
    for device in (0, 2):
        rows, lists = counted_plainly(task.draws, [1, 5], device)
        assert found.rows_of(device).tolist() == rows
        assert found.lists_of(device).tolist() == lists
        assert found.rows_of(device).dtype == found.lists_of(device).dtype == np.int32
        assert found.of(device).num_rows == sum(rows)
        assert found.num_list_reads(device) == sum(lists)
        assert found.of(device).num_batches == 16


def test_counts_by_hand(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    # 0 reads 1 and 2, 1 reads 3. The second hop expands 0, 1 and 2: 0 and 1 read the same again.
    task = make_task(graph_of([[1, 2], [3], [], []], train=[0]), [0], fanouts=(-1, -1))
    told: list[int] = []
    found = presample(task.draws, [0], devices=[0], drawn=told.append)
    assert found.rows_of(0).tolist() == [1, 1, 1, 1]
    # 4 edges and 2 visits of 0, 1 edge and 1 visit of 1, and a visit of 2, whose list is empty.
    assert found.lists_of(0).tolist() == [6, 2, 1, 0]
    reads = found.of(0)
    assert (reads.num_rows, reads.num_seeds, reads.num_batches) == (4, 1, 1)
    assert found.num_list_reads(0) == 9  # 5 edges, and the offsets of 1 and of 3 lists
    assert told == [1]
    assert presample(task.draws, [], devices=[0]).rows_of(0).tolist() == [0] * 4


def test_the_first_steps_alone(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    task = make_task(random_graph(), [0, 0], batch_size=40, fanouts=(4, 3))
    found = presample(task.draws, [1, 2], devices=[0, 1], num_steps=3)
    steps = task.draws.steps_per_epoch
    wanted = [
        draw.batch.input_vertices
        for epoch in (1, 2)
        for draw in task.draws.epoch(epoch)
        if draw.device == 1 and draw.step - epoch * steps < 3
    ]
    assert found.of(1).num_batches == len(wanted) == 6 < 2 * steps
    expected = np.bincount(np.concatenate(wanted), minlength=300)
    assert np.array_equal(found.rows_of(1), expected)


def reads_of(rows: list[int], lists: list[int]) -> DeviceReads:
    return DeviceReads(rows=np.array(rows, np.int32), lists=np.array(lists, np.int32))


def test_hotness_of_several_devices_is_the_sum() -> None:
    found = Presampled(
        reads={1: reads_of([1, 2], [5, 6]), 4: reads_of([10, 20], [0, 7]), 5: reads_of([1, 1], [])},
        num_epochs=1,
    )
    assert found.sum_rows([1, 4]).tolist() == [11, 22]
    assert found.sum_lists([1, 4]).tolist() == [5, 13]
    assert found.sum_rows([4]).tolist() == [10, 20]
    assert found.rows_of(1).tolist() == [1, 2]  # adding up left it as it was


def test_sums_stay_at_the_largest_count() -> None:
    most = 2**31 - 1
    reads = {each: reads_of([most - 1, 3, most], [1, 1, 0]) for each in range(3)}
    found = Presampled(reads=reads, num_epochs=1)
    assert found.sum_rows([0, 1, 2]).tolist() == [most, 9, most]
