"""Control groups that limit the memory of commands, made below this process's own. Linux, root."""

import os
import time
from collections.abc import Iterator
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
    """Make a group whose processes have ``num_bytes`` of memory; None if none can be made."""
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
            for name, value in limits.items():
                (folder / name).write_text(str(num_bytes if value is None else value))
            return LimitedGroup(folder=folder, peak_file=peak)
        except OSError:
            folder.rmdir()
    return None


def _parents() -> Iterator[tuple[Path, dict[str, int | None], str]]:
    """Yield folders in which a group may be made, with the files that limit it.

    The value of a file is the limit if it is None.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, name = line.split(":", 2)
        own = Path(name.lstrip("/"))
        if "memory" in controllers.split(","):
            for folder in (own, *own.parents):
                top = _CGROUP / "memory" / folder
                names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
                limits = {name: None for name in names if (top / name).exists()}
                yield top, limits, "memory.max_usage_in_bytes"
        elif number == "0":
            for folder in (own, *own.parents):
                top = _CGROUP / folder
                with suppress(OSError):
                    if "memory" in (top / "cgroup.subtree_control").read_text().split():
                        yield top, {"memory.max": None, "memory.swap.max": 0}, "memory.peak"


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
