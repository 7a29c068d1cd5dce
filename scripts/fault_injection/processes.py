"""What this machine says of processes, ports and shared memory. Linux only."""

import ctypes
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: ``PR_SET_PDEATHSIG`` of ``prctl``.
_SIGNAL_AT_PARENTS_DEATH = 1
_LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Let this process be killed as soon as the one that started it ends, for ``preexec_fn``."""
    _LIBC.prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)


@dataclass(frozen=True)
class Process:
    """A process, distinct from a later one with the same number."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        found = look_at(self.pid)
        return found is not None and found[0] == self and found[2] not in "ZX"


def look_at(pid: int) -> tuple[Process, int, str] | None:
    """Return a process, its parent and its state; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return Process(pid=pid, start=int(fields[19])), int(fields[1]), fields[0]


def descendants(pid: int) -> list[Process]:
    """Return the processes below ``pid``, at any depth, the oldest first."""
    numbers = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    found = [each for number in numbers if (each := look_at(number)) is not None]
    family, before = {pid}, 0
    while len(family) > before:
        before = len(family)
        family |= {process.pid for process, parent, _ in found if parent in family}
    below = [process for process, _, _ in found if process.pid in family - {pid}]
    return sorted(below, key=lambda process: (process.start, process.pid))


def listening() -> dict[str, int]:
    """Return the ports on which this machine listens, by the number of their socket."""
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A":
                ports[parts[9]] = int(parts[1].rpartition(":")[2], 16)
    return ports


def sockets(pid: int) -> set[str]:
    """Return the numbers of a process's sockets."""
    found = ""
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            found += os.readlink(each) + "\n"
    return set(re.findall(r"^socket:\[(\d+)\]$", found, re.M))


def shared_memory() -> set[str]:
    """Return what is in shared memory, but for semaphores of process pools: a run has no pool."""
    names = {each.name for each in Path("/dev/shm").iterdir()}
    return {name for name in names if not name.startswith("sem.mp-")}


def elapsed() -> Iterator[float]:
    """Yield the seconds since the first one; while a virtual machine is paused, none pass."""
    seconds, last = 0.0, time.monotonic()
    while True:
        yield seconds
        time.sleep(0.005)
        now = time.monotonic()
        seconds, last = seconds + min(now - last, 0.5), now
