"""Host memory that processes share: one writable file without a name, filled once (memfd)."""

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
from gnnscale.core.memory import find_memory
from gnnscale.core.progress import track
from gnnscale.core.types import Array

#: Bytes that are copied at a time while memory is filled.
CHUNK_BYTES = 64 << 20


class _Map(mmap.mmap):
    """A map that leads to its memory, as arrays over it lead to the map."""

    memory: SharedMemory


class SharedMemory:
    """Memory that each process maps which has its file. Its size is sealed.

    It is freed with the last process that maps it, however that ends.
    """

    def __init__(self, descriptor: int) -> None:
        """Map a file, and own ``descriptor`` from now on.

        Raises:
            ConfigError: it is read-only.
        """
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
        """Return new memory of zeros, a page at least.

        Raises:
            ConfigError: there is not as much memory.
        """
        available = find_memory().available
        if num_bytes > available:
            raise ConfigError(
                f"shared memory: {num_bytes / 1e6:,.1f} MB of the graph are to lie in it, and "
                f"{available / 1e6:,.1f} MB are available; features=device and topology=device of "
                "a cuda device need none, device_plan=cpu reads them from the disk"
            )
        return cls.reserved(num_bytes)

    @classmethod
    def reserved(cls, num_bytes: int) -> SharedMemory:
        """Return new memory of zeros, a page at least, which is taken when it is first written."""
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
        """Return new memory with the elements of ``source``, which may be a map of a file."""
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
        """Map that of another process, by ``path`` there.

        Raises:
            OSError: it is gone, or another user's.
        """
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def path(self) -> Path:
        """What processes of the same user open, as long as this one has it."""
        return Path(f"/proc/{os.getpid()}/fd/{self.descriptor}")

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return it as an array, without a copy.

        Raises:
            ConfigError: it is smaller.
        """
        count = int(np.prod(shape, dtype=np.int64))
        if count * dtype.itemsize > len(self.map):
            needed = count * dtype.itemsize
            raise ConfigError(f"segment: {shape} {dtype} needs {needed:,} B, has {len(self.map):,}")
        found: Array = np.frombuffer(self.map, dtype, count).reshape(shape)
        return found


def shared_memory_of(array: Any) -> SharedMemory | None:
    """Return the shared memory whose beginning ``array`` has; None if it lies in other memory."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, _Map):
        return None
    begins = array.ctypes.data == np.frombuffer(base, np.uint8).ctypes.data
    return base.memory if begins else None
