import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES
from gnnscale.run.checkpoint.writer import BackgroundWriter

#: Seconds for what happens at once.
SOON = 10.0


class Disk:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def job(self, name: str, error: BaseException | None = None) -> Callable[[], None]:
        def write() -> None:
            self.begun.release()
            assert self.go_on.acquire(timeout=SOON)
            if error is not None:
                raise error
            self.done.append(name)

        return write

    def wait_until_begun(self) -> None:
        assert self.begun.acquire(timeout=SOON)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def writer(disk: Disk) -> Iterator[BackgroundWriter]:
    found = BackgroundWriter()
    yield found
    for _ in range(5):
        disk.go_on.release()
    found.close()


def test_a_write_goes_on_beside_its_caller(writer: BackgroundWriter, disk: Disk) -> None:
    assert writer.idle
    writer.begin(disk.job("a"))
    disk.wait_until_begun()
    assert not writer.idle
    assert "checkpoint" in CURRENT_ACTIVITIES.values()
    assert disk.done == []
    disk.go_on.release()
    writer.wait()
    assert writer.idle
    assert disk.done == ["a"]
    assert "checkpoint" not in CURRENT_ACTIVITIES.values()


def test_of_those_behind_a_write_the_last_one_is_done(writer: BackgroundWriter, disk: Disk) -> None:
    writer.begin(disk.job("a"))
    disk.wait_until_begun()
    for name in ("b", "c", "d"):
        writer.follow(disk.job(name))
    for _ in range(2):
        disk.go_on.release()
    writer.wait()
    assert disk.done == ["a", "d"]
    disk.go_on.release()
    writer.follow(disk.job("e"))  # nothing is in flight
    writer.wait()
    assert disk.done == ["a", "d", "e"]


def test_a_write_is_not_replaced_before_its_thread_gets_to_it(writer, disk) -> None:
    busy = threading.Event()
    writer._pool.submit(busy.wait, SOON)
    writer.begin(disk.job("a"))
    for name in ("b", "c"):
        writer.follow(disk.job(name))
    busy.set()
    for _ in range(2):
        disk.go_on.release()
    writer.wait()
    assert disk.done == ["a", "c"]


def test_a_failure_is_told_once_and_ends_what_was_to_follow(writer, disk) -> None:
    writer.check()
    writer.begin(disk.job("a", OSError(28, "No space left on device")))
    writer.follow(disk.job("b"))
    disk.go_on.release()
    with pytest.raises(OSError, match="No space left"):
        writer.wait()
    writer.check()
    assert writer.idle
    assert disk.done == []


def test_a_thread_that_cannot_begin_is_not_waited_for(disk: Disk, monkeypatch: Any) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    writer = BackgroundWriter()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            writer.begin(disk.job("a"))
    writer.wait()
    writer.close()


def test_the_end_of_a_run_waits_for_what_was_begun(disk: Disk) -> None:
    writer = BackgroundWriter()
    writer.begin(disk.job("a"))
    writer.follow(disk.job("b", OSError(5, "of no use any more")))
    threads = threading.active_count()
    threading.Timer(0.05, lambda: [disk.go_on.release() for _ in range(2)]).start()
    writer.close()
    assert disk.done == ["a"]
    assert threading.active_count() <= threads
    BackgroundWriter().close()  # one that has written nothing
