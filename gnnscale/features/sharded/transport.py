"""Background exchanges of sharded rows: one for each step, in lockstep with all processes."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gnnscale.core import Array, Int32Array, IntArray
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group, hang_up
from gnnscale.distributed.sockets import PeerLostError, peer_lost_error
from gnnscale.features.sharded.exchange import RowReceive, ShardExchange, copy_rows
from gnnscale.features.tiered.source import SourceReads

log = logging.getLogger(__name__)

#: Seconds to wait for a thread after the connections have been closed.
_JOIN_S = 5.0


@dataclass(kw_only=True)
class _ExchangeStep:
    """The exchange of a step, which writes received rows into ``buffer``."""

    vertices: Array
    buffer: Array
    slots: Int32Array
    order: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    receive: RowReceive | None = None
    reads: SourceReads = field(default_factory=SourceReads)
    arrived: bool = False
    done: threading.Event = field(default_factory=threading.Event)  #: arrived or failed

    @classmethod
    def without_rows(cls) -> _ExchangeStep:
        """Return a step that requests nothing."""
        empty = np.empty(0, np.int32)
        return cls(vertices=empty, buffer=empty, slots=empty)


class ShardTransport:
    """Runs the exchanges of steps on two threads, so that they overlap with computation.

    The first thread sends requests and serves the requests of other processes; the second copies
    received rows into the buffer. All processes start the same number of exchanges, in the order
    of steps; a process without missing rows starts an empty exchange.
    """

    def __init__(self, exchange: ShardExchange, group: Group) -> None:
        """Start the threads.

        Args:
            exchange: exchanges over connections that only this transport uses.
            group: all processes; ``close`` uses its connections.
        """
        self.failure: PeerLostError | None = None  #: reason of the first failed exchange
        self.closed = False  #: whether ``close`` or ``abandon`` has ended the exchanges
        self.num_started = 0  #: exchanges that this process has started
        self._exchange, self._group = exchange, group
        self._lock = threading.Lock()
        self._started: dict[int, _ExchangeStep] = {}
        self._reads = SourceReads()
        self._closing = False
        self._to_send: queue.SimpleQueue[_ExchangeStep | None] = queue.SimpleQueue()
        self._to_receive: queue.SimpleQueue[_ExchangeStep | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self.guard, args=(work,), name=name, daemon=True)
            for work, name in ((self._send, "rows-leave"), (self._receive, "rows-arrive"))
        ]
        for thread in self._threads:
            thread.start()

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start the exchange of the next step, of row ``vertices[i]`` for ``buffer[slots[i]]``.

        Returns:
            A ticket for ``finish``.

        Raises:
            PeerLostError: another process is gone, or this transport is closed.
        """
        return self._enqueue(_ExchangeStep(vertices=vertices, buffer=buffer, slots=slots))

    def skip(self) -> None:
        """Start the exchange of a step that requests nothing."""
        ticket = self._enqueue(_ExchangeStep.without_rows())
        with self._lock:
            del self._started[ticket]

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived.

        Raises:
            PeerLostError: another process is gone.
        """
        with self._lock:
            step = self._started[ticket]
        with STATUS.waits():
            step.done.wait()
        if not step.arrived:
            raise self.failure or AssertionError(ticket)
        with self._lock:
            del self._started[ticket]
            self._reads = self._reads + step.reads

    def take_reads(self) -> SourceReads:
        """Return the reads of the tickets that were finished since the last call."""
        with self._lock:
            reads, self._reads = self._reads, SourceReads()
        return reads

    def close(self) -> None:
        """End the exchanges, after all exchanges that any process has started.

        All processes call this at the same time. Threads that wait for rows get them; a later
        ``start`` raises.

        Raises:
            PeerLostError: another process is gone.
        """
        with self._lock:
            self._closing = True
        for _ in range(self._group.largest([self.num_started])[0] - self.num_started):
            self._to_send.put(_ExchangeStep.without_rows())
        self._to_send.put(None)
        with STATUS.waits():
            for thread in self._threads:
                thread.join()
        self.raise_failure()
        self.closed = True

    def abandon(self) -> None:
        """Stop after an error, without waiting; other processes lose this process."""
        self.closed = True
        self._fail(PeerLostError("this process has left"))
        hang_up()
        self._to_send.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)

    def guard(self, work: Callable[[], None]) -> None:
        """Call ``work``; on an error, set ``failure`` and wake all threads that wait for rows."""
        try:
            work()
        except (RuntimeError, MemoryError, ValueError, OSError) as error:
            if self.closed:
                return
            if isinstance(error, RuntimeError):
                self._fail(peer_lost_error(error))
                return
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            log.error("features=shared: %s", reason)
            STATUS.verdict = f"the exchange of rows failed ({reason})"
            hang_up()
            self._fail(PeerLostError(STATUS.verdict))

    def raise_failure(self) -> None:
        """Raise ``failure`` if it is set."""
        if self.failure is not None:
            raise self.failure

    def _enqueue(self, step: _ExchangeStep) -> int:
        with self._lock:
            if self.failure is not None or self._closing:
                raise self.failure or PeerLostError("the run ends")
            self.num_started += 1
            self._started[self.num_started] = step
            self._to_send.put(step)
            return self.num_started

    def _send(self) -> None:
        """Start the queued exchanges, which also serves the requests of other processes."""
        while (step := self._to_send.get()) is not None:
            request = self._exchange.request(step.vertices)
            step.order = request.order
            step.receive = self._exchange.start(request)
            assert step.receive is not None
            tensors = step.receive.rows, request.vertices, request.counts[1:]
            step.reads = SourceReads(
                num_bytes=sum(tensor.nbytes for tensor in tensors),
                num_requests=int((request.counts > 0).sum()),
            )
            self._to_receive.put(step)
        self._to_receive.put(None)

    def _receive(self) -> None:
        """Copy received rows into their slots, one exchange after the other."""
        while (step := self._to_receive.get()) is not None:
            assert step.receive is not None
            step.receive.work.wait()
            rows = step.receive.rows.numpy()
            copy_rows(rows, np.arange(len(rows)), step.buffer, step.slots[step.order])
            step.receive, step.arrived = None, True
            step.done.set()

    def _fail(self, error: PeerLostError) -> None:
        """Set ``failure`` unless it is set, and wake all threads that wait for rows."""
        with self._lock:
            self.failure = self.failure or error
            for step in self._started.values():
                step.done.set()
        self._to_send.put(None)
        self._to_receive.put(None)
