"""Memory available to this process, and limits by control groups and address space."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
#: Granularity in bytes at which the kernel charges a control group: its use stays below its limit.
_CHARGED_BYTES = 1 << 20
#: Bytes of address space that importing NumPy and PyTorch takes. With less, NumPy's BLAS may abort
#: or hang.
_MIN_ADDRESS_SPACE = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Main memory in bytes: total and available for this process, and in the machine."""

    total: int  #: limit of this process and its container
    available: int  #: free memory and page cache within ``total`` and within the address space
    installed: int  #: memory of the machine, without limits


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Names of the files in which a version of cgroups reports memory limits, use and OOM kills."""

    limit: str
    used: str
    peak: str  #: highest use so far, page cache included
    cache: str  #: prefix of the page cache's entries in ``memory.stat``
    kills: str  #: file that counts processes killed by the OOM killer
    refusals: tuple[tuple[str, str | None], ...]  #: files and entries that count refused requests


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
    """Control group (cgroup) of this process, or an ancestor of that: memory limit and use."""

    folder: Path
    files: _Files

    def number(self, file: str, entry: str | None = None) -> int:
        """Return the number in ``file``, or in its line ``entry``; OSError, ValueError: none."""
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
        """Memory limit of the cgroup in bytes; OSError or ValueError: there is none, or unknown."""
        return self.number(self.files.limit)

    @property
    def used(self) -> int:
        """Bytes that the cgroup uses, without the page cache; OSError or ValueError if unknown."""
        names = (f"{self.files.cache}inactive_file", f"{self.files.cache}active_file")
        entries = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        cached = sum(int(value) for name, value in entries if name in names)
        return self.number(self.files.used) - cached

    @property
    def kills(self) -> int | None:
        """Number of processes of the cgroup that the OOM killer has killed; None if unknown."""
        with suppress(OSError, ValueError):
            return self.number(self.files.kills, "oom_kill")
        return None

    @property
    def refusals(self) -> int:
        """Number of memory requests that the cgroup's limit has refused; 0 if not counted."""
        count = 0
        for file, entry in self.files.refusals:
            with suppress(OSError, ValueError):
                count += self.number(file, entry)
        return count

    @property
    def is_full(self) -> bool:
        """Whether memory with page cache has come close to its limit; False if unknown."""
        with suppress(OSError, ValueError):
            return self.number(self.files.peak) > self.limit - _CHARGED_BYTES
        return False


def _groups(proc: Path, cgroup: Path) -> Iterator[_Group]:
    """Yield memory cgroups, of which folders may be missing, from this process's outwards."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, name = [*line.split(":", 2), "", ""][:3]
        if number == "0":  # version 2, possibly together with version 1
            tops, files = [cgroup, cgroup / "unified"], _VERSION_2
        elif "memory" in controllers.split(","):
            tops, files = [cgroup / "memory"], _VERSION_1
        else:
            continue
        innermost = Path(name.lstrip("/"))
        for top in tops:
            for folder in (innermost, *innermost.parents):
                yield _Group(folder=top / folder, files=files)


def read_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """Return the machine's memory, and that of this process, by cgroups and RLIMIT_AS."""
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
    """Return the limit of the address space in bytes (RLIMIT_AS). None: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def address_space_problem() -> str | None:
    """Return a message if RLIMIT_AS leaves too little address space to import torch, else None."""
    limit = _address_space_limit()
    if limit is None or limit >= _MIN_ADDRESS_SPACE:
        return None
    return f"imports take up to 1 GiB of addresses{address_space_reason()}"


def address_space_reason() -> str:
    """Return the end of an out-of-memory message about RLIMIT_AS; "" without such a limit."""
    limit = _address_space_limit()
    if limit is None:
        return ""
    return f"; the limit on address space (ulimit -v {limit // 1024}) is the reason"


class KillCounts:
    """Detector of OOM kills since its construction, by the counters of this process's cgroups."""

    def __init__(self, proc: Path = _PROC, cgroup: Path = _CGROUP) -> None:
        self._groups = list(_groups(proc, cgroup))
        self._kills = [group.kills for group in self._groups]
        self._refusals = [group.refusals for group in self._groups]

    def reason(self) -> str | None:
        """Return a phrase for the memory whose lack led to an OOM kill; None: none since then."""
        kills = zip(self._groups, self._kills, strict=True)
        if not any(start is not None and (group.kills or 0) > start for group, start in kills):
            return None
        counts = zip(self._groups, self._refusals, strict=True)
        refused = [group for group, start in counts if group.refusals > start]
        for group in (*refused, *(group for group in self._groups if group.is_full)):
            with suppress(OSError, ValueError):
                limit = f"{group.limit / 2**20:,.0f} MiB"
                return f"the cgroup's memory limit of {limit} ({group.folder})"
        return "the system, whose memory ran out"
