"""The max memory of a piece of work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc/self")
#: Written to clear_refs, it makes the peak begin anew (proc(5)).
_RESET_PEAK = "5"


class PeakMemory:
    """The max memory of this process and a child of it since it was watched."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._with_child = 0
        #: bytes that the process held at first; None if the system does not tell
        self.before = _status_bytes(proc, "VmRSS")
        #: whether the peak could not be made to begin anew, so that it counts from the start of the
        #: process
        self.since_start = not _reset(proc)

    @property
    def bytes(self) -> int | None:
        """The peak; None if the system does not report it."""
        own = _status_bytes(self._proc, "VmHWM")
        return None if own is None else max(own, self._with_child)

    def add_child(self, num_bytes: int) -> None:
        """Count a child that held ``num_bytes`` while this process held what it holds now."""
        own = _status_bytes(self._proc, "VmRSS") or 0
        self._with_child = max(self._with_child, own + num_bytes)


_watched: list[PeakMemory] = []


@contextmanager
def watch_peak() -> Iterator[PeakMemory]:
    """Watch the memory of the ``with`` block."""
    peak = PeakMemory()
    _watched.append(peak)
    try:
        yield peak
    finally:
        _watched.remove(peak)


def note_child(num_bytes: int) -> None:
    """Record the max memory of a child process; for partitioners that start one."""
    for peak in _watched:
        peak.add_child(num_bytes)


def _reset(proc: Path) -> bool:
    try:
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status_bytes(proc: Path, name: str) -> int | None:
    try:
        lines = (proc / "status").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else int(found.split()[1]) * 1024
