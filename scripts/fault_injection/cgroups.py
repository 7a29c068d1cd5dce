"""Control groups that limit the memory of commands, made below this process's own. Linux, root."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
#: Seconds in which the system lets go of a group whose processes have ended.
_GONE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class LimitedGroup:
    """A control group with a limit of memory."""

    folder: Path
    peak_file: str  #: counts the most memory that its processes have had

    def enter(self) -> None:
        """Let the calling process, and those that it starts, be of the group (``preexec_fn``)."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def peak_bytes(self) -> int:
        """The most memory that its processes have had, with files that they have read."""
        return int((self.folder / self.peak_file).read_text())


@contextmanager
def limited_group(num_bytes: int) -> Iterator[LimitedGroup | None]:
    """Make a group whose processes have ``num_bytes`` of memory, and no swap, in a ``with`` block.

    Yields:
        None if this process may make none.
    """
    group = _made(num_bytes)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group.folder)


def _made(num_bytes: int) -> LimitedGroup | None:
    for parent, limits, peak in _parents():
        folder = parent / f"gnnscale-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for name, value in limits(num_bytes):
                (folder / name).write_text(str(value))
            return LimitedGroup(folder=folder, peak_file=peak)
        except OSError:
            folder.rmdir()
    return None


Limits = Callable[[int], list[tuple[str, int]]]


def _parents() -> Iterator[tuple[Path, Limits, str]]:
    """Yield folders in which a group may be made, with the files that limit it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, name = line.split(":", 2)
        own = Path(name.lstrip("/"))
        if "memory" in controllers.split(","):
            for folder in (own, *own.parents):
                top = _CGROUP / "memory" / folder
                yield top, _version_1(top), "memory.max_usage_in_bytes"
        elif number == "0":
            for folder in (own, *own.parents):
                top = _CGROUP / folder
                with suppress(OSError):
                    if "memory" in (top / "cgroup.subtree_control").read_text().split():
                        yield top, _version_2, "memory.peak"


def _version_1(top: Path) -> Limits:
    swaps = (top / "memory.memsw.limit_in_bytes").exists()
    names = ("memory.limit_in_bytes", *(("memory.memsw.limit_in_bytes",) if swaps else ()))
    return lambda num_bytes: [(name, num_bytes) for name in names]


def _version_2(num_bytes: int) -> list[tuple[str, int]]:
    return [("memory.max", num_bytes), ("memory.swap.max", 0)]


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _GONE_S
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
