import numpy as np
from late_source import ROWS, WIDTH, ids
from shared_pools import open_workers


def test_unexpected_batches_are_rehearsed_and_change_nothing() -> None:
    (worker,), (source,) = open_workers(1)
    step, other = ids(1, 2), ids(1, 2)
    worker.expect(step)
    worker.end()
    ready = worker.ready(other)
    assert np.array_equal(ready.rows[ready.slots], ROWS[other])
    assert (ready.access.hits, ready.access.misses) == (0, 2)
    worker.served(ready)
    ready = worker.ready(step)
    assert (ready.access.hits, ready.access.misses) == (0, 2)
    assert np.array_equal(ready.rows[ready.slots], ROWS[step])
    worker.close()
    assert source.asked == [[1, 2]]


def test_rows_are_read_at_once_and_counted_for_no_step() -> None:
    (worker,), (source,) = open_workers(1)
    rows = np.empty((2, WIDTH), np.float32)
    worker.read(ids(7, 3), rows)
    assert np.array_equal(rows, ROWS[[7, 3]])
    assert source.asked == []
    worker.close()
