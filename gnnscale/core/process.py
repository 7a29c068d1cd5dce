"""What the system knows of a process of this machine."""

import os
import sys
import time
from pathlib import Path


def process_stat(number: int) -> list[str]:
    """Return the fields of ``/proc/NUMBER/stat`` after the name: the state first.

    Returns:
        No fields if there is no such process.
    """
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_of(number: int) -> int:
    """Return when a process started, in the system's clock ticks; 0 if there is no such process."""
    stat = process_stat(number)
    return int(stat[19]) if stat else 0


def process_age_s() -> float | None:
    """Return the seconds since this process was started; None if unknown."""
    started = start_of(os.getpid())
    if not started or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def own_process() -> tuple[int, int]:
    """Return this process's number, and when it started: both together are never given again."""
    return os.getpid(), start_of(os.getpid())


def has_ended(number: int, start: int) -> bool:
    """Whether a process of this machine has ended, by what ``own_process`` returned there."""
    stat = process_stat(number)
    return not stat or int(stat[19]) != start or stat[0] in ("Z", "X")


#: ``python -c`` searches modules in the working directory first, until these words are executed:
#: they take the path of the process that starts this one, and import nothing (``sys`` is built in).
_PATH = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2 : 2 + count]; del sys.argv[1 : 2 + count]; "
)


def python_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs ``program``, one line of statements, with this ``sys.path``.

    The program finds ``arguments``, converted to texts, in ``sys.argv[1:]``.
    """
    given = map(str, (len(sys.path), *sys.path, *arguments))
    return [sys.executable, "-c", f"{_PATH}{program}", *given]
