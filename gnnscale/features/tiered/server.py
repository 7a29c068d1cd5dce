"""Reads the rows of all workers of a machine into one pool: threads of its first worker."""

from __future__ import annotations

import logging
import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gnnscale.core import Array, Int32Array
from gnnscale.distributed.channel import Channel, Message, MessageType
from gnnscale.distributed.process_group import PeerLostError, blame
from gnnscale.features.tiered.buffer import BatchReader, BegunBatch
from gnnscale.features.tiered.source import SourceReads


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


class WorkerReadSource:
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
            self._channels[worker].send_rows(MessageType.READ, vertices, slots)
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
            self._channels[worker].send(MessageType.SKIP)

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


log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class _ClientState:
    """What one worker expects and has read."""

    channel: Channel
    #: its steps that are not passed on yet; None for one that reads nothing
    steps: deque[Array | None] = field(default_factory=deque)
    ended: bool = False  #: whether no step follows these
    num_served: int = 0  #: steps that it has read, and whose slots are not given back yet


@dataclass(frozen=True, kw_only=True)
class _OnTheWay:
    """A worker's batch whose rows are being read."""

    worker: _ClientState
    begun: BegunBatch


class BufferServer:
    """Plans the batches of all workers in turn: step by step, in the order of local ranks.

    So one policy sees what all of them need, and a row that two need is read once. One thread
    takes messages, plans and begins to read; another waits for rows, and sends their slots.
    """

    def __init__(
        self,
        reader: BatchReader,
        channels: Sequence[Channel],
        *,
        delegated: WorkerReadSource | None = None,
    ) -> None:
        """Serve the workers at the other ends of ``channels``, in the order of local ranks.

        Args:
            delegated: the source of ``reader``, if workers read rows themselves.
        """
        self.failure: BaseException | None = None  #: why no more rows arrive
        self._reader = reader
        self._delegated = delegated
        self._workers = [_ClientState(channel=each) for each in channels]
        self._turn = 0
        self._all_ended = False
        #: Whose batches the reader expects, in their order; and those that it has begun.
        self._expecting: deque[_ClientState] = deque()
        self._begun: deque[_ClientState] = deque()
        self._reading: queue.SimpleQueue[_OnTheWay | None] = queue.SimpleQueue()
        self._failing = threading.Lock()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for work, name in ((self._plan, "pool-plans"), (self._deliver, "pool-reads"))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End: all workers have what they need, or never will; wait for reads that were begun."""
        with self._failing:
            self.failure = self.failure or PeerLostError("the run ends")
        self._release()
        for each in self._workers:
            each.channel.hang_up()
        for thread in self._threads:
            thread.join()
        for each in self._workers:
            each.channel.close()
        self._reader.close()

    def _plan(self) -> None:
        """Take what workers say, until one of them leaves."""
        with selectors.DefaultSelector() as heard:
            for each in self._workers:
                heard.register(each.channel, selectors.EVENT_READ, each)
            while self.failure is None:
                for key, _ in heard.select():
                    self._take(key.data, key.data.channel.receive())
                self._pass_on()
                self._give_back()
                for begun in self._reader.begin_all():
                    worker = self._expecting.popleft()
                    self._begun.append(worker)
                    self._reading.put(_OnTheWay(worker=worker, begun=begun))

    def _take(self, worker: _ClientState, message: Message | None) -> None:
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

    def _pass_on(self) -> None:
        """Let the reader expect the steps that are known, of each worker in turn."""
        while not self._all_ended:
            if all(each.ended and not each.steps for each in self._workers):
                self._all_ended = True
                self._reader.end()
                return
            worker = self._workers[self._turn]
            is_passed_over = worker.ended and any(each.steps for each in self._workers)
            if not worker.steps and not is_passed_over:
                return
            vertices = worker.steps.popleft() if worker.steps else None
            if self._delegated is not None:
                self._delegated.expect(self._turn)
            self._reader.expect(vertices)
            if vertices is not None:
                self._expecting.append(worker)
            self._turn = (self._turn + 1) % len(self._workers)

    def _give_back(self) -> None:
        """Give back the slots of batches that were read, in the order in which they began."""
        while self._begun and self._begun[0].num_served:
            self._begun.popleft().num_served -= 1
            self._reader.served()

    def _deliver(self) -> None:
        """Wait for the rows of one batch after the other, and send their slots."""
        source = self._reader.source
        while (each := self._reading.get()) is not None:
            source.finish(each.begun.ticket)
            reads = source.take_reads()
            numbers = (len(each.begun.batch.missing), reads.num_bytes, reads.num_requests)
            with expected_there(self._workers.index(each.worker)):
                each.worker.channel.send(
                    MessageType.READY, numbers=numbers, array=each.begun.batch.slots
                )

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do ``work``, and let all workers know if it cannot be done."""
        try:
            work()
        except (OSError, MemoryError, RuntimeError, ValueError) as error:
            self._fail(error)

    def _release(self) -> None:
        """Let the thread end that waits for rows."""
        self._reading.put(None)
        if self._delegated is not None:
            self._delegated.close()

    def _fail(self, error: BaseException) -> None:
        """Let all workers know that no more rows arrive; only the first error counts."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = error
        blame(error)
        self._release()
        for each in self._workers:
            with suppress(OSError):  # it has left
                each.channel.send_values(MessageType.FAILED, str(error))
                each.channel.refuse()
