"""Exchanges of sharded rows: in the background, one for each step, and in between for readers."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from gnnscale.core import Array, Int32Array, IntArray
from gnnscale.distributed import STATUS, Group, PeerLostError, hang_up, peer_lost_error
from gnnscale.features.sharded.exchange import (
    NO_MORE,
    RowReceive,
    RowRequest,
    ShardExchange,
    copy_rows,
)
from gnnscale.features.tiered.buffer import SourceReads

log = logging.getLogger(__name__)

#: Seconds to wait for a thread after the connections have been closed.
_JOIN_S = 5.0


@dataclass(kw_only=True)
class _ExchangeStep:
    """State of a step's exchange: requested vertices, and ``buffer`` for the received rows."""

    vertices: Array
    buffer: Array
    slots: Int32Array
    order: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    receive: RowReceive | None = None
    reads: SourceReads = field(default_factory=SourceReads)
    arrived: bool = False
    done: threading.Event = field(default_factory=threading.Event)  #: arrived or failed

    @classmethod
    def without_rows(cls) -> "_ExchangeStep":
        """Return a step that requests nothing."""
        empty = np.empty(0, np.int32)
        return cls(vertices=empty, buffer=empty, slots=empty)


class ShardTransport:
    """Two threads that run the exchanges of steps, which thus overlap with computation.

    The first thread sends requests and serves the requests of other processes; the second copies
    received rows into the buffer. All processes start the same number of exchanges, in the order of
    steps; a process without missing rows starts an empty exchange.
    """

    def __init__(self, exchange: ShardExchange, group: Group) -> None:
        """Start both threads, which alone use ``exchange``.

        By ``group``, ``close`` compares the number of exchanges of all processes.
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
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``: the next step's exchange.

        Return a ticket for ``finish``. PeerLostError: a process is gone, or the transport is
        closed.
        """
        return self._enqueue(_ExchangeStep(vertices=vertices, buffer=buffer, slots=slots))

    def skip(self) -> None:
        """Start the exchange of a step that requests nothing."""
        ticket = self._enqueue(_ExchangeStep.without_rows())
        with self._lock:
            del self._started[ticket]

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived; PeerLostError: a process is gone."""
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
        """Return bytes and requests of the tickets that were finished since the last call."""
        with self._lock:
            reads, self._reads = self._reads, SourceReads()
        return reads

    def close(self) -> None:
        """Take part in all exchanges that any process has started, then end both threads.

        All processes call this at the same time. Threads that wait for rows get them; a later
        ``start`` raises. PeerLostError: another process is gone.
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
        """Disconnect after an error, let waiting threads fail, and join both threads, 5 s each."""
        self.closed = True
        self._fail(PeerLostError("this process has left"))
        hang_up()
        self._to_send.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)

    def guard(self, work: Callable[[], None]) -> None:
        """Call ``work``; on an error, set ``failure`` and wake all threads that wait for rows.

        An error other than RuntimeError (a lost process) also disconnects this process. Errors
        after the end of exchanges are ignored.
        """
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
        """Raise ``failure``, the reason of the first failed exchange, if there is one."""
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
        """Start queued exchanges; in each, send the rows that other processes request."""
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
        """Wait for each exchange, copy its rows into their slots, and wake ``finish``."""
        while (step := self._to_receive.get()) is not None:
            assert step.receive is not None
            step.receive.work.wait()
            rows = step.receive.rows.numpy()
            copy_rows(rows, np.arange(len(rows)), step.buffer, step.slots[step.order])
            step.receive, step.arrived = None, True
            step.done.set()

    def _fail(self, error: PeerLostError) -> None:
        """Set ``failure`` to ``error`` unless it is set, wake waiting threads, end both threads."""
        with self._lock:
            self.failure = self.failure or error
            for step in self._started.values():
                step.done.set()
        self._to_send.put(None)
        self._to_receive.put(None)


#: Bytes that each process receives in a probe of the network, and number of probes.
_PROBE_BYTES, _NUM_PROBES = 4 << 20, 4
_NO_VERTICES = np.empty(0, np.int32)


class RemoteReader:
    """Reader of remote rows before and between steps; PeerLostError: a process is gone."""

    def __init__(
        self, exchange: ShardExchange, transport: ShardTransport, group: Group, *, row_bytes: int
    ) -> None:
        """Read by ``exchange``, and report failures to ``transport``.

        ``group`` lets all processes start a measurement together.
        """
        self._exchange, self._transport, self._group = exchange, transport, group
        self._row_bytes = row_bytes
        self._reading = threading.Lock()

    def seconds_per_row(self, remote: IntArray) -> float:
        """Return the measured seconds to gather and receive a row while all processes exchange.

        All processes call this at the same time; ``remote`` has all remote vertices.
        """
        count = min(len(remote), max(_PROBE_BYTES // self._row_bytes, 1))
        request = self._exchange.request(np.random.default_rng(0).permutation(remote)[:count])
        seconds = []
        for _ in range(_NUM_PROBES):
            self._group.barrier()
            start = time.perf_counter()
            self.read(request)
            seconds.append(time.perf_counter() - start)
        # The first probe may read the rows of other machines from their disks.
        return min(seconds[1:]) / max(count, 1)

    @contextmanager
    def rank0_reads(self) -> Iterator[None]:
        """Let rank 0 ``read`` in the ``with`` block; other ranks serve its reads on entry."""
        if not self._group.is_rank0:
            with STATUS.waits():
                self._transport.guard(self._serve)
            self._transport.raise_failure()
        yield
        if self._group.is_rank0:
            end = self._exchange.request(_NO_VERTICES)
            end.counts.fill_(NO_MORE)
            self.read(end)

    def read(self, request: RowRequest) -> torch.Tensor:
        """Exchange with all processes, and return the requested rows ``[n, row_bytes]`` uint8."""
        received = torch.empty(0, self._row_bytes, dtype=torch.uint8)

        def exchange() -> None:
            nonlocal received
            receive = self._exchange.start(request)
            if receive is not None:
                receive.work.wait()
                received = receive.rows

        with self._reading, STATUS.waits():
            self._transport.guard(exchange)
        self._transport.raise_failure()
        return received

    def _serve(self) -> None:
        """Send the rows that rank 0 requests, until rank 0 leaves ``rank0_reads``."""
        nothing = self._exchange.request(_NO_VERTICES)
        while (receive := self._exchange.start(nothing)) is not None:
            receive.work.wait()
