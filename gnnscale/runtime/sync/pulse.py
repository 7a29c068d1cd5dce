"""Signs of life: what a process of a run tells the others of how far it has come.

Whatever trains adds to ``OWN``, which costs less than a microsecond a step. A thread publishes it
every second or two, in a file that the launching process reads, or in torchrun's store.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import get_ident

from gnnscale.progress import num_advances

__all__ = ["OWN", "PULSE_BYTES", "TRAINS", "Own", "Pulse", "beating"]

#: What a process is at. Only training has a limit: the rest may take hours, and says so itself.
TRAINS = "training"
_DOING = (TRAINS, "starting", "opening the run", "between two epochs", "reporting", "testing")
_RECORD = struct.Struct("=9q")
#: Seconds in which the last pulse has to be published; a network may take it no more.
_END_S = 5.0
#: Bytes of a packed pulse.
PULSE_BYTES = _RECORD.size


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """What a process has last told of itself.

    Attributes:
        beat: counts what it has told; a process that is stopped tells nothing.
        signs: counts whatever it has begun or done; it grows as long as the process gets on.
        steps: training steps done.
        waiting: whether one of its threads waits for another process.
        doing: one of ``_DOING``.
        left: whether it is done, and no longer to be waited for.
        pid, start: its number, and when it started, by the system's clock ticks.
        machine: tells processes apart that do not see each other's numbers.
    """

    beat: int
    signs: int
    steps: int
    waiting: bool
    doing: str
    left: bool
    pid: int
    start: int
    machine: int

    def packed(self) -> bytes:
        """Return it as ``PULSE_BYTES`` bytes."""
        numbers = (self.beat, self.signs, self.steps, self.waiting, _DOING.index(self.doing))
        return _RECORD.pack(*numbers, self.left, self.pid, self.start, self.machine)

    @classmethod
    def unpacked(cls, content: bytes) -> Pulse | None:
        """Undo ``packed``; None for one that was never written, which is of zeros."""
        if len(content) != PULSE_BYTES or not any(content):
            return None
        beat, signs, steps, waiting, doing, left, pid, start, machine = _RECORD.unpack(content)
        return cls(
            beat=beat,
            signs=signs,
            steps=steps,
            waiting=bool(waiting),
            doing=_DOING[doing],
            left=bool(left),
            pid=pid,
            start=start,
            machine=machine,
        )

    @property
    def state(self) -> str | None:
        """The letter of its state, as ``T`` for stopped and ``Z`` for ended.

        None where it is a process of another machine.
        """
        if self.machine != machine():
            return None
        return _state(self.pid) if _start_time(self.pid) == self.start else "Z"


@dataclass(kw_only=True)
class Own:
    """What this process is at.

    Attributes:
        signs: counts stages and the like that were begun.
        steps: training steps done.
        doing: one of ``_DOING``.
        waiting: threads that wait for other processes.
        verdict: why the run ends, once this process has found another one stalled.
    """

    signs: int = 0
    steps: int = 0
    doing: str = "starting"
    waiting: set[int] = field(default_factory=set)
    verdict: str | None = None

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

    def pulse(self, beat: int, *, left: bool = False) -> Pulse:
        """Return what is to be published."""
        return Pulse(
            beat=beat,
            signs=self.signs + num_advances(),
            steps=self.steps,
            waiting=bool(self.waiting),
            doing=self.doing,
            left=left,
            pid=os.getpid(),
            start=_start_time(os.getpid()),
            machine=machine(),
        )


#: What this process is at; a process takes part in one run at a time.
OWN = Own()


@contextmanager
def beating(publish: Callable[[Pulse], None], every_s: float) -> Iterator[None]:
    """Publish what ``OWN`` says, from a thread, within the ``with`` block; and once more after it.

    Args:
        publish: takes a pulse. What it raises is dropped: a run does not end because nobody can
            be told how it is.
        every_s: seconds between two of them.
    """
    over = threading.Event()

    def tell(beat: int, *, left: bool = False) -> None:
        with suppress(OSError, RuntimeError):
            publish(OWN.pulse(beat, left=left))

    def beat() -> None:
        number = 1
        while not over.wait(every_s):
            number += 1
            tell(number)

    tell(1)
    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_END_S)
        if not thread.is_alive():
            tell(0, left=True)


@cache
def machine() -> int:
    """Return a number that processes have in common which see each other's process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        names = os.readlink("/proc/self/ns/pid")
    except OSError:
        return os.getpid()
    return int.from_bytes(hashlib.blake2b(f"{boot}{names}".encode(), digest_size=7).digest(), "big")


def _state(pid: int) -> str:
    """Return the letter of a process's state; ``Z`` for one that has ended."""
    fields = _stat(pid)
    return fields[0] if fields else "Z"


def _start_time(pid: int) -> int:
    """Return when a process started, in the system's clock ticks; 0 for one that is not there."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
