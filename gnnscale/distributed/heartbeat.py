"""Heartbeats: each process of a run reports its progress to the other processes.

Training code counts its progress in ``STATUS``. A thread publishes the counts every second or two,
in a file that the launching process reads, or in torchrun's store.
"""

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

#: The activity that ``runtime.stall_limit_s`` limits; other activities may take hours.
TRAINS = "training"

_DOING = (TRAINS, "starting", "opening the run", "between two epochs", "reporting", "testing")

_RECORD = struct.Struct("=9q")

#: Seconds to wait for the thread that publishes; a network may block it.
_END_S = 5.0

#: Bytes of a packed heartbeat.
HEARTBEAT_BYTES = _RECORD.size


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """Report of a process about its progress, activity and identity."""

    beat: int  #: sequence number of the report; 0 for the last report
    signs: int  #: progress count: grows while the process makes progress
    steps: int  #: training steps done
    waiting: bool  #: whether a thread waits for another process
    doing: str  #: current activity, one of ``_DOING``
    left: bool  #: whether the process has left the run
    pid: int
    start: int  #: start time of the process in clock ticks
    machine: int  #: number of the machine, or of its PID namespace

    def packed(self) -> bytes:
        """Return the heartbeat as ``HEARTBEAT_BYTES`` bytes."""
        numbers = (self.beat, self.signs, self.steps, self.waiting, _DOING.index(self.doing))
        return _RECORD.pack(*numbers, self.left, self.pid, self.start, self.machine)

    @classmethod
    def unpacked(cls, content: bytes) -> "Heartbeat | None":
        """Parse the bytes of ``packed``. None: all are zero (no beat yet), or too few or many."""
        if len(content) != HEARTBEAT_BYTES or not any(content):
            return None
        names = (field.name for field in fields(cls))
        values = dict(zip(names, _RECORD.unpack(content), strict=True))
        flags = {"waiting": bool(values["waiting"]), "left": bool(values["left"])}
        return cls(**values | flags | {"doing": _DOING[values["doing"]]})

    @property
    def state(self) -> str | None:
        """State letter in ``/proc``: ``T`` stopped, ``Z`` ended. None: it is on another machine."""
        if self.machine != machine():
            return None
        stat = process_stat(self.pid)
        return stat[0] if stat and int(stat[19]) == self.start else "Z"


@dataclass(kw_only=True)
class ProcessStatus:
    """Status of this process, from which its heartbeats are made."""

    signs: int = 0  #: progress count of this module; ``num_advances`` adds to it
    steps: int = 0  #: training steps done
    doing: str = "starting"  #: current activity, one of ``_DOING``
    waiting: set[int] = field(default_factory=set)  #: threads that wait for other processes
    verdict: str | None = None  #: reason for which this process ends the run; None while it runs

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Mark this thread as waiting for a process in the ``with`` block; then count progress."""
        thread = get_ident()
        if thread in self.waiting:  # nested block
            yield
            return
        self.waiting.add(thread)
        try:
            yield
        finally:
            self.waiting.discard(thread)
            self.signs += 1

    def begin(self, doing: str) -> None:
        """Set the current activity to ``doing``, and count progress."""
        self.doing = doing
        self.signs += 1

    @contextmanager
    def at(self, doing: str) -> Iterator[None]:
        """Set the current activity to ``doing`` in the block; count progress at both ends of it."""
        outer, self.doing = self.doing, doing
        self.signs += 1
        try:
            yield
        finally:
            self.doing = outer
            self.signs += 1

    def pulse(self, beat: int, *, left: bool = False) -> Heartbeat:
        """Return this process's heartbeat number ``beat``; ``left``: the process leaves the run."""
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


#: Status of this process, which takes part in one run at a time.
STATUS = ProcessStatus()


@contextmanager
def publish_heartbeats(publish: Callable[[Heartbeat], None], every_s: float) -> Iterator[None]:
    """Publish heartbeats every ``every_s`` seconds in the ``with`` block, and a last one after it.

    An OSError or RuntimeError of ``publish`` is ignored: a failed report does not end the run.
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
    """Return a number that is equal in processes of one machine and PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        names = os.readlink("/proc/self/ns/pid")
    except OSError:
        return os.getpid()
    return int.from_bytes(hashlib.blake2b(f"{boot}{names}".encode(), digest_size=7).digest(), "big")


#: Seconds of a stall after which it is logged; logged again after each doubling.
_SAY_AFTER_S = 30.0

#: Maximum seconds that count between two checks. More time has passed if the checking process was
#: itself stopped, for example by Ctrl-Z.
MAX_CHECK_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Stalled processes of a run, with the duration and the kind of the stall."""

    ranks: tuple[int, ...]  #: stalled ranks; several if all wait for each other
    seconds: float  #: seconds without progress
    silent: bool  #: whether the process sends no new heartbeats
    limited: bool  #: whether ``runtime.stall_limit_s`` applies, so that the run may end


@dataclass(kw_only=True)
class _LastSeen:
    """Last heartbeat and last progress count of a process, with the times when each changed."""

    beat: int = 0
    beat_at: float = 0.0
    signs: int = 0
    signs_at: float = 0.0


class StallDetector:
    """Detector of stalled processes, from the heartbeats of a run.

    A process is stalled if it sends no heartbeats. While other processes wait, a process that does
    not wait and makes no progress is stalled. If all wait, those with the fewest steps are stalled.
    """

    def __init__(self, names: Sequence[str], *, limit_s: float | None) -> None:
        """Watch workers ``names``; a stall of ``limit_s`` seconds ends the run (None: never)."""
        self._names = names
        self._last_seen = [_LastSeen() for _ in names]
        self._limit_s = limit_s
        self._after_s = min(_SAY_AFTER_S, limit_s or _SAY_AFTER_S)
        self._now = 0.0
        self._logged_ranks: tuple[int, ...] = ()
        self._since, self._next_s = 0.0, 0.0

    def look(self, pulses: Sequence[Heartbeat | None], seconds: float) -> Stall | None:
        """Return the current stall, or None, from ``pulses``: the last heartbeat of each process.

        None in ``pulses``: the process has sent none yet; ``seconds`` have passed since the last
        call.
        """
        self._now += min(seconds, MAX_CHECK_S)
        for last, pulse in zip(self._last_seen, pulses, strict=True):
            if pulse is not None and pulse.beat != last.beat:
                last.beat, last.beat_at = pulse.beat, self._now
            if pulse is not None and pulse.signs != last.signs:
                last.signs, last.signs_at = pulse.signs, self._now
        active = {i: pulse for i, pulse in enumerate(pulses) if pulse is None or not pulse.left}
        return self._silent(active) or self._stuck(active)

    def is_over(self, stall: Stall) -> bool:
        """Whether a stall has reached a limit that applies to it: the caller then ends the run."""
        return stall.limited and self._limit_s is not None and stall.seconds >= self._limit_s

    def is_due(self, stall: Stall) -> bool:
        """Return True once a stall has lasted 30 s, and again after each doubling: to log it."""
        since = self._now - stall.seconds
        if self._logged_ranks != stall.ranks or since > self._since:
            self._logged_ranks, self._since, self._next_s = stall.ranks, since, _SAY_AFTER_S
        due = stall.seconds >= self._next_s
        while self._next_s <= stall.seconds:
            self._next_s *= 2
        return due

    def waiting_line(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        """Return the log line that names the stalled processes."""
        who = self._who(stall, pulses)
        if len(stall.ranks) > 1:
            return f"{who} wait for each other since {stall.seconds:.0f} s"
        return f"waiting for {who} since {stall.seconds:.0f} s"

    def ended_by(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        """Return the message for a run that ends because of a stall."""
        if len(stall.ranks) > 1:
            cause = "have waited for each other"
        else:
            cause = "has given no sign of life" if stall.silent else "has made no progress"
        option = f"runtime.stall_limit_s={self._limit_s:g}; null waits without end"
        return f"{self._who(stall, pulses)} {cause} for {stall.seconds:.0f} s ({option})"

    def _who(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> str:
        names = [self._names[i] for i in stall.ranks]
        if len(names) > 1:
            return f"workers {', '.join(names)}"
        pulse = pulses[stall.ranks[0]]
        if pulse is None:
            return f"worker {names[0]} (starting)"
        doing = "stopped" if pulse.state in ("T", "t") else pulse.doing
        return f"worker {names[0]} (process {pulse.pid}, {doing})"

    def _silent(self, pulses: dict[int, Heartbeat | None]) -> Stall | None:
        """Return the stall of the process without heartbeats for longest. None: not long enough."""
        ages = {i: self._now - self._last_seen[i].beat_at for i in pulses}
        silent = [i for i in pulses if ages[i] >= self._after_s]
        if not silent:
            return None
        first = max(silent, key=lambda i: (pulses[i] is not None, ages[i]))
        # A process without any heartbeat may still be loading from disk.
        return Stall(
            ranks=(first,), seconds=ages[first], silent=True, limited=pulses[first] is not None
        )

    def _stuck(self, pulses: dict[int, Heartbeat | None]) -> Stall | None:
        """Return the stall of a process that others wait for, or of several if all wait.

        None: there is no such stall.
        """
        started = {i: pulse for i, pulse in pulses.items() if pulse is not None}
        ages = {i: self._now - self._last_seen[i].signs_at for i in started}
        stuck = [i for i in started if ages[i] >= self._after_s]
        waiting = [i for i in stuck if started[i].waiting]
        if not waiting:
            return None
        if len(waiting) == len(pulses):
            fewest = min(pulse.steps for pulse in started.values())
            ranks = tuple(i for i in started if started[i].steps == fewest)
            seconds = min(ages[i] for i in ranks)
            return Stall(ranks=ranks, seconds=seconds, silent=False, limited=True)
        busy = [i for i in stuck if i not in waiting]
        if not busy:
            return None
        first = max(busy, key=lambda i: (started[i].doing == TRAINS, ages[i]))
        limited = started[first].doing == TRAINS
        return Stall(ranks=(first,), seconds=ages[first], silent=False, limited=limited)


def has_process_ended(pulse: Heartbeat | None) -> bool:
    """Whether the process of ``pulse``, if it is on this machine, has ended."""
    return pulse is not None and pulse.state in ("Z", "X")


#: Current activity by thread identifier: a stage, ``validate`` or ``checkpoint``. Threads without
#: an activity are missing.
CURRENT_ACTIVITIES: dict[int, str] = {}


class activity(ContextDecorator):  # noqa: N801  used like a contextmanager function
    """Context manager and decorator that records this thread's activity in ``CURRENT_ACTIVITIES``.

    A class, since a generator would take three times as long in each training step.
    """

    def __init__(self, name: str) -> None:
        """Prepare to record ``name`` for the thread that enters the block."""
        self._name = name

    def __enter__(self) -> None:
        CURRENT_ACTIVITIES[get_ident()] = self._name
        STATUS.signs += 1

    def __exit__(self, *error: object) -> None:
        del CURRENT_ACTIVITIES[get_ident()]
