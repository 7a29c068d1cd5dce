from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from gnnscale.loader.prefetch import prefetch


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("gnnscale-prefetch")]


@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_tasks(num_threads: int) -> None:
    def task(number: int) -> int:
        time.sleep(0.01 * (number % 3 == 0))
        return number

    tasks = [partial(task, number) for number in range(20)]
    assert list(prefetch(tasks, num_threads=num_threads, depth=5)) == list(range(20))
    assert threads() == []


def test_no_more_is_computed_ahead_than_asked_for() -> None:
    taken = []

    def tasks() -> Iterator[partial[int]]:
        for number in range(10):
            taken.append(number)
            yield partial(int, number)

    results = prefetch(tasks(), num_threads=2, depth=3)
    assert taken == []
    assert next(results) == 0
    assert taken == [0, 1, 2, 3]
    assert next(results) == 1
    assert taken == [0, 1, 2, 3, 4]


def test_a_task_that_fails_raises_at_its_turn_and_ends_the_threads() -> None:
    def task(number: int) -> int:
        return 6 // (2 - number)

    results = prefetch([partial(task, n) for n in range(5)], num_threads=2, depth=4)
    assert [next(results), next(results)] == [3, 6]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert threads() == []
    assert list(results) == []


@pytest.mark.parametrize("num_threads", [1, 3])
def test_threads_end_when_a_loop_breaks_off(num_threads: int) -> None:
    tasks = [partial(int, number) for number in range(50)]
    for result in prefetch(tasks, num_threads=num_threads, depth=4):
        assert threads() != []
        if result == 2:
            break
    assert threads() == []


def test_threads_end_when_the_loop_body_raises() -> None:
    results = prefetch([partial(int, n) for n in range(9)], num_threads=2, depth=4)
    with pytest.raises(KeyError):  # noqa: PT012
        for _ in results:
            raise KeyError("in the loop")
    del results
    gc.collect()
    assert threads() == []


def test_threads_end_with_an_abandoned_generator_in_a_cycle() -> None:
    holder = [prefetch([partial(int, n) for n in range(9)], num_threads=2, depth=2)]
    next(holder[0])
    holder.append(holder)
    assert threads() != []
    del holder
    gc.collect()
    assert threads() == []


def test_a_generator_collected_by_its_own_thread_does_not_wait_for_itself() -> None:
    collected, done = threading.Event(), threading.Event()

    def collect() -> None:
        collected.wait(10)
        gc.collect()
        done.set()

    def begin() -> None:
        results = prefetch([partial(int, 0), collect], num_threads=1, depth=1)
        next(results)
        cycle: list[object] = [results]
        cycle.append(cycle)

    gc.disable()
    try:
        begin()
        collected.set()
        assert done.wait(10)
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == []
