"""Results of tasks in their order, a bounded number of them computed ahead by threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["prefetch"]

T = TypeVar("T")
_THREAD_NAME = "gnnscale-prefetch"


def prefetch(tasks: Iterable[Callable[[], T]], *, num_threads: int, depth: int) -> Iterator[T]:
    """Yield the result of each task in order; up to ``depth`` later ones are on their way.

    The threads end with the generator, however it ends. What a task raises is raised to the caller,
    at the task's turn.

    Args:
        tasks: taken from in the caller's thread, as needed.
        num_threads: threads that run tasks; 0 runs each in the caller's thread when asked for.
        depth: tasks started beyond the one waited for.
    """
    if num_threads == 0:
        for task in tasks:
            yield task()
        return
    pending: deque[Future[T]] = deque()
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix=_THREAD_NAME)
    try:
        for task in tasks:
            pending.append(executor.submit(task))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # An abandoned generator may be collected in any thread, even in one of the executor's own,
        # which cannot wait for itself.
        in_worker = threading.current_thread().name.startswith(_THREAD_NAME)
        executor.shutdown(wait=not in_worker, cancel_futures=True)
