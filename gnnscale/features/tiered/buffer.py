"""Buffer of a tiered store's rows, backing stores of the rows, and the reader between the two."""

import ctypes
import mmap
import os
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from gnnscale.core import NO_ACCESS, Access, Array, Int32Array, SharedMemory
from gnnscale.core.artifact.npy import row_slices
from gnnscale.features.tiered.policies import PlannedBatch, TierPlanner

#: Bytes that a call makes resident.
_TOUCHED_BYTES = 64 << 20

#: MADV_POPULATE_WRITE, since Linux 5.14.
_POPULATE = 23

#: MAP_FIXED of Linux, for which Python has no name.
_MAP_FIXED = 0x10

#: Rows of a .npy file.
MappedRows: TypeAlias = np.memmap[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class SourceReads:
    """Bytes and requests that a backing store read since its counters were last taken."""

    num_bytes: int = 0  #: bytes, gaps between rows included
    num_requests: int = 0  #: number of requests
    disk: Access = NO_ACCESS  #: reads of the disk, for a store that also reads other machines

    def __add__(self, other: "SourceReads") -> "SourceReads":
        return SourceReads(
            num_bytes=self.num_bytes + other.num_bytes,
            num_requests=self.num_requests + other.num_requests,
            disk=self.disk + other.disk,
        )


class BatchSource(Protocol):
    """Reader of rows into a buffer, batch by batch."""

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``, and return a ticket.

        Called once for each step that reads rows, in the order of steps.
        """

    def skip(self) -> None:
        """Take note that the next step, in the order of steps, reads no rows."""

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived; OSError: they could not be read."""

    def take_reads(self) -> SourceReads:
        """Return the bytes and requests that were read since the last call."""

    def close(self) -> None:
        """Wait for pending reads, and release all resources."""


class RowSource(BatchSource, Protocol):
    """Backing store: source of all rows, which are read some time before their use."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def width(self) -> int:
        """Number of stored elements of a row."""

    @property
    def num_features(self) -> int:
        """Number of features of a row; an int8 or int4 row has ``width`` bytes instead."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored; bfloat16 is uint16."""

    @property
    def dtype_name(self) -> str:
        """Name of the element type, such as ``bfloat16``."""

    def profile_rows(self, vertices: Array) -> Array:
        """Return ``[n, width]`` rows for a profiling run; other rows may stand in for them."""


def slots_of_file(file: MappedRows) -> int:
    """Return the number of buffer slots that the pages of a mapped ``file`` cover."""
    row_bytes = file.nbytes // max(len(file), 1)
    padding = -(file.offset + file.nbytes) % mmap.PAGESIZE
    return len(file) + -(-padding // max(row_bytes, 1))


def buffer_bytes(num_slots: int, row_bytes: int, file: MappedRows | None = None) -> int:
    """Return the bytes of a buffer of ``num_slots`` rows, plus the header of a mapped ``file``."""
    return max((0 if file is None else file.offset) + num_slots * row_bytes, 1)


def _map_file(file: MappedRows, address: int) -> None:
    """Map all of ``file``, copy-on-write, at page boundary ``address``, over the existing map."""
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    length = ctypes.c_size_t(file.offset + file.nbytes)
    writable = ctypes.c_int(mmap.PROT_READ | mmap.PROT_WRITE)
    flags = ctypes.c_int(mmap.MAP_PRIVATE | _MAP_FIXED)
    with open(str(file.filename), "rb") as stream:
        result = system.mmap(
            ctypes.c_void_p(address),
            length,
            writable,
            flags,
            ctypes.c_int(stream.fileno()),
            ctypes.c_long(0),
        )
    if result != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file.filename))


class RowBuffer:
    """Slots of rows, ``[num_slots, width]``; the system allocates a page on its first write.

    ``touch`` allocates pages ahead in a thread, so that reads from the disk need not wait for the
    system to clear them. A file may be mapped onto the first slots, whose rows are then not copied.
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
        """Reserve addresses for ``num_slots`` rows of ``width`` elements.

        ``file`` is mapped onto the first ``slots_of_file`` slots. ``memory`` has ``buffer_bytes``
        that other processes also map; None: private memory.
        """
        self._row_bytes = width * dtype.itemsize
        self._first = 0 if file is None else slots_of_file(file)
        offset = 0 if file is None else file.offset
        num_bytes = buffer_bytes(num_slots, self._row_bytes, file)
        mapped = mmap.mmap(-1, num_bytes) if memory is None else memory.map
        if memory is None and hasattr(mmap, "MADV_HUGEPAGE"):
            mapped.madvise(mmap.MADV_HUGEPAGE)
        content: Array = np.frombuffer(mapped, dtype, num_slots * width, offset)
        self.rows = content.reshape(num_slots, width)  #: page-aligned if no file is mapped
        if file is not None:
            _map_file(file, self.rows.ctypes.data - offset)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def _first_bytes(self) -> int:
        return self._first * self._row_bytes

    def touch(self, num_slots: int) -> None:
        """Start a thread that allocates the first ``num_slots`` slots, except those of the file."""
        num_bytes = min(num_slots * self._row_bytes, self.rows.nbytes) - self._first_bytes
        self._thread = threading.Thread(
            target=self._touch, args=(num_bytes,), name="gnnscale-pool", daemon=True
        )
        self._thread.start()

    def _touch(self, num_bytes: int) -> None:
        advise = ctypes.CDLL(None).madvise  # releases the GIL
        address = self.rows.ctypes.data + self._first_bytes
        for first in range(0, num_bytes, _TOUCHED_BYTES):
            length = min(_TOUCHED_BYTES, num_bytes - first)
            args = ctypes.c_void_p(address + first), ctypes.c_size_t(length)
            # Linux before 5.14 refuses the advice; pages are then cleared on their first write.
            if self._ended.is_set() or advise(*args, ctypes.c_int(_POPULATE)) != 0:
                return

    def close(self) -> None:
        """End the thread of ``touch``; memory is freed with the last array that refers to it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()


#: Approximate bytes of a read that no step waits for.
_READ_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class BatchInFlight:
    """Planned batch whose missing rows are being read."""

    batch: PlannedBatch
    ticket: int  #: ticket of the backing store for the missing rows


class BatchReader:
    """Reader of batches' missing rows into slots that its planner assigns; not thread-safe.

    A batch has a full window once the batches that the policy looks ahead to are expected.
    """

    def __init__(
        self, source: BatchSource, planner: TierPlanner, buffer: RowBuffer, *, ahead: int
    ) -> None:
        """Read rows of ``source`` into ``buffer``, in slots that ``planner`` assigns.

        At most ``ahead`` batches are in flight or in use at a time. A thread allocates the pages of
        ``buffer``.
        """
        self.source = source
        self.buffer = buffer
        self.in_flight: deque[BatchInFlight] = deque()  #: started batches that are not served
        self._planner = planner
        self._max_in_flight = ahead
        buffer.touch(planner.num_usual_slots)

    def fill(self, rows: Array, source: RowSource) -> None:
        """Cache the rows of vertices ``rows`` ``[k]`` before the first batch, from ``source``."""
        read_rows(source, rows, self.buffer.rows[self._planner.num_fixed :])
        source.take_reads()
        self._planner.fill(len(rows))

    def expect(self, vertices: Array | None) -> None:
        """Append the next batch's distinct ``vertices`` ``[n]``. None: the batch reads no rows."""
        self._planner.expect(vertices)

    def end(self) -> None:
        """Announce that no batch follows: the last ones need no full look-ahead window."""
        self._planner.end()

    def start_all(self) -> list[BatchInFlight]:
        """Start all batches that may start, up to ``ahead`` in flight, and return them.

        They have a full look-ahead window, and free slots for their missing rows.
        """
        num_earlier = len(self.in_flight)
        while len(self.in_flight) < self._max_in_flight and self.start():
            pass
        return [self.in_flight[index] for index in range(num_earlier, len(self.in_flight))]

    def start(self, vertices: Array | None = None) -> bool:
        """Plan the next batch and start to read its missing rows; False: no batch starts.

        A batch waits for free slots and, if ``vertices`` is None, a full look-ahead window.
        Otherwise False is returned if the array of the next batch is not ``vertices``.
        """
        batch = self._planner.plan(vertices)
        for _ in range(self._planner.take_empty()):
            self.source.skip()
        if batch is None:
            return False
        missing = batch.missing
        slots = batch.slots[missing]
        ticket = self.source.start(batch.vertices[missing], self.buffer.rows, slots)
        self.in_flight.append(BatchInFlight(batch=batch, ticket=ticket))
        return True

    def served(self) -> None:
        """Remove the oldest batch in flight, now used, and free the slots that it releases."""
        self._planner.served(self.in_flight.popleft().batch)

    def close(self) -> None:
        """Wait for pending reads, and release the backing store and the buffer's thread."""
        self.source.close()
        self.buffer.close()


def read_rows(source: RowSource, vertices: Array, rows: Array) -> None:
    """Read the row of ``vertices[i]`` into ``rows[i]``, in its stored type, and wait."""
    width = source.width * source.dtype.itemsize
    for part in row_slices(len(vertices), width, _READ_BYTES):
        slots = np.arange(part.start, part.stop, dtype=np.int32)
        source.finish(source.start(vertices[part], rows, slots))
