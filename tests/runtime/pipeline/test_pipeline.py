from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gnnscale.runtime.pipeline.pipeline import Pipeline

#: Seconds after which what is waited for will not come any more.
GIVE_UP_S = 60


class Item:
    """A number, and the lanes' stages that it has passed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.passed: list[str] = []


class Source:
    """Items 0 to n-1, counting those that were taken."""

    def __init__(self, n: int) -> None:
        self.items = [Item(i) for i in range(n)]
        self.taken = 0
        self.changed = threading.Condition()

    def __iter__(self) -> Iterator[Item]:
        for item in self.items:
            with self.changed:
                self.taken += 1
                self.changed.notify_all()
            yield item

    def reaches(self, count: int, seconds: float = GIVE_UP_S) -> bool:
        """Whether so many are taken within ``seconds``."""
        with self.changed:
            return self.changed.wait_for(lambda: self.taken >= count, seconds)


def stage(name: str) -> Callable[[Item], None]:
    def run(item: Item) -> None:
        item.passed.append(name)

    return run


def lanes(*names: str) -> list[list[Callable[[Item], None]]]:
    """A lane for each of ``names``, with a stage for each of its letters."""
    return [[stage(letter) for letter in name] for name in names]


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
def test_exactly_the_limit_are_on_their_way(names: tuple[str, ...], limit: int) -> None:
    source = Source(15)
    with Pipeline(iter(source), lanes(*names), limit=limit) as pipeline:
        for consumed in range(1, 16):
            next(pipeline)
            assert source.reaches(min(15, consumed + limit))
            assert not source.reaches(consumed + limit + 1, 0.002)
        with pytest.raises(StopIteration):
            next(pipeline)


def test_lanes_overlap() -> None:
    # Each stage waits for the two others to run as well, on the items before and behind.
    n, together = 12, threading.Barrier(3)

    def overlapping(position: int) -> Callable[[Item], None]:
        def run(item: Item) -> None:
            if 2 <= item.number + position < n:
                together.wait(GIVE_UP_S)

        return run

    with Pipeline(iter(Source(n)), [[overlapping(k)] for k in range(3)], limit=4) as pipeline:
        assert [item.number for item in pipeline] == list(range(n))


def test_the_lanes_overlap_with_the_consumer() -> None:
    n, together = 12, threading.Barrier(2)

    def overlapping(item: Item) -> None:
        if item.number:
            together.wait(GIVE_UP_S)

    with Pipeline(iter(Source(n)), [[overlapping]], limit=2) as pipeline:
        for item in pipeline:
            if item.number < n - 1:
                together.wait(GIVE_UP_S)
        assert item.number == n - 1


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
    began, may_end, done = threading.Event(), threading.Event(), []

    def slow(item: Item) -> None:
        if item.number == 1:
            began.set()
            may_end.wait(GIVE_UP_S)
        done.append(item.number)

    pipeline = Pipeline(iter(Source(10)), [[slow]], limit=4)
    next(pipeline)
    assert began.wait(GIVE_UP_S)
    closing = threading.Thread(target=pipeline.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    may_end.set()
    closing.join(GIVE_UP_S)
    assert not closing.is_alive()
    assert done == [0, 1]
    assert not gnnscale_threads()


def test_a_pipeline_that_was_never_asked_closes() -> None:
    source = Source(3)
    with Pipeline(iter(source), lanes("a"), limit=1):
        pass
    assert source.taken == 0
