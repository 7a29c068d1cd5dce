"""Worker's view of a row buffer that the workers of a machine share."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial

import numpy as np

from gnnscale.core import Array
from gnnscale.distributed import STATUS, Channel, Message, MessageType
from gnnscale.distributed.sockets import PeerLostError, record_failure
from gnnscale.features.tiered.buffer import RowSource, SourceReads, read_rows
from gnnscale.features.tiered.server import BufferServer
from gnnscale.features.tiered.store import ReadyRows

#: Seconds to wait for the server's reason after a send has failed.
_LAST_WORD_S = 2.0


class BufferClient:
    """Worker's reader of rows in a shared buffer; PeerLostError: the ``BufferServer`` is gone."""

    def __init__(
        self,
        channel: Channel,
        rows: Array,
        source: RowSource,
        *,
        lead: int,
        reads: bool = False,
        server: BufferServer | None = None,
    ) -> None:
        """Start the thread that receives from the server by ``channel``; ``rows`` is the buffer.

        Args:
            source: backing store for ``read``, for steps that were not expected, and, if ``reads``,
                for missing rows.
            lead: steps by which ``expect`` precedes ``ready``.
            reads: whether this worker also reads the missing rows of its steps, as the server
                directs.
            server: server in this process, closed with the client. None: another process has it.
        """
        self.lead = lead  #: steps between the expectation of a step and its reads
        self.source = source  #: backing store of all rows
        self._channel = channel
        self._rows = rows
        self._server = server
        self._expected: deque[Array] = deque()
        self._arrived: deque[Message] = deque()
        self._reads = reads
        self._reading: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._failure: str | None = None
        self._error: Exception | None = None  #: first error of this worker's reads
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._receive, name="pool-ready", daemon=True)
        self._thread.start()
        self._finishing = threading.Thread(target=self._finish, name="pool-done", daemon=True)
        if reads:
            self._finishing.start()

    def expect(self, vertices: Array | None) -> None:
        """Announce the next step's distinct ``vertices`` ``[n]`` to the server. None: no rows."""
        if vertices is None:
            self._send(MessageType.NOTHING)
            return
        with self._changed:
            self._expected.append(vertices)
        self._send(MessageType.EXPECT, vertices)

    def end(self) -> None:
        """Announce that no step follows, so that the last steps need no full look-ahead window."""
        self._send(MessageType.END)

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, whose slots stay in use until ``served``.

        An array other than the next step's is a profiling run's, whose rows are read at once.
        OSError: no rows could be read.
        """
        with self._changed:
            expected = bool(self._expected) and self._expected[0] is vertices
        start = time.perf_counter()
        if not expected:
            rows = self.source.profile_rows(vertices)
            return ReadyRows(
                rows=rows,
                slots=np.arange(len(vertices), dtype=np.int32),
                num_missing=None,
                waited_s=time.perf_counter() - start,
                reads=self.source.take_reads(),
            )
        # A process that reads the rows of all workers itself depends on no other process.
        reads_for_all = self._server is not None and not self._reads
        with nullcontext() if reads_for_all else STATUS.waits(), self._changed:
            self._changed.wait_for(lambda: self._arrived or self._failure is not None)
            if not self._arrived:
                raise self._lost()
            message = self._arrived.popleft()
        missing, num_bytes, num_requests = message.numbers
        reads = SourceReads(num_bytes=num_bytes, num_requests=num_requests)
        if self._reads:
            reads = self.source.take_reads()
        return ReadyRows(
            rows=self._rows,
            slots=message.array,
            num_missing=missing,
            waited_s=time.perf_counter() - start,
            reads=reads,
        )

    def served(self, ready: ReadyRows) -> None:
        """Let the server free the slots of the step ``ready``; do nothing for a profiling run."""
        if ready.num_missing is None:
            return
        with self._changed:
            self._expected.popleft()
        self._send(MessageType.SERVED)

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]``, in its stored type, and wait for it."""
        read_rows(self.source, vertices, rows)
        self.source.take_reads()

    def close(self) -> None:
        """Leave the server, close a server in this process, and close the backing store.

        All workers call this at the same time.
        """
        with suppress(OSError):
            self._channel.send(MessageType.LEAVE)
        if self._server is not None:
            self._server.close()
        self._channel.hang_up()
        self._thread.join()
        self.source.close()
        if self._reads:
            self._reading.put(None)
            self._finishing.join()
        self._channel.close()

    def _send(self, kind: MessageType, array: Array | None = None) -> None:
        if self._failure is not None:
            raise self._lost()
        try:
            self._channel.send(kind, array=array)
        except OSError:
            raise self._lost() from None

    def _receive(self) -> None:
        """Receive messages until the server ends: queue ready steps, and start delegated reads."""
        while (message := self._channel.receive()) is not None:
            match message.kind:
                case MessageType.READY:
                    with self._changed:
                        self._arrived.append(message)
                        self._changed.notify_all()
                case MessageType.READ | MessageType.SKIP:
                    self._guarded(partial(self._start, message))
                case _:
                    break
        with self._changed:
            self._failure = "it has ended" if message is None else message.values
            self._changed.notify_all()

    def _start(self, message: Message) -> None:
        """Start the reads that ``message`` delegates to this worker, or skip an empty step."""
        if message.kind == MessageType.SKIP:
            self.source.skip()
        else:
            self._reading.put(self.source.start(message.rows[0], self._rows, message.rows[1]))

    def _finish(self) -> None:
        """Wait for this worker's reads, step by step, and report to the server when rows arrive."""

        def finish(ticket: int) -> None:
            self.source.finish(ticket)
            with suppress(OSError):  # the server has ended, and has sent the reason
                self._channel.send(MessageType.DONE)

        while (ticket := self._reading.get()) is not None:
            self._guarded(partial(finish, ticket))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Call ``work``; on an error, keep the first error, and disconnect from the server."""
        try:
            work()
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            self._error = self._error or error
            record_failure(error)
            self._channel.hang_up()

    def _lost(self) -> BaseException:
        """Return the error to raise: the reason that no more rows arrive."""
        self._thread.join(_LAST_WORD_S)
        if self._error is not None:
            return self._error
        if self._server is not None and self._server.failure is not None:
            return self._server.failure
        return PeerLostError(
            STATUS.verdict or f"lost the process that reads rows for this machine ({self._failure})"
        )
