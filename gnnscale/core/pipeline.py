"""Pipeline of stages that prefetch items in threads (HyScale-GNN, section IV-B)."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

#: Waits, with no full queue in between, after which the queue gets deeper.
_WAITS = 2
#: Full queues in a row after which the queue gets shallower; doubled each time this was too early.
_FULL = 32
_MAX_FULL = 1024


class PrefetchDepth:
    """Depth of a prefetch queue, adapted whenever the consumer takes an item.

    The depth begins at ``limit``. A queue that is found full 32 times in a row holds more items
    than are needed, and gets one shallower. A consumer that has to wait needs more items ahead, to
    even out mini-batches of different cost: two waits without a full queue in between make the
    queue one deeper. If they undo a decrease, the next decrease takes twice as many full queues.
    So a pipeline slower than the trainer stays at ``limit``, and one always ahead ends at 1.
    """

    def __init__(self, *, limit: int) -> None:
        """Begin at ``limit``, the largest depth, which is at least 1."""
        self.limit = limit  #: the largest depth
        self.depth = limit  #: the depth to use now, from 1 to ``limit``
        self._waits = 0
        self._full = 0
        self._patience = _FULL
        self._went_down = False

    def observe(self, queue_length: int, consumer_waited: bool) -> int:
        """Record that the consumer took an item, and return the depth to use from now on.

        Args:
            queue_length: number of finished items before the consumer took one.
            consumer_waited: whether the next item was unfinished, so that the consumer had to wait.
        """
        full = not consumer_waited and queue_length >= self.depth
        self._full = self._full + 1 if full else 0
        self._waits = 0 if full else self._waits + consumer_waited
        if self._waits >= _WAITS:
            self._waits = 0
            if self._went_down:
                self._patience = min(2 * self._patience, _MAX_FULL)
                self._went_down = False
            self.depth = min(self.depth + 1, self.limit)
        elif self._full >= self._patience:
            self._full = 0
            if self.depth > 1:
                self.depth -= 1
                self._went_down = True
        return self.depth


_T = TypeVar("_T")
#: Stages that one thread runs one after the other on each item, in place.
StageGroup = Sequence[Callable[[_T], None]]


class Pipeline(Generic[_T]):
    """Iterator that prefetches items through groups of stages in threads, a bounded number ahead.

    Each group runs its stages on an item, one after the other, and passes items, in the order of
    the source, to the next group, the last to the consumer. Groups overlap, since native stages
    release the GIL. An exception is raised to the consumer in place of its item.

    Example:
        >>> with Pipeline(iter(batches), [[sample], [load, transfer]], limit=4) as pipeline:
        ...     for batch in pipeline: train(batch)  # 4 batches in flight at most
    """

    def __init__(
        self,
        source: Iterator[_T],
        groups: Sequence[StageGroup[_T]],
        *,
        limit: int,
        inline: StageGroup[_T] = (),
        num_threads: int = 1,
        adaptive: bool = True,
        no_room: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        """Prepare the pipeline; its threads start when the first item is requested.

        Args:
            source: items, taken one at a time.
            groups: stages of each group. An empty first group only fetches from the source.
            limit: maximum number of items in flight, in all groups and queues.
            inline: stages that the consumer's thread runs on each item that it requests.
            num_threads: threads of each group, which work on different items.
            adaptive: whether ``PrefetchDepth`` may use fewer items than ``limit``.
            no_room: exceptions of a stage that lacks memory for one more item, and runs again after
                the consumer has finished an earlier item, if there is one.
        """
        self._source = source
        self._groups = groups
        self._inline = inline
        self._num_threads = num_threads
        #: Finished items of each group, by item number.
        self._finished: list[dict[int, _T | BaseException]] = [{} for _ in groups]
        #: Next item number of each group, then of the consumer.
        self._next = [0] * (len(groups) + 1)
        self._no_room = no_room
        #: Item number that the consumer requested last; it has finished all earlier items.
        self._requested = -1
        self._depth = PrefetchDepth(limit=limit) if adaptive else None
        self._max_in_flight = limit
        self._in_flight = 0
        self._closed = False
        self._paused = False
        self._changed = threading.Condition()
        self._taking = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Pipeline[_T]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        """Return the next item after the ``inline`` stages, or raise the exception in its place."""
        item = self._next_finished() if self._groups else next(self._source)
        for stage in self._inline:
            stage(item)
        return item

    def _next_finished(self) -> _T:
        if not self._threads:
            self._start()
        with self._changed:
            finished, number = self._finished[-1], self._next[-1]
            self._requested = number
            self._changed.notify_all()
            must_wait, queue_length = number not in finished, len(finished)
            self._changed.wait_for(lambda: number in finished)
            item = finished[number]
            if isinstance(item, BaseException):
                # The error stays in the queue: the next call raises it again.
                raise item
            del finished[number]
            self._next[-1] += 1
            self._in_flight -= 1
            if self._depth is not None:
                self._max_in_flight = self._depth.observe(queue_length, must_wait)
            self._changed.notify_all()
            return item

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the threads start no stage within the ``with`` block; running stages go on."""
        self._paused = True
        try:
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Tell each thread to end after its current stages, without waiting for its end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the threads and wait for their end."""
        self.stop()
        for thread in self._threads:
            # The garbage collector may call this in one of the threads.
            if thread is not threading.current_thread():
                thread.join()

    def _start(self) -> None:
        for group, stages in enumerate(self._groups):
            names = "-".join(getattr(stage, "__name__", "stage") for stage in stages)
            for _ in range(self._num_threads):
                thread = threading.Thread(
                    target=self._run, args=(group, stages), name=f"gnnscale-{names}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # the system has no memory for another stack
                    raise MemoryError(str(error)) from None
                self._threads.append(thread)

    def _run(self, group: int, stages: StageGroup[_T]) -> None:
        """Run ``stages`` on each next item until an exception, which is passed on in its place."""
        while True:
            numbered_item = self._take_from_source() if group == 0 else self._take(group)
            if numbered_item is None:
                return
            number, item = numbered_item
            if not isinstance(item, BaseException):
                try:
                    for stage in stages:
                        self._run_stage(stage, number, item)
                except BaseException as error:
                    item = error
            with self._changed:
                self._finished[group][number] = item
                self._changed.notify_all()
            if isinstance(item, BaseException):
                return

    def _run_stage(self, stage: Callable[[_T], None], number: int, item: _T) -> None:
        """Run a stage on item ``number``; retry if memory lacks and earlier items are in use."""
        while True:
            self._wait_while_paused()
            requested = self._requested
            try:
                return stage(item)
            except self._no_room:
                if requested >= number or not self._wait_for_request(requested):
                    raise

    def _wait_for_request(self, number: int) -> bool:
        """Wait for the consumer to request an item after ``number``; False: pipeline closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._requested > number)
            return not self._closed

    def _wait_while_paused(self) -> None:
        if self._paused:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._paused)

    def _take_from_source(self) -> tuple[int, _T | BaseException] | None:
        """Return number and item, or exception, of the source, once allowed; None: closed."""
        with self._taking:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._in_flight < self._max_in_flight
                )
                if self._closed:
                    return None
                self._in_flight += 1
                number = self._next[0]
                self._next[0] += 1
            self._wait_while_paused()
            try:
                return number, next(self._source)
            except BaseException as error:
                return number, error

    def _take(self, group: int) -> tuple[int, _T | BaseException] | None:
        """Return number and item, or exception, of the previous group; None: pipeline closed."""
        finished = self._finished[group - 1]
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next[group] in finished)
            if self._closed:
                return None
            number = self._next[group]
            self._next[group] += 1
            return number, finished.pop(number)
