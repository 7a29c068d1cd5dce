"""Threads that compute chunks at the same time, each from reading rows to writing results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

__all__ = ["Workers"]

#: Chunks that are computed at once, at most: each holds its rows in memory.
_MAX_WORKERS = 4

A = TypeVar("A")
B = TypeVar("B")


class Workers:
    """Computes chunks at once, so that one is multiplied while another one's rows are read.

    No thread then waits for the slowest part of each step, as all do where they share one chunk.

    Attributes:
        each: threads that one chunk may use, of native kernels and of torch.
    """

    def __init__(self, num_threads: int) -> None:
        """Divide ``num_threads`` among chunks."""
        self._count = min(num_threads, _MAX_WORKERS)
        self.each = num_threads // self._count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the threads, for ``map``, while the block runs."""
        before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self._count,
            thread_name_prefix="inference",
            initializer=torch.set_num_threads,
            initargs=(self.each,),
        )
        try:
            yield
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            # A thread sets the number of its own, and that of threads which are yet to come.
            torch.set_num_threads(before)

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield ``function(item)``, without gradient, in the order of ``items``.

        These are taken only a few ahead of what was yielded.
        """
        assert self._pool is not None
        running: deque[Future[B]] = deque()
        try:
            for item in items:
                running.append(self._pool.submit(_without_gradient, function, item))
                if len(running) > self._count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            # After an error, nobody may still write to what the caller gives up now.
            for each in running:
                each.cancel()
            wait(running)


def _without_gradient(function: Callable[[Any], B], item: Any) -> B:
    # torch keeps this for each thread.
    with torch.no_grad():
        return function(item)
