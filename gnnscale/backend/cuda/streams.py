"""Streams: asynchronous queues of GPU work, and the marks that order them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Event(Protocol):
    """Mark in a stream, which is done once all work queued before it is done."""

    @property
    def is_done(self) -> bool:
        """Whether all work before the mark is done."""

    def wait(self) -> None:
        """Wait for the mark; RuntimeError: work queued before it failed."""

    def seconds_since(self, earlier: "Event") -> float:
        """Return the seconds from ``earlier`` to this mark by the device's clock; both are done."""


class CapturedWork(Protocol):
    """Recording of a stream's work."""

    def replay(self) -> None:
        """Queue the recorded work again, with the recorded addresses and arguments."""


class Stream(Protocol):
    """In-order queue of a device's work, run asynchronously."""

    def run(self, work: Callable[[], object], *, waits: bool = False) -> None:
        """Queue ``work``: torch operations, and kernels on the current stream.

        ``work`` may have returned before, while or after the device executes its operations. Only
        with ``waits`` may it read on the host values computed by the device.
        """

    def capture(self, work: Callable[[], object]) -> CapturedWork:
        """Queue and record ``work``, so that a replay costs the host a single call.

        Memory that the operations use, except their own intermediate results, must stay at its
        address as long as the recording. ``work`` must have run once before. Raises RuntimeError if
        the work cannot be recorded, e.g. since it waits for the device.
        """

    def mark(self) -> Event:
        """Return a mark after all queued work."""

    def wait_for(self, mark: Event) -> None:
        """Make later work wait for a mark of another stream."""

    def close(self) -> None:
        """Wait for all queued work, failed or not."""


@dataclass(frozen=True, kw_only=True)
class DeviceStreams:
    """Streams of a device: one samples and reads the next mini-batch, the other trains."""

    reading: Stream
    training: Stream


class CudaEvent:
    """Mark in a GPU stream: a CUDA event with timing."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.event.record(stream)

    @property
    def is_done(self) -> bool:
        """Whether all work before the mark is done."""
        return bool(self.event.query())

    def wait(self) -> None:
        """Wait for the mark on the host."""
        self.event.synchronize()

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds from ``earlier`` to this mark."""
        assert isinstance(earlier, CudaEvent)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


@dataclass(frozen=True)
class CudaCaptured:
    """CUDA graph, and the stream that launches it."""

    _graph: torch.cuda.CUDAGraph
    _stream: Any

    def replay(self) -> None:
        """Launch the graph."""
        with torch.cuda.stream(self._stream):
            self._graph.replay()


class CudaStream:
    """Stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = None

    def run(self, work: Callable[[], object], *, waits: bool = False) -> None:
        """Call ``work`` at once with this stream as the current one, which queues its kernels.

        ``waits`` is unused.
        """
        torch.cuda.set_device(self._device)  # kernels use the thread's context
        with torch.cuda.stream(self._stream):
            work()

    def capture(self, work: Callable[[], object]) -> CudaCaptured:
        """Record ``work`` as a CUDA graph, and launch the graph."""
        if self._pool is None:
            # Graphs of a stream run one after another, and can share a memory pool.
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_device(self._device)
        with torch.cuda.graph(
            graph,
            pool=self._pool,
            stream=self._stream,
            # Other threads may write checkpoints during the capture.
            capture_error_mode="thread_local",
        ):
            work()
        captured = CudaCaptured(graph, self._stream)
        captured.replay()
        return captured

    def mark(self) -> CudaEvent:
        """Return a mark after all queued work."""
        return CudaEvent(self._stream)

    def wait_for(self, mark: Event) -> None:
        """Make later work wait for a mark of another stream."""
        assert isinstance(mark, CudaEvent)
        self._stream.wait_event(mark.event)

    def close(self) -> None:
        """Wait for all queued work; its failures were raised where it was waited for."""
        with suppress(RuntimeError):
            self._stream.synchronize()
