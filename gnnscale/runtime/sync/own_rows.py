"""Rows of this machine, which its processes read and send to others: in memory or on the disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, IntArray
from gnnscale.feature import DiskRows


@dataclass(frozen=True, kw_only=True)
class LaterWork:
    """Work of torch that begins once rows have been read."""

    begun: Future[Any]

    def wait(self) -> None:
        """Wait until it is done.

        Raises:
            OSError: the rows could not be read.
            RuntimeError: another process is gone.
        """
        self.begun.result().wait()


class OwnRows:
    """The rows of one part: those of a matrix, or of the disk past it."""

    def __init__(self, rows: Array) -> None:
        """Read ``rows``, ``[n, width]``, until they are to be read elsewhere."""
        self.rows = rows
        self._file: DiskRows | None = None
        self._sending: ThreadPoolExecutor | None = None

    def read_from(self, file: DiskRows) -> None:
        """Read the rows of ``file`` from now on, and nothing of ``rows``, which map it."""
        self._file = file
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="rows-read")

    def copy(self, places: IntArray, target: Array, slots: IntArray) -> None:
        """Copy row ``places[i]`` to row ``slots[i]`` of ``target``, byte by byte.

        Raises:
            OSError: it cannot be read.
        """
        if self._file is None:
            copy_rows(self.rows, places, target, slots)
        else:
            self._file.finish(self._file.start(places, target, slots.astype(np.int32)))

    def send(self, places: IntArray, buffer: Array, send: Callable[[], Any]) -> Any:
        """Copy row ``places[i]`` to ``buffer[i]``, then ``send`` them; return that work of torch.

        What the disk has is read during later exchanges. What was asked for first is sent first.
        """
        order = np.arange(len(places), dtype=np.int32)
        if self._file is None:
            copy_rows(self.rows, places, buffer, order)
            return send()
        assert self._sending is not None
        file, ticket = self._file, self._file.start(places, buffer, order)

        def read_and_send() -> Any:
            file.finish(ticket)
            return send()

        return LaterWork(begun=self._sending.submit(read_and_send))

    def close(self) -> None:
        """Send what was begun, and close the file."""
        if self._file is not None and self._sending is not None:
            self._sending.shutdown()
            self._file.close()


def copy_rows(rows: Array, places: IntArray, target: Array, slots: IntArray) -> None:
    """Copy row ``places[i]`` of ``rows`` to row ``slots[i]`` of ``target``, byte by byte.

    Python's lock is free meanwhile.
    """
    if not len(places):
        return
    source, into = (
        (each.view(np.uint8).reshape(len(each), -1), "uint8") for each in (rows, target)
    )
    ops.copy_rows(source, places, into, slots, num_threads=1)
