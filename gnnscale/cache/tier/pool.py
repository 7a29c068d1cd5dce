"""Memory for the rows of a tier: on large pages, and touched before rows arrive."""

from __future__ import annotations

import ctypes
import mmap
import threading
from typing import Any

import numpy as np

from gnnscale.core import Array

#: Bytes that are touched in one call.
_TOUCHED_BYTES = 64 << 20
#: MADV_POPULATE_WRITE, since Linux 5.14.
_POPULATE = 23


class RowPool:
    """Slots of rows, ``[num_slots, width]``; memory is taken when a slot is first written.

    A thread touches slots from the first on, so that rows of the disk need not wait for the system
    to clear pages.
    """

    def __init__(self, num_slots: int, width: int, dtype: np.dtype[Any]) -> None:
        """Reserve addresses for ``num_slots`` rows."""
        self._row_bytes = width * dtype.itemsize
        self._memory = mmap.mmap(-1, max(num_slots * self._row_bytes, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        content: Array = np.frombuffer(self._memory, dtype, count=num_slots * width)
        self.rows = content.reshape(num_slots, width)  #: begin with a page
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def touch(self, num_slots: int) -> None:
        """Begin to touch the first ``num_slots`` slots."""
        num_bytes = min(num_slots * self._row_bytes, self.rows.nbytes)
        self._thread = threading.Thread(
            target=self._touch, args=(num_bytes,), name="gnnscale-pool", daemon=True
        )
        self._thread.start()

    def _touch(self, num_bytes: int) -> None:
        advise = ctypes.CDLL(None).madvise  # without the lock of Python
        begin = self.rows.ctypes.data
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
