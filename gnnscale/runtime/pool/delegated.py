"""A source whose rows the workers of a machine read, each those that its own steps miss."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gnnscale.core import Array, Int32Array
from gnnscale.feature.source import SourceReads
from gnnscale.runtime.pool.channel import Channel, Kind
from gnnscale.runtime.sync.group import PeerLostError


@contextmanager
def expected_there(worker: int) -> Iterator[None]:
    """Say that ``worker`` has left, if nothing can be sent to it.

    Raises:
        PeerLostError: in place of the error of its channel.
    """
    try:
        yield
    except OSError:
        raise PeerLostError(f"worker {worker} of this machine has left") from None


class DelegatedRows:
    """Lets the worker read whose step is planned; to the pool it is a source as any other.

    Each worker takes part in every exchange with other machines, and so learns of every step.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        """Delegate reads to the workers at the other ends of ``channels``, by local rank."""
        self._channels = channels
        #: The workers whose steps are planned next.
        self._turns: deque[int] = deque()
        self._changed = threading.Condition()
        self._begun = [0] * len(channels)
        self._done = [0] * len(channels)
        self._tickets: dict[int, tuple[int, int]] = {}
        self._num_started = 0
        self._ended = False

    def expect(self, worker: int) -> None:
        """Append a step of ``worker``."""
        self._turns.append(worker)

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Let the worker read the row ``vertices[i]`` into slot ``slots[i]`` of the pool.

        Raises:
            PeerLostError: it is gone.
        """
        del pool  # which the worker has mapped
        worker = self._turns.popleft()
        with expected_there(worker):
            self._channels[worker].send_rows(Kind.READ, vertices, slots)
        self._begun[worker] += 1
        self._num_started += 1
        with self._changed:
            self._tickets[self._num_started] = worker, self._begun[worker]
        return self._num_started

    def skip(self) -> None:
        """Let the worker know that its step reads no rows.

        Raises:
            PeerLostError: it is gone.
        """
        worker = self._turns.popleft()
        with expected_there(worker):
            self._channels[worker].send(Kind.SKIP)

    def done(self, worker: int) -> None:
        """Say that the rows of the oldest step are there that ``worker`` was to read."""
        with self._changed:
            self._done[worker] += 1
            self._changed.notify_all()

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            PeerLostError: they will never be.
        """
        with self._changed:
            worker, number = self._tickets.pop(ticket)
            self._changed.wait_for(lambda: self._done[worker] >= number or self._ended)
            if self._done[worker] < number:
                raise PeerLostError(f"worker {worker} of this machine has left")

    def take_reads(self) -> SourceReads:
        """Return nothing: a worker counts what it reads."""
        return SourceReads()

    def close(self) -> None:
        """Wait for nothing more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
