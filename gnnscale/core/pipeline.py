"""The pipeline: stages that run ahead of their consumer in separate threads (HyScale-GNN IV-B).

It knows stages and queues, and no devices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

#: Waits, with no full queue in between, after which the queue gets deeper.
_WAITS = 2
#: Full queues in a row after which it gets shallower; twice as many each time that was too early.
_FULL = 32
_MAX_FULL = 1024


class PrefetchDepth:
    """The depth to use, from the length of the queue whenever the consumer takes from it.

    It begins at ``limit``. A queue that is always full holds more than is needed, in memory: found
    full 32 times in a row, it gets one shallower. A consumer that has to wait needs more ahead, to
    even out mini-batches of different cost: two waits make the queue one deeper. If that reverts
    the last step down, the next one takes twice as many full queues. So a pipeline that is slower
    than the trainer stays at ``limit``, and one that is always ahead ends at 1.
    """

    def __init__(self, *, limit: int) -> None:
        """Begin at ``limit``, which is at least 1."""
        self.limit = limit  #: the largest depth
        self.depth = limit  #: the depth to use now, from 1 to ``limit``
        self._waits = 0
        self._full = 0
        self._patience = _FULL
        self._went_down = False

    def observe(self, length_when_taken: int, waited: bool) -> int:
        """Record one taking from a queue of ``length_when_taken``, and return the depth to use.

        ``waited`` is whether the consumer had to wait, since the queue was empty.
        """
        full = not waited and length_when_taken >= self.depth
        self._full = self._full + 1 if full else 0
        self._waits = 0 if full else self._waits + waited
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
#: Stages that one thread runs in turn on each item, changing the item.
StageGroup = Sequence[Callable[[_T], None]]


class Pipeline(Generic[_T]):
    """Passes items through groups of stages, a bounded number of them at a time.

    Each group has threads and passes its items to the next group. The consumer gets them after the
    last, in the order of the source. Without groups nothing runs ahead. Native stages run without
    the GIL, so groups overlap. What the source or a stage raises is raised to the consumer, in the
    item's turn.
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
        """Prepare; threads start with the first item asked for.

        Args:
            source: items, taken by the threads of the first group, one at a time.
            groups: stages of each group. An empty first group only fetches from the source.
            limit: max number of items on their way, all groups and queues together.
            inline: stages that the consumer's thread runs on each item that it asks for.
            num_threads: threads of each group, which work on different items.
            adaptive: whether fewer than ``limit`` may do (see ``PrefetchDepth``).
            no_room: raised by a stage without room for an item beside those before it. It is tried
                again when the consumer asks for another item, and so has finished one more. What it
                raises when all before it are finished is raised to the consumer.
        """
        self._source = source
        self._groups = groups
        self._inline = inline
        self._num_threads = num_threads
        #: What each group has finished, by the item's number.
        self._finished: list[dict[int, _T | BaseException]] = [{} for _ in groups]
        #: The number of the item that each group takes next, and then that of the consumer.
        self._next = [0] * (len(groups) + 1)
        self._no_room = no_room
        #: The number of the item that was asked for last: those below it are done with.
        self._asked = -1
        self._depth = PrefetchDepth(limit=limit) if adaptive else None
        self._allowed = limit
        self._ahead = 0
        self._closed = False
        self._paused = False
        self._changed = threading.Condition()
        self._taking = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Pipeline[_T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        """Return the next finished item, waiting for it if need be."""
        item = self._next_finished() if self._groups else next(self._source)
        for stage in self._inline:
            stage(item)
        return item

    def _next_finished(self) -> _T:
        if not self._threads:
            self._start()
        with self._changed:
            finished, number = self._finished[-1], self._next[-1]
            self._asked = number
            self._changed.notify_all()
            waited, found = number not in finished, len(finished)
            self._changed.wait_for(lambda: number in finished)
            item = finished[number]
            if isinstance(item, BaseException):
                # It stays: the next call raises it again.
                raise item
            del finished[number]
            self._next[-1] += 1
            self._ahead -= 1
            if self._depth is not None:
                self._allowed = self._depth.observe(found, waited)
            self._changed.notify_all()
            return item

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no stage within the ``with`` block; running ones finish."""
        self._paused = True
        try:
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Let each thread end with the stage it is in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the threads, and wait for their end."""
        self.stop()
        for thread in self._threads:
            # A garbage collection may run in one of the threads.
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
        """Take items, run the stages and pass them on; exceptions travel like items."""
        while True:
            taken = self._take_from_source() if group == 0 else self._take(group)
            if taken is None:
                return
            number, item = taken
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
        """Run a stage on an item, again while there is no room and items before it are in use."""
        while True:
            self._wait_while_paused()
            asked = self._asked
            try:
                return stage(item)
            except self._no_room:
                if asked >= number or not self._wait_for_more(asked):
                    raise

    def _wait_for_more(self, asked: int) -> bool:
        """Wait until an item beyond ``asked`` is asked for; False when the pipeline is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._asked > asked)
            return not self._closed

    def _wait_while_paused(self) -> None:
        if self._paused:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._paused)

    def _take_from_source(self) -> tuple[int, _T | BaseException] | None:
        """The next item and its number; None when the pipeline is closed."""
        with self._taking:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._ahead < self._allowed)
                if self._closed:
                    return None
                self._ahead += 1
                number = self._next[0]
                self._next[0] += 1
            self._wait_while_paused()
            try:
                return number, next(self._source)
            except BaseException as error:
                return number, error

    def _take(self, group: int) -> tuple[int, _T | BaseException] | None:
        """What the group before has finished, in the order of items; None when closed."""
        before = self._finished[group - 1]
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next[group] in before)
            if self._closed:
                return None
            number = self._next[group]
            self._next[group] += 1
            return number, before.pop(number)
