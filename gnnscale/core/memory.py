"""Memory that this process may use, and the limits that end a process which takes more."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
#: Bytes that the system may ask a control group for at a time: its use never reaches its limit.
_CHARGED_BYTES = 1 << 20
#: Addresses without which NumPy and PyTorch are not imported. Below that NumPy's library of
#: products may end the process, or wait without end.
_LEAST_ADDRESSES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Main memory in bytes."""

    total: int  #: what this process and others of its container may take
    #: what of it is left, the page cache counted as such; at most the address space that is left
    available: int
    installed: int  #: what the machine has, ``total`` without a limit


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Names of the files of a control group, which its version decides."""

    limit: str
    used: str
    peak: str  #: the most that was ever used, with the page cache
    cache: str  #: prefix of the page cache's entries in ``memory.stat``
    kills: str  #: file that counts processes killed for want of memory
    refusals: tuple[tuple[str, str | None], ...]  #: files that count refused memory, and the entry


_VERSION_1 = _Files(
    limit="memory.limit_in_bytes",
    used="memory.usage_in_bytes",
    peak="memory.max_usage_in_bytes",
    cache="total_",
    kills="memory.oom_control",
    refusals=(("memory.failcnt", None), ("memory.memsw.failcnt", None)),
)
_VERSION_2 = _Files(
    limit="memory.max",
    used="memory.current",
    peak="memory.peak",
    cache="",
    kills="memory.events",
    refusals=(("memory.events.local", "oom"),),
)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A control group to which this process belongs, directly or through its children."""

    folder: Path
    files: _Files

    def number(self, file: str, entry: str | None = None) -> int:
        """Return the number in ``file``, or in its line that begins with ``entry``.

        Raises:
            OSError: the group has no such file.
            ValueError: it holds no such number, or "max".
        """
        text = (self.folder / file).read_text()
        if entry is None:
            return int(text)
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == entry:
                return int(value)
        raise ValueError(f"{file}: has no {entry}")

    @property
    def limit(self) -> int:
        """Bytes that processes of the group may take; raises as ``number``."""
        return self.number(self.files.limit)

    @property
    def used(self) -> int:
        """Bytes that they take, without the page cache; raises as ``number``."""
        names = (f"{self.files.cache}inactive_file", f"{self.files.cache}active_file")
        entries = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        cached = sum(int(value) for name, value in entries if name in names)
        return self.number(self.files.used) - cached

    @property
    def kills(self) -> int | None:
        """Number of processes that the system has killed for want of memory; None if unknown."""
        with suppress(OSError, ValueError):
            return self.number(self.files.kills, "oom_kill")
        return None

    @property
    def refusals(self) -> int:
        """Number of requests that the group's limit has refused; 0 on systems that do not count."""
        count = 0
        for file, entry in self.files.refusals:
            with suppress(OSError, ValueError):
                count += self.number(file, entry)
        return count

    @property
    def is_full(self) -> bool:
        """Whether its processes have ever taken all that the limit allows."""
        with suppress(OSError, ValueError):
            return self.number(self.files.peak) > self.limit - _CHARGED_BYTES
        return False


def _groups(proc: Path, cgroup: Path) -> Iterator[_Group]:
    """Yield this process's control groups of memory, from its own up to the topmost.

    A container that sees its group as the topmost may still get the name that the machine uses for
    it, of which no folder exists.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0":  # version 2, beside version 1 or alone
            tops, files = [cgroup, cgroup / "unified"], _VERSION_2
        elif "memory" in controllers.split(","):
            tops, files = [cgroup / "memory"], _VERSION_1
        else:
            continue
        own = Path(name.lstrip("/"))
        for top in tops:
            for folder in (own, *own.parents):
                yield _Group(folder=top / folder, files=files)


def find_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """Return the memory that this process may use.

    It is the machine's, or the smallest limit of the control groups of this process, which are
    nested, or that of its address space (RLIMIT_AS).
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = installed = os.sysconf("SC_PHYS_PAGES") * page
    available = os.sysconf("SC_AVPHYS_PAGES") * page
    with suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    for group in _groups(proc, cgroup):
        # Without a limit, the file says "max", or is missing at the topmost group.
        with suppress(OSError, ValueError):
            limit, used = group.limit, group.used
            total, available = min(total, limit), min(available, max(limit - used, 0))
    addresses = _address_space_limit()
    if addresses is not None:
        total = min(total, addresses)
        with suppress(OSError, ValueError):
            mapped = int((proc / "self" / "statm").read_text().split()[0]) * page
            available = min(available, max(addresses - mapped, 0))
    return Memory(total=total, available=available, installed=installed)


def _address_space_limit() -> int | None:
    """Return the bytes of addresses that this process may have (RLIMIT_AS); None: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def address_space_problem() -> str | None:
    """Return why PyTorch cannot be imported, if the limit on addresses is too low; else None."""
    limit = _address_space_limit()
    if limit is None or limit >= _LEAST_ADDRESSES:
        return None
    return f"imports take up to 1 GiB of addresses{address_space_reason()}"


def address_space_reason() -> str:
    """Return the end of a line about memory that ran out: the limit on this process's addresses.

    Returns:
        Nothing if the process has no such limit. Others inherit it from their parents.
    """
    limit = _address_space_limit()
    if limit is None:
        return ""
    return f"; the limit on address space (ulimit -v {limit // 1024}) is the reason"


class KillCounts:
    """Finds out whether the limit of a control group is why a process of it was killed.

    The counters are compared with those at the time when this is made.
    """

    def __init__(self, proc: Path = _PROC, cgroup: Path = _CGROUP) -> None:
        self._groups = list(_groups(proc, cgroup))
        self._kills = [group.kills for group in self._groups]
        self._refusals = [group.refusals for group in self._groups]

    def reason(self) -> str | None:
        """Return by which limit of memory a process was killed since; None if it was not."""
        kills = zip(self._groups, self._kills, strict=True)
        if not any(before is not None and (group.kills or 0) > before for group, before in kills):
            return None
        counts = zip(self._groups, self._refusals, strict=True)
        refused = [group for group, before in counts if group.refusals > before]
        for group in (*refused, *(group for group in self._groups if group.is_full)):
            with suppress(OSError, ValueError):
                limit = _shown_size(group.limit)
                return f"the cgroup's memory limit of {limit} ({group.folder})"
        return "the system, whose memory ran out"


def _shown_size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
