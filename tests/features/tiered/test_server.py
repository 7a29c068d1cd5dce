import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import NUM_ROWS, ROWS, LateSource, ids
from shared_pools import open_workers

from gnnscale.distributed.channel import MessageType, pair
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.sockets import PeerLostError
from gnnscale.features.tiered.server import WorkerReadSource


def trained(worker: Any, steps: list[list[int] | None]) -> list[tuple[int, int]]:
    """Train ``steps``, and return the hits and misses of each that reads rows."""
    arrays = [None if each is None else ids(*each) for each in steps]
    found = []
    for step in range(len(arrays) + worker.lead):
        if step < len(arrays):
            worker.expect(arrays[step])
        if step == len(arrays) - 1:
            worker.end()
        vertices = arrays[step - worker.lead] if step >= worker.lead else None
        if vertices is not None:
            ready = worker.ready(vertices)
            assert np.array_equal(ready.rows[ready.slots], ROWS[vertices])
            found.append((ready.access.hits, ready.access.misses))
            worker.served(ready)
    return found


def together(workers: Any, steps: Any) -> list[list[tuple[int, int]]]:
    with ThreadPoolExecutor(len(workers)) as threads:
        found = [threads.submit(trained, *each) for each in zip(workers, steps, strict=True)]
        counts = [each.result(timeout=60) for each in found]
    close(workers)
    return counts


def told(workers: Any, vertices: Any) -> None:
    """All workers expect one step, the same."""
    for each in workers:
        each.expect(vertices)
        each.end()


def close(workers: Any) -> None:
    for each in reversed(workers):
        each.close()


step_rows = st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, max_size=8, unique=True)


@pytest.mark.long
@settings(max_examples=20)
@given(
    steps=st.lists(st.tuples(*[st.none() | step_rows] * 3), min_size=1, max_size=10),
    num_kept=st.integers(0, NUM_ROWS),
    window=st.integers(1, 3),
    ahead=st.integers(1, 3),
    delegates=st.booleans(),
)
def test_each_worker_gets_the_rows_of_its_steps(steps, num_kept, window, ahead, delegates) -> None:
    sizes = {"num_kept": num_kept, "window": window, "ahead": ahead}
    workers, sources = open_workers(3, **sizes, delegates=delegates)
    counts = together(workers, zip(*steps, strict=True))
    asked = sum(len(each) for step in steps for each in step if each is not None)
    assert sum(map(sum, (pair for each in counts for pair in each))) == asked
    read = [row for source in sources for each in source.asked for row in each]
    assert sum(misses for each in counts for _, misses in each) == len(read)
    assert all(each.closed for each in sources)
    if num_kept == NUM_ROWS:  # each row is read once for all
        assert len(set(read)) == len(read)
    if delegates:  # each sees its steps in their order, before it leaves
        for source, own in zip(sources, zip(*steps, strict=True), strict=True):
            reads = [each is not None for each in own]
            assert [each is not None for each in source.order] == reads[: len(source.order)]
            assert not any(reads[len(source.order) :])


def test_a_row_that_two_workers_need_is_read_for_the_first() -> None:
    # Or by the first, where each reads what its steps miss.
    for delegates, asked in (
        (False, [[[1, 2], [4], [3], []]]),
        (True, [[[1, 2], [3]], [[4], []]]),
    ):
        workers, sources = open_workers(2, delegates=delegates)
        counts = together(workers, [[[1, 2], [3]], [[2, 4], [1, 3]]])
        assert [each.asked for each in sources] == asked
        assert counts == [[(0, 2), (0, 1)], [(1, 1), (2, 0)]]


def test_bytes_and_requests_are_those_of_the_worker_that_reads() -> None:
    workers, _ = open_workers(2)
    steps = [ids(1, 2), ids(2)]
    for worker, vertices in zip(workers, steps, strict=True):
        worker.expect(vertices)
        worker.end()
    first, second = (w.ready(v) for w, v in zip(workers, steps, strict=True))
    assert (first.reads.num_bytes, first.reads.num_requests) == (24, 2)
    assert (second.reads.num_bytes, second.reads.num_requests) == (0, 0)
    assert first.rows is second.rows
    close(workers)


class BadSource(LateSource):
    """A disk that fails."""

    def finish(self, ticket: int) -> None:
        raise OSError(5, "Input/output error", "features.npy")


def test_every_worker_learns_that_rows_cannot_be_read() -> None:
    workers, _ = open_workers(2, source=BadSource())
    vertices = ids(1)
    told(workers, vertices)
    with pytest.raises(OSError, match="Input/output error"):
        workers[0].ready(vertices)
    assert STATUS.verdict == "features.npy: Input/output error"
    STATUS.verdict = None  # the others are other processes
    with pytest.raises(PeerLostError, match=r"Input/output error: 'features\.npy'"):
        workers[1].ready(vertices)
    with pytest.raises(PeerLostError, match="Input/output error"):
        workers[1].expect(None)
    close(workers)


@pytest.mark.parametrize("bad", ["start", "finish"])
def test_every_worker_learns_that_another_cannot_read(bad, monkeypatch) -> None:
    workers, sources = open_workers(2, delegates=True)

    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error", "features.npy")

    monkeypatch.setattr(sources[1], bad, fails)
    first, second = ids(2), ids(2, 3)
    workers[0].expect(None)
    workers[1].expect(first)
    workers[0].expect(second)  # of which the other worker reads a row
    for each in workers:
        each.end()
    with pytest.raises(OSError, match="Input/output error"):
        workers[1].ready(first)
    with pytest.raises(PeerLostError, match="worker 1 of this machine"):
        workers[0].ready(second)
    close(workers)


def test_a_worker_that_leaves_ends_what_others_wait_for() -> None:
    workers, _ = open_workers(3)
    vertices = ids(1)
    workers[0].expect(vertices)
    workers[1].expect(vertices)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(each.ready, vertices) for each in workers[:2]]
        workers[2].close()
        for each in waiting:
            with pytest.raises(PeerLostError, match="worker 2 of this machine has left"):
                each.result(timeout=10)
    workers[1].close()
    workers[0].close()


def test_the_end_of_the_first_worker_ends_the_others() -> None:
    before = threading.active_count()
    workers, _ = open_workers(2)
    vertices = ids(1)
    workers[1].expect(vertices)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(workers[1].ready, vertices)
        workers[0].close()
        with pytest.raises(PeerLostError, match=r"it has ended|has left"):
            waiting.result(timeout=10)
    workers[1].close()
    assert threading.active_count() == before


def test_a_batch_that_does_not_fit_is_named() -> None:
    workers, _ = open_workers(2, num_kept=0, num_staged=1)
    vertices = ids(*range(8))
    told(workers, vertices)
    with pytest.raises(MemoryError, match=r"features\.memory_bytes: .* 8 rows"):
        workers[0].ready(vertices)
    close(workers)


def test_workers_learn_of_their_steps_and_say_when_rows_are_there() -> None:
    ends = [pair() for _ in range(2)]
    rows = WorkerReadSource([near for near, _ in ends])
    for worker in (1, 0, 1):
        rows.expect(worker)
    pool, slots = np.zeros((9, 3), np.float32), np.array([8, 6], np.int32)
    first = rows.start(np.array([5, 4], np.int64), pool, slots)
    rows.skip()
    second = rows.start(np.array([7], np.int32), pool, slots[:1])
    message = ends[1][1].receive()
    assert message.kind == MessageType.READ
    assert [each.tolist() for each in message.rows] == [[5, 4], [8, 6]]
    assert message.rows[0].dtype == np.int64
    assert ends[0][1].receive().kind == MessageType.SKIP
    message = ends[1][1].receive()
    assert [each.tolist() for each in message.rows] == [[7], [8]]
    rows.done(1)
    rows.finish(first)
    rows.close()
    with pytest.raises(PeerLostError, match="worker 1 of this machine has left"):
        rows.finish(second)
    for pair_of_ends in ends:
        for end in pair_of_ends:
            end.close()
