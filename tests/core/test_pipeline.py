import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from gnnscale.core.pipeline import Pipeline, PrefetchDepth

#: Seconds after which what is waited for will not come any more.
GIVE_UP_S = 60


Stage = Callable[["Item"], None]


class Item:
    def __init__(self, number: int) -> None:
        self.number = number
        self.passed: list[str] = []


class Source:
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
        with self.changed:
            return self.changed.wait_for(lambda: self.taken >= count, seconds)


def stage(name: str) -> Stage:
    def run(item: Item) -> None:
        item.passed.append(name)

    run.__name__ = name
    return run


def groups(*names: str) -> list[list[Stage]]:
    return [[stage(letter) for letter in name] for name in names]


def gnnscale_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("gnnscale-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not gnnscale_threads()


@pytest.mark.parametrize(
    ("names", "limit"), [((), 3), (("abc",), 1), (("a", "bc"), 3), (("a", "b", "c"), 50)]
)
def test_items_pass_all_stages_in_order(names: tuple[str, ...], limit: int) -> None:
    with Pipeline(iter(Source(20)), groups(*names), limit=limit, inline=[stage("z")]) as pipeline:
        items = list(pipeline)
    assert [item.number for item in items] == list(range(20))
    assert all(item.passed == [*"".join(names), "z"] for item in items)


def test_exactly_the_limit_are_on_their_way() -> None:
    for names, limit in ((("abc",), 1), (("a", "bc"), 2), (("a", "b", "c"), 4)):
        source = Source(15)
        with Pipeline(iter(source), groups(*names), limit=limit, adaptive=False) as pipeline:
            for consumed in range(1, 16):
                next(pipeline)
                assert source.reaches(min(15, consumed + limit))
                assert not source.reaches(consumed + limit + 1, 0.002)
            with pytest.raises(StopIteration):
                next(pipeline)


def test_groups_overlap_with_each_other_and_the_consumer() -> None:
    # Each stage waits for the two others to run as well, on the items before and behind.
    n, together = 12, threading.Barrier(3)

    def overlapping(item: Item, position: int) -> None:
        if 2 <= item.number + position < n:
            together.wait(GIVE_UP_S)

    stages = [[partial(overlapping, position=k)] for k in range(3)]
    with Pipeline(iter(Source(n)), stages, limit=4) as pipeline:
        assert [item.number for item in pipeline] == list(range(n))
    n, together = 12, threading.Barrier(2)

    def overlapping(item: Item) -> None:
        if item.number:
            together.wait(GIVE_UP_S)

    with Pipeline(iter(Source(n)), [[overlapping]], limit=2) as pipeline:
        for item in pipeline:
            if item.number < n - 1:
                together.wait(GIVE_UP_S)
        assert item.number == n - 1


@pytest.mark.parametrize("names", [(), ("abc",), ("a", "b", "c")])
def test_what_a_source_raises_arrives_in_its_turn(names: tuple[str, ...]) -> None:
    def source() -> Iterator[Item]:
        yield from Source(3)
        raise OSError("the disk is gone")

    with Pipeline(source(), groups(*names), limit=8) as pipeline:
        assert [next(pipeline).number for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(pipeline)


@pytest.mark.parametrize(("group", "num_threads"), [(0, 1), (2, 1), (0, 3)])
def test_what_a_stage_raises_arrives_in_its_turn(group: int, num_threads: int) -> None:
    def fail(item: Item) -> None:
        if item.number >= 2:
            raise MemoryError(f"no room for {item.number}")

    stages = groups("a") if num_threads > 1 else groups("a", "b", "c")
    stages[group] = [fail]
    with Pipeline(iter(Source(9)), stages, limit=8, num_threads=num_threads) as pipeline:
        assert [next(pipeline).number for _ in range(2)] == [0, 1]
        for _ in range(2):  # whoever asks again is told again
            with pytest.raises(MemoryError, match="no room for 2"):
                next(pipeline)


def test_closing_ends_what_waits_and_waits_for_what_runs() -> None:
    # The first group waits for room, the others for items.
    with Pipeline(iter(Source(10)), groups("a", "b", "c"), limit=1) as pipeline:
        next(pipeline)
        assert len(gnnscale_threads()) == 3
    with Pipeline(iter(Source(9)), groups("a", "b"), limit=2) as pipeline:
        next(pipeline)
        with pipeline.paused():
            pipeline.close()
    room = Room(1)
    with Pipeline(iter(Source(9)), [[room.enter]], limit=8, no_room=MemoryError) as pipeline:
        next(pipeline)
        assert room.has_refused()
    source = Source(3)
    with Pipeline(iter(source), groups("a"), limit=1):
        pass
    assert source.taken == 0  # it was never asked
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
    assert done == [0, 1]


def test_items_of_several_threads_come_in_order() -> None:
    # Whoever has an even number waits until an item behind it has passed.
    passed = [threading.Event() for _ in range(20)]

    def later_first(item: Item) -> None:
        if item.number % 2 == 0:
            assert passed[item.number + 1].wait(GIVE_UP_S)
        passed[item.number].set()

    source = iter(Source(20))
    with Pipeline(source, [[later_first]], limit=5, num_threads=2) as pipeline:
        assert [item.number for item in pipeline] == list(range(20))


def numbers(*arguments: Any, **options: Any) -> Iterator[int]:
    """A generator over a pipeline, as a loader hands out."""
    with Pipeline(*arguments, **options) as pipeline:
        for item in pipeline:
            yield item.number


@pytest.mark.long
def test_threads_end_with_a_generator_that_nobody_has_any_more() -> None:
    holder: list[Any] = [numbers(iter(Source(50)), groups("a"), limit=4, num_threads=2)]
    assert next(holder[0]) == 0
    holder.append(holder)
    assert gnnscale_threads()
    del holder
    gc.collect()


@pytest.mark.long
def test_a_generator_collected_by_its_own_thread_does_not_wait_for_itself() -> None:
    collected, done = threading.Event(), threading.Event()

    def collect(item: Item) -> None:
        if item.number == 1:
            assert collected.wait(GIVE_UP_S)
            gc.collect()
            done.set()

    def begin() -> None:
        cycle: list[Any] = [numbers(iter(Source(2)), [[collect]], limit=1)]
        next(cycle[0])
        cycle.append(cycle)

    gc.disable()
    try:
        begin()
        collected.set()
        assert done.wait(GIVE_UP_S)
    finally:
        gc.enable()
    for thread in threading.enumerate():
        if thread.name.startswith("gnnscale-"):
            thread.join(GIVE_UP_S)


def test_a_pause_lets_stages_end_and_begins_none() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    passed: list[str] = []

    def first(item: Item) -> None:
        begun.release()
        assert go_on.wait(GIVE_UP_S)
        passed.append(f"first {item.number}")

    def second(item: Item) -> None:
        passed.append(f"second {item.number}")
        begun.release()

    source = Source(3)
    with Pipeline(iter(source), [[first, second]], limit=2, adaptive=False) as pipeline:
        taken: list[Item] = []
        consumer = threading.Thread(target=lambda: taken.extend(pipeline))
        with pipeline.paused():
            consumer.start()
            assert not source.reaches(1, seconds=0.05)
        assert begun.acquire(timeout=GIVE_UP_S)
        with pipeline.paused():
            go_on.set()
            assert not begun.acquire(timeout=0.05)
            assert passed == ["first 0"]
        consumer.join(GIVE_UP_S)
        assert [item.number for item in taken] == [0, 1, 2]
        assert passed == [f"{which} {i}" for i in range(3) for which in ("first", "second")]


class Room:
    """Room for some items, which whoever consumes them gives back."""

    def __init__(self, size: int, fits: int | None = None) -> None:
        self.size, self.fits, self.used, self.most, self.refused = size, fits, 0, 0, 0
        self.changed = threading.Condition()

    def enter(self, item: Item) -> None:
        with self.changed:
            if self.used >= self.size or item.number == self.fits:
                self.refused += 1
                self.changed.notify_all()
                raise MemoryError("no room")
            self.used += 1
            self.most = max(self.most, self.used)

    def leave(self) -> None:
        with self.changed:
            self.used -= 1

    def has_refused(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.refused > 0, GIVE_UP_S)


@pytest.mark.parametrize(("size", "after"), [(1, ()), (2, ("b",)), (4, ())])
def test_an_item_without_room_waits_for_those_before_it(size: int, after: tuple[str, ...]) -> None:
    room = Room(size)
    stages = [[stage("a"), room.enter], *groups(*after)]
    with Pipeline(iter(Source(20)), stages, limit=4, no_room=MemoryError) as pipeline:
        for number, item in enumerate(pipeline):
            if number == 0:
                assert room.has_refused()
            assert item.number == number
            # Stages before are not run again.
            assert item.passed == ["a", *after]
            room.leave()
    assert room.most == size


def test_an_item_that_never_has_room_arrives_in_its_turn() -> None:
    room = Room(1, fits=3)
    with Pipeline(iter(Source(9)), [[room.enter]], limit=8, no_room=MemoryError) as pipeline:
        for number in range(3):
            assert next(pipeline).number == number
            room.leave()
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room"):
                next(pipeline)
    room = Room(1)
    with Pipeline(iter(Source(9)), [[room.enter]], limit=8, no_room=MemoryError) as pipeline:
        next(pipeline)
        assert room.has_refused()
        refused = room.refused
        consumer = threading.Thread(target=lambda: next(pipeline))
        with pipeline.paused():
            room.leave()
            consumer.start()
            consumer.join(0.05)
            assert consumer.is_alive()
            assert room.refused == refused
        consumer.join(GIVE_UP_S)
        assert not consumer.is_alive()


lengths = st.lists(st.integers(0, 12), max_size=300)


def observe(depth: PrefetchDepth, length: int) -> int:
    return depth.observe(length, length == 0)


def shallow(limit: int, depth: int) -> PrefetchDepth:
    """One whose queue was found full until it was ``depth`` deep."""
    result = PrefetchDepth(limit=limit)
    while result.depth > depth:
        observe(result, limit)
    return result


def test_how_deep_queues_become() -> None:
    depth = PrefetchDepth(limit=4)
    seen = [observe(depth, depth.depth) for _ in range(200)]
    assert seen[:31] == [4] * 31
    assert seen[31] == 3
    assert sorted(seen, reverse=True) == seen
    assert seen[-1] == 1
    depth = PrefetchDepth(limit=4)
    for _ in range(20):
        for length in [*[4] * 30, 3]:
            assert observe(depth, length) == 4
    depth = PrefetchDepth(limit=4)
    # Full at 4 and at 3; at 2 the consumer waits.
    seen = [observe(depth, depth.depth if depth.depth > 2 else 0) for _ in range(5000)]
    assert sum(before != after for before, after in pairwise(seen)) <= 20
    assert depth.depth in (3, 4)
    for before, lengths, depths in (
        (1, [0, 0, 0, 0, 0, 0], [1, 2, 2, 3, 3, 4]),
        # Waits count together unless the queue was full between them.
        (2, [0, 1, 0], [2, 2, 3]),
        (2, [0, 2, 0], [2, 2, 2]),
        # A step down that was too early is not soon repeated.
        (3, [0, 0, *[4] * 63, 4], [3, 4, *[4] * 63, 3]),
    ):
        depth = shallow(4, before)
        assert [observe(depth, length) for length in lengths] == depths


def test_a_thread_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "gnnscale-b":
            raise RuntimeError("can't start new thread")
        started(thread)

    pipeline = Pipeline(iter(Source(1)), groups("a", "b"), limit=2)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(MemoryError, match="can't start new thread"):
        next(pipeline)
    pipeline.close()
