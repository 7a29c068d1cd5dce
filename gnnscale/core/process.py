"""State of processes, commands that start Python programs, and process-wide settings."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def process_stat(number: int) -> list[str]:
    """Return the fields of ``/proc/NUMBER/stat`` from the state on; empty: no such process."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_of(number: int) -> int:
    """Return a process's start in clock ticks since boot; 0 if there is no such process."""
    stat = process_stat(number)
    return int(stat[19]) if stat else 0


def process_age_s() -> float | None:
    """Return the seconds since this process was started; None if unknown."""
    started = start_of(os.getpid())
    if not started or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def own_process() -> tuple[int, int]:
    """Return this process's id and start time, which together identify it uniquely."""
    return os.getpid(), start_of(os.getpid())


def has_ended(number: int, start: int) -> bool:
    """Whether a process has ended, given its id and start time as ``own_process`` returned them."""
    stat = process_stat(number)
    return not stat or int(stat[19]) != start or stat[0] in ("Z", "X")


#: Statements that set ``sys.path`` to that of the parent process. Until then ``python -c`` searches
#: modules in the working directory; ``sys`` is built in.
_PATH = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2 : 2 + count]; del sys.argv[1 : 2 + count]; "
)


def python_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs Python statements with ``arguments`` and this ``sys.path``."""
    words = map(str, (len(sys.path), *sys.path, *arguments))
    return [sys.executable, "-c", f"{_PATH}{program}", *words]


class SharedSetting:
    """Setting that the first of several overlapping blocks sets, and the last one restores."""

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        """Share a setting. ``begin`` sets it and returns the function that restores it."""
        self._begin = begin
        self._lock = threading.Lock()
        self._num_blocks = 0
        self._restore: Callable[[], None] = lambda: None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the setting during the ``with`` block."""
        with self._lock:
            if not self._num_blocks:
                self._restore = self._begin()
            self._num_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_blocks -= 1
                if not self._num_blocks:
                    self._restore()
