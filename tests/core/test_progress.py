import logging
import sys
import threading
import time
from functools import partial

import pytest

from gnnscale.core.progress import track

#: Seconds after which what is waited for will not come any more.
GIVE_UP_S = 60


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.changed = threading.Condition()
        self.waiting: set[int] = set()

    def advance(self, seconds: float, watchers: int = 1) -> None:
        for _ in range(round(10 * seconds)):
            with self.changed:
                assert self.changed.wait_for(lambda: len(self.waiting) == watchers, GIVE_UP_S)
                self.now += 0.1
                self.waiting = set()
                self.changed.notify_all()
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.waiting) == watchers, GIVE_UP_S)


class Event(threading.Event):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def set(self) -> None:
        super().set()
        with self.clock.changed:
            self.clock.changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        clock = self.clock
        with clock.changed:
            end = clock.now + timeout - 1e-6
            while not self.is_set() and clock.now < end:
                clock.waiting.add(threading.get_ident())
                clock.changed.notify_all()
                assert clock.changed.wait(GIVE_UP_S)
                clock.waiting.discard(threading.get_ident())
            return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    monkeypatch.setattr(threading, "Event", partial(Event, found))
    return found


def test_short_work_is_silent(clock, caplog, capsys) -> None:
    with caplog.at_level(logging.INFO), track("short", 3, "steps") as advance:
        advance(3)
        clock.advance(0.9)
    assert caplog.text == ""
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyError), track("failing"):
        raise KeyError("x")
    assert not [each for each in threading.enumerate() if each.name == "progress"]


def test_lines_in_a_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), track("reading", 2000, "edges") as advance:
        advance(1500)
        clock.advance(6)
        advance(500)
        clock.advance(2)
    assert caplog.messages == [
        "reading: 1,500/2,000 edges (1 s)",
        "reading: 1,500/2,000 edges (6 s)",
        "reading: 2,000/2,000 edges (8 s), done",
    ]


def test_bar_on_a_terminal(clock, caplog, capsys, monkeypatch) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with track("outer"), track("inner", 10, "steps") as advance:
        advance(5)
        clock.advance(2, watchers=2)
    first = capsys.readouterr().err
    with track("another"):
        clock.advance(2)
    second = capsys.readouterr().err
    assert all(word in first for word in ("outer", "inner", "5/10 steps"))
    # The bars of the first works are gone.
    assert "another" in second
    assert "outer" not in second
    assert caplog.text == ""
