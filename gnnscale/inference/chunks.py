"""Chunks of a layer's vertices, and the worker threads that load and compute chunks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from gnnscale.backend.feature_loading import LoadedChunk
from gnnscale.core import Array


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive output vertices of a layer, and a function that loads block and input rows."""

    first: int  #: output row of the first vertex
    load: Callable[[], LoadedChunk]  #: loads the chunk, in any thread
    vertices: Array | None = None  #: ids of the vertices; None if the layer does not need ids


def as_chunks(chunks: Iterable[LoadedChunk]) -> Iterator[Chunk]:
    """Yield loaded ``chunks`` as ``Chunk`` objects of consecutive output rows from 0 on."""
    first = 0
    for chunk in chunks:
        yield Chunk(first=first, load=lambda chunk=chunk: chunk)  # type: ignore[misc]
        first += chunk[0].num_dst


def in_order(
    loads: Iterable[tuple[Array, Callable[[], LoadedChunk]]], first: int = 0
) -> Iterator[Chunk]:
    """Yield a chunk for each pair of vertices and load function, from output row ``first`` on."""
    for vertices, load in loads:
        yield Chunk(first=first, load=load, vertices=vertices)
        first += len(vertices)


#: Maximum number of chunks in computation, each with its rows in memory.
_MAX_WORKERS = 4

A = TypeVar("A")
B = TypeVar("B")


class Workers:
    """Threads, each of which computes one chunk at a time; reads and multiplications overlap.

    Threads that share one chunk would all wait for its slowest part in each step.
    """

    def __init__(self, num_threads: int) -> None:
        """Divide ``num_threads`` among the chunks that are computed together, at most 4."""
        self._count = min(num_threads, _MAX_WORKERS)
        #: threads of native kernels and of torch for a chunk
        self.threads_per_chunk = num_threads // self._count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the threads for ``map`` inside a ``with`` block; cancel queued work at its end."""
        num_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self._count,
            thread_name_prefix="inference",
            initializer=torch.set_num_threads,
            initargs=(self.threads_per_chunk,),
        )
        try:
            yield
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            # The initializer has also changed the default of later threads.
            torch.set_num_threads(num_threads)

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield ``function(item)`` in order; threads compute a few items ahead, no gradients."""
        assert self._pool is not None
        running: deque[Future[B]] = deque()
        function = torch.no_grad()(function)  # gradient mode is thread-local
        try:
            for item in items:
                running.append(self._pool.submit(function, item))
                if len(running) > self._count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            # After an error, no thread may write to memory that the caller frees.
            for future in running:
                future.cancel()
            wait(running)
