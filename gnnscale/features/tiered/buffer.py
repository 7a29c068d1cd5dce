"""Memory for the rows of a tier, on large pages; those of a file may come before them."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gnnscale.core import Array
from gnnscale.core.artifact.npy import row_slices
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.features.tiered.planner import PlannedBatch, TierPlanner
from gnnscale.features.tiered.source import BatchSource, RowSource

#: Bytes that are touched in one call.
_TOUCHED_BYTES = 64 << 20

#: MADV_POPULATE_WRITE, since Linux 5.14.
_POPULATE = 23

#: MAP_FIXED of Linux, which Python does not name.
_MAP_FIXED = 0x10

#: Rows of a .npy file.
MappedRows: TypeAlias = "np.memmap[Any, np.dtype[Any]]"


def slots_of_file(file: MappedRows) -> int:
    """Return how many slots of a pool the rows of ``file`` take, with the rest of its last page."""
    row_bytes = file.nbytes // max(len(file), 1)
    rest = -(file.offset + file.nbytes) % mmap.PAGESIZE
    return len(file) + -(-rest // max(row_bytes, 1))


def pool_bytes(num_slots: int, row_bytes: int, file: MappedRows | None = None) -> int:
    """Return the bytes of a pool, with those of ``file`` that come before its rows."""
    return max((0 if file is None else file.offset) + num_slots * row_bytes, 1)


def _map_file(file: MappedRows, address: int) -> None:
    """Map ``file`` from its begin at ``address``, which begins a page, in place of what is there.

    Pages are private and may be written, as Python's own of the rest: nobody writes them.
    """
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    length = ctypes.c_size_t(file.offset + file.nbytes)
    writable = ctypes.c_int(mmap.PROT_READ | mmap.PROT_WRITE)
    how = ctypes.c_int(mmap.MAP_PRIVATE | _MAP_FIXED)
    with open(str(file.filename), "rb") as opened:
        found = system.mmap(
            ctypes.c_void_p(address),
            length,
            writable,
            how,
            ctypes.c_int(opened.fileno()),
            ctypes.c_long(0),
        )
    if found != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file.filename))


class RowBuffer:
    """Slots of rows, ``[num_slots, width]``; memory is taken when a slot is first written.

    A thread touches slots from the first on, so that rows of the disk need not wait for the system
    to clear pages.

    The first slots may be those of a file, which is mapped in front of the others: rows of both
    are then found in one matrix, and those of the file are not copied.
    """

    def __init__(
        self,
        num_slots: int,
        width: int,
        dtype: np.dtype[Any],
        *,
        file: MappedRows | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        """Reserve addresses for ``num_slots`` rows.

        Args:
            file: has the first ``slots_of_file`` of them; None for no file.
            memory: ``pool_bytes`` that other processes map as well; None for this process's own.

        Raises:
            OSError: the file cannot be mapped.
        """
        self._row_bytes = width * dtype.itemsize
        self._first = 0 if file is None else slots_of_file(file)
        offset = 0 if file is None else file.offset
        num_bytes = pool_bytes(num_slots, self._row_bytes, file)
        mapped = mmap.mmap(-1, num_bytes) if memory is None else memory.map
        if memory is None and hasattr(mmap, "MADV_HUGEPAGE"):
            mapped.madvise(mmap.MADV_HUGEPAGE)
        content: Array = np.frombuffer(mapped, dtype, num_slots * width, offset)
        self.rows = content.reshape(num_slots, width)  #: without a file, they begin with a page
        if file is not None:
            _map_file(file, self.rows.ctypes.data - offset)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def _first_bytes(self) -> int:
        return self._first * self._row_bytes

    def touch(self, num_slots: int) -> None:
        """Begin to touch the first ``num_slots`` slots."""
        num_bytes = min(num_slots * self._row_bytes, self.rows.nbytes) - self._first_bytes
        self._thread = threading.Thread(
            target=self._touch, args=(num_bytes,), name="gnnscale-pool", daemon=True
        )
        self._thread.start()

    def _touch(self, num_bytes: int) -> None:
        advise = ctypes.CDLL(None).madvise  # without the lock of Python
        begin = self.rows.ctypes.data + self._first_bytes
        for first in range(0, num_bytes, _TOUCHED_BYTES):
            length = min(_TOUCHED_BYTES, num_bytes - first)
            given = ctypes.c_void_p(begin + first), ctypes.c_size_t(length), ctypes.c_int(_POPULATE)
            # An older system does not know it, and pages are cleared when they are written to.
            if self._ended.is_set() or advise(*given) != 0:
                return

    def close(self) -> None:
        """End the thread; memory is free once no array lies in it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()


#: About so many bytes of rows are asked for at once if no step waits for them.
_READ_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class BegunBatch:
    """A batch whose missing rows are on their way."""

    batch: PlannedBatch
    ticket: int  #: of the source


class BatchReader:
    """Plans batches and reads their rows from a source into a pool; one caller at a time."""

    def __init__(
        self, source: BatchSource, planner: TierPlanner, pool: RowBuffer, *, ahead: int
    ) -> None:
        """Read rows of ``source`` into ``pool`` as ``planner`` says.

        Args:
            ahead: batches whose rows may be on their way, or in use, at once.
        """
        self.source = source
        self.pool = pool
        self.begun: deque[BegunBatch] = deque()  #: batches that are not served yet
        self._planner = planner
        self._ahead = ahead
        pool.touch(planner.num_usual_slots)

    def fill(self, rows: Array, source: RowSource) -> None:
        """Read ``rows``, ``[k]`` vertices of ``source``, into the first slots, for good."""
        read_rows(source, rows, self.pool.rows[self._planner.num_fixed :])
        source.take_reads()
        self._planner.fill(len(rows))

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next batch, ``[n]`` distinct; None if it reads nothing."""
        self._planner.expect(vertices)

    def end(self) -> None:
        """Say that no batch follows: the last ones are read ahead as those before them."""
        self._planner.end()

    def begin_all(self) -> list[BegunBatch]:
        """Plan the batches whose rows there is room for, and begin to read what they miss."""
        before = len(self.begun)
        while len(self.begun) < self._ahead and self.begin():
            pass
        return [self.begun[each] for each in range(before, len(self.begun))]

    def begin(self, vertices: Array | None = None) -> bool:
        """Plan a batch and begin to read what it misses; False if there is no room, or no batch.

        Args:
            vertices: begin this very batch, even if the batches after it are not known.
        """
        batch = self._planner.plan(vertices)
        for _ in range(self._planner.take_empty()):
            self.source.skip()
        if batch is None:
            return False
        missing = batch.missing
        slots = batch.slots[missing]
        ticket = self.source.start(batch.vertices[missing], self.pool.rows, slots)
        self.begun.append(BegunBatch(batch=batch, ticket=ticket))
        return True

    def served(self) -> None:
        """Give back the slots that the oldest batch leaves."""
        self._planner.served(self.begun.popleft().batch)

    def close(self) -> None:
        """Wait for reads that were begun, and release the source."""
        self.source.close()
        self.pool.close()


def read_rows(source: RowSource, vertices: Array, rows: Array) -> None:
    """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored."""
    width = source.width * source.dtype.itemsize
    for part in row_slices(len(vertices), width, _READ_BYTES):
        slots = np.arange(part.start, part.stop, dtype=np.int32)
        source.finish(source.start(vertices[part], rows, slots))
