"""Server of a machine's row buffer: threads of the first worker read the rows of all workers."""

import logging
import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gnnscale.core import Array, Int32Array
from gnnscale.distributed import Channel, Message, MessageType, PeerLostError, record_failure
from gnnscale.features.tiered.buffer import BatchInFlight, BatchReader, SourceReads


@contextmanager
def _lost_worker_errors(worker: int) -> Iterator[None]:
    """Convert an error of the channel to ``worker`` into a PeerLostError that names the worker."""
    try:
        yield
    except OSError:
        raise PeerLostError(f"worker {worker} of this machine has left") from None


class WorkerReadSource:
    """Backing store that delegates the reads of a step to the worker that takes the step.

    Each worker takes part in every exchange with other machines, so it is also told of steps
    without rows. PeerLostError: a worker is gone.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        """Delegate reads to the workers at the other ends of ``channels``, by local rank."""
        self._channels = channels
        #: Workers of the next planned steps.
        self._turns: deque[int] = deque()
        self._changed = threading.Condition()
        self._num_delegated = [0] * len(channels)
        self._num_done = [0] * len(channels)
        self._tickets: dict[int, tuple[int, int]] = {}
        self._num_started = 0
        self._ended = False

    def expect(self, worker: int) -> None:
        """Append ``worker``, a local rank, to the order in which workers take steps."""
        self._turns.append(worker)

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Let the worker of the next step read row ``vertices[i]`` into slot ``slots[i]``.

        Return a ticket for ``finish``.
        """
        del buffer  # the worker has mapped it
        worker = self._turns.popleft()
        with _lost_worker_errors(worker):
            self._channels[worker].send_rows(MessageType.READ, vertices, slots)
        self._num_delegated[worker] += 1
        self._num_started += 1
        with self._changed:
            self._tickets[self._num_started] = worker, self._num_delegated[worker]
        return self._num_started

    def skip(self) -> None:
        """Tell the worker of the next step that the step reads no rows."""
        worker = self._turns.popleft()
        with _lost_worker_errors(worker):
            self._channels[worker].send(MessageType.SKIP)

    def done(self, worker: int) -> None:
        """Note that the rows of the oldest step delegated to ``worker`` have arrived."""
        with self._changed:
            self._num_done[worker] += 1
            self._changed.notify_all()

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived."""
        with self._changed:
            worker, number = self._tickets.pop(ticket)
            self._changed.wait_for(lambda: self._num_done[worker] >= number or self._ended)
            if self._num_done[worker] < number:
                raise PeerLostError(f"worker {worker} of this machine has left")

    def take_reads(self) -> SourceReads:
        """Return counts of 0: each worker counts its own reads."""
        return SourceReads()

    def close(self) -> None:
        """Wake all threads that wait for rows, with PeerLostError if the rows have not arrived."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class _ClientState:
    """Channel of one worker, its steps that the reader does not expect yet, and served steps."""

    channel: Channel
    #: steps that the reader does not expect yet. None: the step reads no rows
    steps: deque[Array | None] = field(default_factory=deque)
    ended: bool = False  #: whether no step follows ``steps``
    num_served: int = 0  #: served steps whose slots are not free yet


@dataclass(frozen=True, kw_only=True)
class _WorkerBatch:
    """Batch whose missing rows are being read, and its worker."""

    worker: _ClientState
    in_flight: BatchInFlight


class BufferServer:
    """Planner of the batches of all workers, step by step in the order of local ranks.

    A single policy sees the rows of all workers, so a row that two workers need is read once. One
    thread receives messages, plans, and starts reads; another thread waits for rows and sends their
    slots.
    """

    def __init__(
        self,
        reader: BatchReader,
        channels: Sequence[Channel],
        *,
        delegated: WorkerReadSource | None = None,
    ) -> None:
        """Start the threads that serve the workers at the other ends of ``channels``.

        ``delegated`` is the source of ``reader`` if workers read the missing rows, else None.
        """
        self.failure: BaseException | None = None  #: reason that no more rows arrive
        self._reader = reader
        self._delegated = delegated
        self._workers = [_ClientState(channel=channel) for channel in channels]
        self._turn = 0
        self._all_ended = False
        #: Workers of the batches that the reader expects, and of the batches in flight.
        self._expecting: deque[_ClientState] = deque()
        self._in_flight: deque[_ClientState] = deque()
        self._reading: queue.SimpleQueue[_WorkerBatch | None] = queue.SimpleQueue()
        self._failing = threading.Lock()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for work, name in ((self._plan, "pool-plans"), (self._deliver, "pool-reads"))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Disconnect all workers, end the threads, and wait for pending reads."""
        with self._failing:
            self.failure = self.failure or PeerLostError("the run ends")
        self._release()
        for worker in self._workers:
            worker.channel.hang_up()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.channel.close()
        self._reader.close()

    def _plan(self) -> None:
        """Receive the workers' messages and start reads, until a worker leaves."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while self.failure is None:
                for key, _ in selector.select():
                    self._handle(key.data, key.data.channel.receive())
                self._expect_steps()
                self._free_slots()
                for batch in self._reader.start_all():
                    worker = self._expecting.popleft()
                    self._in_flight.append(worker)
                    self._reading.put(_WorkerBatch(worker=worker, in_flight=batch))

    def _handle(self, worker: _ClientState, message: Message | None) -> None:
        if message is None or message.kind == MessageType.LEAVE:
            raise PeerLostError(f"worker {self._workers.index(worker)} of this machine has left")
        match message.kind:
            case MessageType.EXPECT:
                worker.steps.append(message.array)
            case MessageType.NOTHING:
                worker.steps.append(None)
            case MessageType.END:
                worker.ended = True
            case MessageType.SERVED:
                worker.num_served += 1
            case MessageType.DONE:
                assert self._delegated is not None
                self._delegated.done(self._workers.index(worker))

    def _expect_steps(self) -> None:
        """Pass announced steps to the reader, of each worker in turn, until one has none left."""
        while not self._all_ended:
            if all(worker.ended and not worker.steps for worker in self._workers):
                self._all_ended = True
                self._reader.end()
                return
            worker = self._workers[self._turn]
            is_passed_over = worker.ended and any(peer.steps for peer in self._workers)
            if not worker.steps and not is_passed_over:
                return
            vertices = worker.steps.popleft() if worker.steps else None
            if self._delegated is not None:
                self._delegated.expect(self._turn)
            self._reader.expect(vertices)
            if vertices is not None:
                self._expecting.append(worker)
            self._turn = (self._turn + 1) % len(self._workers)

    def _free_slots(self) -> None:
        """Free the slots of batches that workers have used, in the order in which they started."""
        while self._in_flight and self._in_flight[0].num_served:
            self._in_flight.popleft().num_served -= 1
            self._reader.served()

    def _deliver(self) -> None:
        """Wait for the missing rows of each started batch, and send its slots to its worker."""
        source = self._reader.source
        while (next_batch := self._reading.get()) is not None:
            worker, batch = next_batch.worker, next_batch.in_flight.batch
            source.finish(next_batch.in_flight.ticket)
            reads = source.take_reads()
            numbers = (len(batch.missing), reads.num_bytes, reads.num_requests)
            with _lost_worker_errors(self._workers.index(worker)):
                worker.channel.send(MessageType.READY, numbers=numbers, array=batch.slots)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Call ``work``; on an error, report the error to all workers."""
        try:
            work()
        except (OSError, MemoryError, RuntimeError, ValueError) as error:
            self._fail(error)

    def _release(self) -> None:
        """End the thread that delivers batches, even if it waits for delegated reads."""
        self._reading.put(None)
        if self._delegated is not None:
            self._delegated.close()

    def _fail(self, error: BaseException) -> None:
        """Tell all workers that no more rows arrive; only the first error is reported."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = error
        record_failure(error)
        self._release()
        for worker in self._workers:
            with suppress(OSError):  # the worker has left
                worker.channel.send_values(MessageType.FAILED, str(error))
                worker.channel.refuse()
