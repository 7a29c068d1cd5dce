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
    """Count the vertices of batches one by one, and the edges that lead from each list."""
    rows, edges = [0] * draws.graph.num_vertices, [0] * draws.graph.num_vertices
    for epoch in epochs:
        for draw in draws.epoch(epoch):
            if draw.device != device:
                continue
            vertices = draw.batch.input_vertices.tolist()
            for vertex in vertices:
                rows[vertex] += 1
            for block in draw.batch.blocks:
                reading = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
                for reader, read in zip(reading.tolist(), block.indices.tolist(), strict=True):
                    start, end = draws.graph.indptr[vertices[reader] :][:2]
                    assert vertices[read] in draws.graph.indices[start:end]
                    edges[vertices[reader]] += 1
    return rows, edges


@pytest.mark.parametrize("num_threads", [1, 4])
def test_batches_are_counted_edge_by_edge(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask], num_threads: int
) -> None:
    task = make_task(
        random_graph(), [0, 0, 0], batch_size=40, fanouts=(4, 3), num_threads=num_threads
    )
    found = presample(task.draws, [1, 5], devices=[0, 2])
    assert found.num_epochs == 2
    assert list(found.reads) == [0, 2]
    for device in (0, 2):
        rows, edges = counted_plainly(task.draws, [1, 5], device)
        assert found.rows_of(device).tolist() == rows
        assert found.edges_of(device).tolist() == edges
        assert found.rows_of(device).dtype == found.edges_of(device).dtype == np.int32
        assert found.of(device).num_rows == sum(rows)
        assert found.of(device).num_edges == sum(edges)
        assert found.of(device).num_batches == 16


def test_counts_by_hand(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    # 0 reads 1 and 2, 1 reads 3. The second hop expands 0, 1 and 2: 0 and 1 read the same again.
    task = make_task(graph_of([[1, 2], [3], [], []], train=[0]), [0], fanouts=(-1, -1))
    told: list[int] = []
    found = presample(task.draws, [0], devices=[0], drawn=told.append)
    assert found.rows_of(0).tolist() == [1, 1, 1, 1]
    assert found.edges_of(0).tolist() == [4, 1, 0, 0]
    reads = found.of(0)
    assert (reads.num_edges, reads.num_visits, reads.num_batches) == (5, 4, 1)
    assert (reads.num_rows, reads.num_seeds) == (4, 1)
    assert found.transactions_of(0) == 9  # 5 edges, and the offsets of 1 and of 3 lists
    assert told == [1]
    assert presample(task.draws, [], devices=[0]).rows_of(0).tolist() == [0] * 4


def reads_of(rows: list[int], edges: list[int]) -> DeviceReads:
    return DeviceReads(rows=np.array(rows, np.int32), edges=np.array(edges, np.int32))


def test_hotness_of_several_devices_is_the_sum() -> None:
    found = Presampled(
        reads={1: reads_of([1, 2], [5, 6]), 4: reads_of([10, 20], [0, 7]), 5: reads_of([1, 1], [])},
        num_epochs=1,
    )
    assert found.sum_rows([1, 4]).tolist() == [11, 22]
    assert found.sum_edges([1, 4]).tolist() == [5, 13]
    assert found.sum_rows([4]).tolist() == [10, 20]
    assert found.rows_of(1).tolist() == [1, 2]  # adding up left it as it was


def test_sums_stay_at_the_largest_count() -> None:
    most = 2**31 - 1
    reads = {each: reads_of([most - 1, 3, most], [1, 1, 0]) for each in range(3)}
    found = Presampled(reads=reads, num_epochs=1)
    assert found.sum_rows([0, 1, 2]).tolist() == [most, 9, most]
