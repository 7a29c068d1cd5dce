from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from gnnscale.runtime.evaluation.workers import Workers


def test_results_come_in_order_from_threads_that_work_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(item: int) -> tuple[int, bool, int]:
        together.wait()
        return item, torch.is_grad_enabled(), torch.get_num_threads()

    before = torch.get_num_threads()
    workers = Workers(3)
    with workers.running():
        assert list(workers.map(work, range(6))) == [(item, False, 1) for item in range(6)]
    assert torch.get_num_threads() == before


def test_many_threads_are_divided_among_few_chunks() -> None:
    assert [Workers(count).each for count in (1, 3, 4, 7, 64)] == [1, 1, 1, 1, 16]
    workers = Workers(8)
    with workers.running():
        assert list(workers.map(lambda _: torch.get_num_threads(), [0])) == [2]


def test_items_are_taken_only_a_few_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    workers = Workers(2)
    with workers.running():
        for result in workers.map(lambda item: item, items()):
            assert taken <= result + 2
            if result == 20:
                break


def test_an_error_ends_the_work_and_is_the_callers() -> None:
    running = threading.Semaphore(0)
    ended = []

    def work(item: int) -> None:
        if item == 0:
            running.acquire()  # until the other one is at work
            raise ValueError("no")
        running.release()
        threading.Event().wait(0.2)
        ended.append(item)

    workers = Workers(2)
    with workers.running():
        with pytest.raises(ValueError, match="no"):
            list(workers.map(work, range(100)))
        # What was at work is done, and nothing else will be.
        known = list(ended)
        assert 1 in known
        assert len(known) < 10
        threading.Event().wait(0.3)
        assert ended == known
