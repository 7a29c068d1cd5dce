"""Heartbeats: each process of a run reports its progress to the other processes.

Training code counts its progress in ``STATUS``, at less than a microsecond per step. A thread
publishes the counts every second or two, in a file that the launching process reads, or in
torchrun's store.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from threading import get_ident

from gnnscale.core.process import own_process, process_stat
from gnnscale.core.progress import num_advances

#: What a process does. Only training has a limit: the rest may take hours, and reports that itself.
TRAINS = "training"

_DOING = (TRAINS, "starting", "opening the run", "between two epochs", "reporting", "testing")

_RECORD = struct.Struct("=9q")

#: Seconds in which the last pulse has to be published; a network may take it no more.
_END_S = 5.0

#: Bytes of a packed pulse.
HEARTBEAT_BYTES = _RECORD.size


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The last report of a process."""

    beat: int  #: counts its reports; a stopped process sends no reports
    signs: int  #: counts what it has begun or done; it grows as long as the process makes progress
    steps: int  #: training steps done
    waiting: bool  #: whether one of its threads waits for another process
    doing: str  #: one of ``_DOING``
    left: bool  #: whether it is done and left the run
    pid: int
    start: int  #: when it started, in the system's clock ticks
    machine: int  #: distinguishes processes that do not see each other's numbers

    def packed(self) -> bytes:
        """Return it as ``HEARTBEAT_BYTES`` bytes."""
        numbers = (self.beat, self.signs, self.steps, self.waiting, _DOING.index(self.doing))
        return _RECORD.pack(*numbers, self.left, self.pid, self.start, self.machine)

    @classmethod
    def unpacked(cls, content: bytes) -> Heartbeat | None:
        """Undo ``packed``; None for one that was never written, which is of zeros."""
        if len(content) != HEARTBEAT_BYTES or not any(content):
            return None
        found = dict(zip((each.name for each in fields(cls)), _RECORD.unpack(content), strict=True))
        states = {"waiting": bool(found["waiting"]), "left": bool(found["left"])}
        return cls(**found | states | {"doing": _DOING[found["doing"]]})

    @property
    def state(self) -> str | None:
        """The letter of its state: ``T`` is stopped, ``Z`` ended; None on another machine."""
        if self.machine != machine():
            return None
        stat = process_stat(self.pid)
        return stat[0] if stat and int(stat[19]) == self.start else "Z"


@dataclass(kw_only=True)
class ProcessStatus:
    """What this process is at."""

    signs: int = 0  #: counts stages and the like that were begun
    steps: int = 0  #: training steps done
    doing: str = "starting"  #: one of ``_DOING``
    waiting: set[int] = field(default_factory=set)  #: threads that wait for other processes
    verdict: str | None = None  #: why the run ends, once this process has found another one stalled

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Say that this thread waits for another process within the ``with`` block."""
        thread = get_ident()
        if thread in self.waiting:  # within another such block
            yield
            return
        self.waiting.add(thread)
        try:
            yield
        finally:
            self.waiting.discard(thread)
            self.signs += 1

    def begin(self, doing: str) -> None:
        """Say what this process is at from now on."""
        self.doing = doing
        self.signs += 1

    @contextmanager
    def at(self, doing: str) -> Iterator[None]:
        """Say what this process is at within the ``with`` block."""
        before, self.doing = self.doing, doing
        self.signs += 1
        try:
            yield
        finally:
            self.doing = before
            self.signs += 1

    def pulse(self, beat: int, *, left: bool = False) -> Heartbeat:
        """Return what is to be published."""
        pid, start = own_process()
        return Heartbeat(
            beat=beat,
            signs=self.signs + num_advances(),
            steps=self.steps,
            waiting=bool(self.waiting),
            doing=self.doing,
            left=left,
            pid=pid,
            start=start,
            machine=machine(),
        )


#: What this process is at; a process takes part in one run at a time.
STATUS = ProcessStatus()


@contextmanager
def beating(publish: Callable[[Heartbeat], None], every_s: float) -> Iterator[None]:
    """Publish ``STATUS`` from a thread, within the ``with`` block; and once more after it.

    Args:
        publish: takes a pulse. What it raises is dropped: a run does not end because no report
            can be sent.
    """
    over = threading.Event()

    def send(beat: int, *, left: bool = False) -> None:
        with suppress(OSError, RuntimeError):
            publish(STATUS.pulse(beat, left=left))

    def beat() -> None:
        number = 1
        while not over.wait(every_s):
            number += 1
            send(number)

    send(1)
    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_END_S)
        if not thread.is_alive():
            send(0, left=True)


@cache
def machine() -> int:
    """Return a number that processes have in common which see each other's process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        names = os.readlink("/proc/self/ns/pid")
    except OSError:
        return os.getpid()
    return int.from_bytes(hashlib.blake2b(f"{boot}{names}".encode(), digest_size=7).digest(), "big")


#: Seconds after which a line names a process that is waited for, and again after twice as many.
_SAY_AFTER_S = 30.0

#: Seconds between two looks that count at most. More have passed if the process that checks was
#: itself stopped, by Ctrl-Z with all others, or had no processor.
MAX_LOOK_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Processes that the others wait for."""

    ranks: tuple[int, ...]  #: their numbers; several if all wait for each other
    seconds: float  #: how long they have made no progress
    silent: bool  #: whether they send no reports, or the same one again and again
    limited: bool  #: whether the run ends for it at last


@dataclass(kw_only=True)
class _LastSeen:
    """When a process last sent a report, when a new one, and its content."""

    beat: int = 0
    beat_at: float = 0.0
    signs: int = 0
    signs_at: float = 0.0


class StallDetector:
    """Follows the pulses of a run's processes.

    To blame is a process that sends no reports; or, while others wait, one that does not
    wait and makes no progress; or, if all wait, those with the fewest steps.
    """

    def __init__(self, names: Sequence[str], *, limit_s: float | None) -> None:
        """Follow the processes of the devices ``names`` under ``runtime.stall_limit_s``."""
        self._names = names
        self._seen = [_LastSeen() for _ in names]
        self._limit_s = limit_s
        self._after_s = min(_SAY_AFTER_S, limit_s or _SAY_AFTER_S)
        self._now = 0.0
        self._said: tuple[int, ...] = ()
        self._since, self._next_s = 0.0, 0.0

    def look(self, pulses: Sequence[Heartbeat | None], seconds: float) -> Stall | None:
        """Return who is waited for, by the last report of each process, None before the first."""
        self._now += min(seconds, MAX_LOOK_S)
        for seen, pulse in zip(self._seen, pulses, strict=True):
            if pulse is not None and pulse.beat != seen.beat:
                seen.beat, seen.beat_at = pulse.beat, self._now
            if pulse is not None and pulse.signs != seen.signs:
                seen.signs, seen.signs_at = pulse.signs, self._now
        there = {i: each for i, each in enumerate(pulses) if each is None or not each.left}
        return self._silent(there) or self._stuck(there)

    def is_over(self, stall: Stall) -> bool:
        """Whether the run is to end."""
        return stall.limited and self._limit_s is not None and stall.seconds >= self._limit_s

    def is_due(self, stall: Stall) -> bool:
        """Whether a line about it is due, which then counts as logged."""
        since = self._now - stall.seconds
        if self._said != stall.ranks or since > self._since:
            self._said, self._since, self._next_s = stall.ranks, since, _SAY_AFTER_S
        due = stall.seconds >= self._next_s
        while self._next_s <= stall.seconds:
            self._next_s *= 2
        return due

    def waiting_line(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        """Return the line that names who is waited for."""
        who = self._who(stall, pulses)
        if len(stall.ranks) > 1:
            return f"{who} wait for each other since {stall.seconds:.0f} s"
        return f"waiting for {who} since {stall.seconds:.0f} s"

    def ended_by(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        """Return the line that gives the cause if the run ends."""
        if len(stall.ranks) > 1:
            what = "have waited for each other"
        else:
            what = "has given no sign of life" if stall.silent else "has made no progress"
        option = f"runtime.stall_limit_s={self._limit_s:g}; null waits without end"
        return f"{self._who(stall, pulses)} {what} for {stall.seconds:.0f} s ({option})"

    def _who(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        names = [self._names[i] for i in stall.ranks]
        if len(names) > 1:
            return f"workers {', '.join(names)}"
        pulse = pulses[stall.ranks[0]]
        if pulse is None:
            return f"worker {names[0]} (starting)"
        doing = "stopped" if pulse.state in ("T", "t") else pulse.doing
        return f"worker {names[0]} (process {pulse.pid}, {doing})"

    def _silent(self, there: dict[int, Heartbeat | None]) -> Stall | None:
        last = {i: self._now - self._seen[i].beat_at for i in there}
        silent = [i for i in there if last[i] >= self._after_s]
        if not silent:
            return None
        first = max(silent, key=lambda i: (there[i] is not None, last[i]))
        # One that has not started may still wait for the disk.
        return Stall(
            ranks=(first,), seconds=last[first], silent=True, limited=there[first] is not None
        )

    def _stuck(self, there: dict[int, Heartbeat | None]) -> Stall | None:
        """Return who does not get on while others wait for it."""
        found = {i: each for i, each in there.items() if each is not None}
        last = {i: self._now - self._seen[i].signs_at for i in found}
        stuck = [i for i in found if last[i] >= self._after_s]
        waiting = [i for i in stuck if found[i].waiting]
        if not waiting:
            return None
        if len(waiting) == len(there):
            fewest = min(each.steps for each in found.values())
            ranks = tuple(i for i in found if found[i].steps == fewest)
            seconds = min(last[i] for i in ranks)
            return Stall(ranks=ranks, seconds=seconds, silent=False, limited=True)
        busy = [i for i in stuck if i not in waiting]
        if not busy:
            return None
        first = max(busy, key=lambda i: (found[i].doing == TRAINS, last[i]))
        limited = found[first].doing == TRAINS
        return Stall(ranks=(first,), seconds=last[first], silent=False, limited=limited)


def is_gone(pulse: Heartbeat | None) -> bool:
    """Whether a process of this machine has ended; its connections report this to all that wait."""
    return pulse is not None and pulse.state in ("Z", "X")


#: What each thread of this process is in, by its identifier: a stage, ``validate`` or
#: ``checkpoint``; a thread that is in none of them is missing.
CURRENT_ACTIVITIES: dict[int, str] = {}


class activity(ContextDecorator):  # noqa: N801  as ``contextmanager`` would call it
    """Say in ``CURRENT_ACTIVITIES`` what the ``with`` block, or the decorated function, does.

    A class: a step passes some of these, and generators take three times as long.
    """

    def __init__(self, name: str) -> None:
        """Call it ``name``."""
        self._name = name

    def __enter__(self) -> None:
        CURRENT_ACTIVITIES[get_ident()] = self._name
        STATUS.signs += 1

    def __exit__(self, *error: object) -> None:
        del CURRENT_ACTIVITIES[get_ident()]
