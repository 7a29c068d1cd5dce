"""The pipeline: stages that run ahead of the trainer in threads of their own (HyScale-GNN IV-B).

It knows stages and queues, and nothing of devices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Generic, TypeVar

from gnnscale.runtime.pipeline.prefetch_depth import PrefetchDepth

__all__ = ["Pipeline", "StageGroup"]

T = TypeVar("T")

#: Stages that one thread runs in turn on each item, changing the item.
StageGroup = Sequence[Callable[[T], None]]


class Pipeline(Generic[T]):
    """Passes items through lanes of stages, in order, a bounded number of them at a time.

    Each lane has a thread and hands its items to the next; whoever iterates gets them after the
    last. With no lane at all, nothing runs ahead. Native stages run without the GIL, so that lanes
    overlap.

    What the source or a stage raises is raised to the caller, in the item's turn.
    """

    def __init__(
        self,
        source: Iterator[T],
        lanes: Sequence[StageGroup[T]],
        *,
        limit: int,
        inline: StageGroup[T] = (),
    ) -> None:
        """Prepare; threads start with the first item asked for.

        Args:
            source: items; taken from in the first lane's thread.
            lanes: stages of each thread. An empty first lane would only fetch from the source.
            limit: items that may be on their way, all lanes and queues together.
            inline: stages that the caller's thread runs on each item that it asks for.
        """
        self._source = source
        self._lanes = lanes
        self._inline = inline
        self._queues: list[deque[T | BaseException]] = [deque() for _ in lanes]
        self._depth = PrefetchDepth(limit=limit)
        self._allowed = self._depth.depth
        self._ahead = 0
        self._closed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Pipeline[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next finished item, waiting for it if need be."""
        item = self._next() if self._lanes else next(self._source)
        for stage in self._inline:
            stage(item)
        return item

    def _next(self) -> T:
        """The next item that has passed all lanes."""
        if not self._threads:
            self._start()
        with self._changed:
            last = self._queues[-1]
            waited = not last
            found = len(last)
            self._changed.wait_for(lambda: last)
            item = last[0]
            if isinstance(item, BaseException):
                # Left where it is: whoever asks again is told again.
                raise item
            last.popleft()
            self._ahead -= 1
            self._allowed = self._depth.observe(found, waited)
            self._changed.notify_all()
            return item

    def stop(self) -> None:
        """Let each thread end with the stage it is in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the threads, and wait for their end."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        for number, lane in enumerate(self._lanes):
            names = "-".join(getattr(stage, "__name__", "stage") for stage in lane)
            thread = threading.Thread(
                target=self._run, args=(number, lane), name=f"gnnscale-{names}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int, lane: StageGroup[T]) -> None:
        """A lane's thread: take, run the stages, hand on; an exception travels like an item."""
        while True:
            try:
                item = self._take(number)
                if item is None:
                    return
                if isinstance(item, BaseException):
                    self._hand_on(number, item)
                    return
                for stage in lane:
                    stage(item)
            except BaseException as error:
                self._hand_on(number, error)
                return
            self._hand_on(number, item)

    def _take(self, number: int) -> T | BaseException | None:
        """The lane's next item; None when the pipeline is closed."""
        with self._changed:
            if number == 0:
                self._changed.wait_for(lambda: self._closed or self._ahead < self._allowed)
                self._ahead += 1
            else:
                queue = self._queues[number - 1]
                self._changed.wait_for(lambda: self._closed or queue)
            if self._closed:
                return None
            if number:
                return self._queues[number - 1].popleft()
        try:
            return next(self._source)
        except StopIteration as end:
            return end

    def _hand_on(self, number: int, item: T | BaseException) -> None:
        with self._changed:
            self._queues[number].append(item)
            self._changed.notify_all()
