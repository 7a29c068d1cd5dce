from dataclasses import replace
from typing import Any

import numpy as np
from fixture_types import Make

from gnnscale.cache import CacheDevice
from gnnscale.cache.hotness import presample
from gnnscale.cache.problem import list_bytes, no_vertices
from gnnscale.partition import Parts


def device_of(**given: Any) -> CacheDevice:
    options = {"samples": True, "loads": True, "request_bytes": 64, "overhead_bytes": 10}
    return CacheDevice(position=0, name="gpu", budget_bytes=0, **(options | given))


def test_sizes_and_costs_by_hand(graph_of: Make, make_task: Make) -> None:
    for row_bytes, loads, transactions, price in (
        *((64, True, 1, 74), (65, True, 2, 138)),
        # The host packs rows: no request is partly empty, and none is a read of its own.
        (400, False, 6.25, 400),
    ):
        device = device_of(loads=loads)
        assert device.row_transactions(row_bytes) == transactions
        assert (device.row_price(row_bytes), device.list_price) == (price, 74)
    task = make_task(graph_of([[1, 2], [2], [], [0, 1, 2]], num_features=3), [None, 0])
    assert task.row_bytes == 12
    assert list_bytes(task.graph, np.array([0, 2, 3])) == (8 + 2 * 4) + 8 + (8 + 3 * 4)
    none = no_vertices(task.graph)
    assert (none.dtype, none.shape, list_bytes(task.graph, none)) == (np.int32, (0,), 0)
    assert task.out_degrees.tolist() == [1, 2, 3, 0]
    wide = make_task(graph_of([[1, 1], []], np.int64), [0])
    assert list_bytes(wide.graph, np.array([0])) == 8 + 2 * 8
    half = replace(task.graph, features=np.zeros((4, 3), np.float16), feature_dtype="float16")
    assert make_task(half, [0]).row_bytes == 6


def test_first_batches_and_epochs(random_graph: Make, make_task: Make) -> None:
    task = make_task(random_graph(), [None, 0, 0], batch_size=2)
    first = [each for each in task.draws.epoch(0) if not each.step]
    assert [each.device for each in first] == [0, 1] == list(task.first_batches)
    assert task.max_batch_bytes == max(each.batch.num_bytes for each in first)
    assert task.max_batch_rows == max(len(each.batch.input_vertices) for each in first)
    task = make_task(random_graph(), [None, 0, 0], batch_size=60, num_epochs=3)
    for found, epochs in ((task.presampled, [0]), (task.run_reads, [0, 1, 2])):
        expected = presample(task.draws, epochs, devices=[1, 2])
        assert found.num_epochs == len(epochs)
        assert list(found.reads) == [1, 2]
        for device in (1, 2):
            assert np.array_equal(found.rows.of(device), expected.rows.of(device))
            assert np.array_equal(found.lists.of(device), expected.lists.of(device))
    for name in ("presampled", "run_reads", "expected", "counted"):
        assert getattr(task, name) is getattr(task, name)
    for counts in (task.expected.rows, task.counted.rows):
        assert (counts.first, counts.num_epochs) == (task.presampled.rows, 3)
    graph = random_graph().with_split(train_idx=np.arange(0, 300, 3))
    parts = Parts(num_parts=2, owner=(np.arange(300) >= 100).astype(np.int16))
    task = make_task(graph, [0, 0], parts=parts)
    assert np.array_equal(task.train_vertices([0]), np.arange(0, 100, 3))
    assert np.array_equal(task.train_vertices([1]), np.arange(102, 300, 3))
    assert task.is_exact
    exact = [make_task(graph, each).is_exact for each in ([0], [0, 0], [None, 0])]
    assert exact == [True, False, False]
    everywhere = Parts(num_parts=2, owner=None)
    for others in (None, everywhere):
        assert np.array_equal(replace(task, parts=others).train_vertices([1]), graph.train_idx)
