from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gnnscale.runtime.pipeline.pipeline import Pipeline

#: A stage's stand-in takes this long, in seconds.
NAP = 0.02


class Item:
    """A number, and the lanes' stages that it has passed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.passed: list[str] = []


class Source:
    """Items 0 to n-1, counting those that were taken and not yet consumed."""

    def __init__(self, n: int) -> None:
        self.items = [Item(i) for i in range(n)]
        self.taken = 0

    def __iter__(self) -> Iterator[Item]:
        for item in self.items:
            self.taken += 1
            yield item


def stage(name: str, seconds: float = 0.0) -> Callable[[Item], None]:
    def run(item: Item) -> None:
        if seconds:
            time.sleep(seconds)
        item.passed.append(name)

    return run


def lanes(*names: str, seconds: float = 0.0) -> list[list[Callable[[Item], None]]]:
    """A lane for each of ``names``, with a stage for each of its letters."""
    return [[stage(letter, seconds) for letter in name] for name in names]


def gnnscale_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("gnnscale-")]


@pytest.mark.parametrize("names", [(), ("abc",), ("a", "bc"), ("a", "b", "c")])
@pytest.mark.parametrize("limit", [1, 3, 50])
def test_items_pass_all_stages_in_order(names: tuple[str, ...], limit: int) -> None:
    with Pipeline(iter(Source(20)), lanes(*names), limit=limit, inline=[stage("z")]) as pipeline:
        items = list(pipeline)
    assert [item.number for item in items] == list(range(20))
    assert all(item.passed == [*"".join(names), "z"] for item in items)
    assert not gnnscale_threads()


@pytest.mark.parametrize("names", [("abc",), ("a", "bc"), ("a", "b", "c")])
@pytest.mark.parametrize("limit", [1, 2, 4])
def test_no_more_than_the_limit_are_on_their_way(names: tuple[str, ...], limit: int) -> None:
    source = Source(15)
    with Pipeline(iter(source), lanes(*names), limit=limit) as pipeline:
        for consumed in range(15):
            time.sleep(0.002)
            assert source.taken - consumed <= limit
            next(pipeline)
        with pytest.raises(StopIteration):
            next(pipeline)


def test_the_limit_is_reached_while_the_consumer_is_busy() -> None:
    source = Source(10)
    with Pipeline(iter(source), lanes("a", "b", "c"), limit=4) as pipeline:
        next(pipeline)
        deadline = time.monotonic() + 5
        while source.taken < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert source.taken == 5


def seconds_for(names: tuple[str, ...], n: int) -> float:
    with Pipeline(iter(Source(n)), lanes(*names, seconds=NAP), limit=4) as pipeline:
        start = time.perf_counter()
        assert len(list(pipeline)) == n
        return time.perf_counter() - start


def test_lanes_overlap() -> None:
    n = 12
    together = seconds_for(("abc",), n)
    apart = seconds_for(("a", "b", "c"), n)
    # Three naps each, one after the other; in lanes, the longest one each, and two to fill them.
    assert together >= 3 * n * NAP
    assert apart >= (n + 2) * NAP
    assert apart < 0.6 * together


def test_the_lanes_overlap_with_the_consumer() -> None:
    n = 12
    with Pipeline(iter(Source(n)), lanes("a", seconds=NAP), limit=2) as pipeline:
        start = time.perf_counter()
        for _ in pipeline:
            time.sleep(NAP)
        assert time.perf_counter() - start < 0.75 * 2 * n * NAP


def test_nothing_runs_ahead_without_lanes() -> None:
    source = Source(5)
    pipeline = Pipeline(iter(source), [], limit=4, inline=[stage("a")])
    for consumed in range(5):
        assert source.taken == consumed
        assert next(pipeline).passed == ["a"]
    assert not gnnscale_threads()
    pipeline.close()


@pytest.mark.parametrize("names", [(), ("abc",), ("a", "b", "c")])
def test_what_a_source_raises_arrives_in_its_turn(names: tuple[str, ...]) -> None:
    def source() -> Iterator[Item]:
        yield from Source(3)
        raise OSError("the disk is gone")

    with Pipeline(source(), lanes(*names), limit=8) as pipeline:
        assert [next(pipeline).number for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(pipeline)


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_what_a_stage_raises_arrives_in_its_turn(lane: int) -> None:
    def fail(item: Item) -> None:
        if item.number == 2:
            raise MemoryError("no room")

    stages = lanes("a", "b", "c")
    stages[lane] = [fail]
    with Pipeline(iter(Source(9)), stages, limit=8) as pipeline:
        assert [next(pipeline).number for _ in range(2)] == [0, 1]
        for _ in range(2):  # whoever asks again is told again
            with pytest.raises(MemoryError, match="no room"):
                next(pipeline)
    assert not gnnscale_threads()


def test_closing_ends_lanes_that_wait() -> None:
    # The first lane waits for room, the others for items.
    with Pipeline(iter(Source(10)), lanes("a", "b", "c"), limit=1) as pipeline:
        next(pipeline)
        assert len(gnnscale_threads()) == 3
    assert not gnnscale_threads()


def test_closing_waits_for_stages_that_run() -> None:
    done = []

    def slow(item: Item) -> None:
        time.sleep(0.1)
        done.append(item.number)

    with Pipeline(iter(Source(10)), [[slow]], limit=4) as pipeline:
        next(pipeline)
        time.sleep(0.02)
    assert done == [0, 1]


def test_a_pipeline_that_was_never_asked_closes() -> None:
    source = Source(3)
    with Pipeline(iter(source), lanes("a"), limit=1):
        pass
    assert source.taken == 0
