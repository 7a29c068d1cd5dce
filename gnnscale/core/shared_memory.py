"""Host memory shared by processes: an anonymous writable file (memfd)."""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core.errors import ConfigError
from gnnscale.core.memory import read_memory
from gnnscale.core.progress import track
from gnnscale.core.types import Array

#: Bytes copied at a time while memory is filled.
CHUNK_BYTES = 64 << 20


class _Map(mmap.mmap):
    """Memory map that keeps its ``SharedMemory`` alive; arrays on the map keep the map alive."""

    memory: SharedMemory


class SharedMemory:
    """Memory of a fixed size that processes share, freed when none of them maps it any more."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory file of ``descriptor``, which is closed with this object."""
        self.descriptor = descriptor  #: the file
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            self.map = _Map(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except PermissionError:
            raise ConfigError("shared memory: its file is read-only") from None
        with suppress(OSError):  # the system has no huge pages for shared memory
            self.map.madvise(mmap.MADV_HUGEPAGE)
        self.map.memory = self

    @classmethod
    def empty(cls, num_bytes: int) -> SharedMemory:
        """Return new memory of zeros, at least one page; ConfigError: too little is available."""
        available = read_memory().available
        if num_bytes > available:
            raise ConfigError(
                f"shared memory: {num_bytes / 1e6:,.1f} MB of the graph are to lie in it, and "
                f"{available / 1e6:,.1f} MB are available; features=device and topology=device of "
                "a cuda device need none, device_plan=cpu reads them from the disk"
            )
        return cls.reserved(num_bytes)

    @classmethod
    def reserved(cls, num_bytes: int) -> SharedMemory:
        """Return new memory of zeros, of which pages are allocated when they are first written."""
        pages = max(-(-num_bytes // mmap.PAGESIZE), 1)
        descriptor = os.memfd_create("gnnscale", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, pages * mmap.PAGESIZE)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    @classmethod
    def filled(cls, source: Array) -> SharedMemory:
        """Return new memory with a copy of ``source``; ConfigError: too little is available."""
        memory = cls.empty(source.nbytes)
        target = memory.array(source.shape, source.dtype)
        step = max(1, CHUNK_BYTES // max(1, source[:1].nbytes))
        with track("filling shared memory", len(source), "rows") as advance:
            for first in range(0, len(source), step):
                rows = source[first : first + step]
                target[first : first + step] = rows
                advance(len(rows))
        return memory

    @classmethod
    def open(cls, path: Path) -> SharedMemory:
        """Map the shared memory of another process of this user, given its property ``path``."""
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def path(self) -> Path:
        """Path to open the memory at, for this user's processes, while this process has it open."""
        return Path(f"/proc/{os.getpid()}/fd/{self.descriptor}")

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array on the first bytes of the memory; ConfigError: they are too few."""
        count = int(np.prod(shape, dtype=np.int64))
        if count * dtype.itemsize > len(self.map):
            needed = count * dtype.itemsize
            raise ConfigError(f"segment: {shape} {dtype} needs {needed:,} B, has {len(self.map):,}")
        return np.frombuffer(self.map, dtype, count).reshape(shape)


def shared_memory_of(array: Any) -> SharedMemory | None:
    """Return the ``SharedMemory`` on whose first byte ``array`` begins; None: there is none."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, _Map):
        return None
    begins = array.ctypes.data == np.frombuffer(base, np.uint8).ctypes.data
    return base.memory if begins else None
