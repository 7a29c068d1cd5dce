"""Streams: queues of a GPU's work, and the marks that order them. The host waits for neither."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Event(Protocol):
    """A point in a stream, which is reached once all that was queued before it is done."""

    @property
    def reached(self) -> bool:
        """Whether it is reached already."""
        ...

    def wait(self) -> None:
        """Let the host wait until it is reached.

        Raises:
            RuntimeError: what was queued before it has failed.
        """
        ...

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds from ``earlier`` to this mark, by the device's clock, both reached."""
        ...


class CapturedWork(Protocol):
    """Work that a stream has recorded."""

    def replay(self) -> None:
        """Queue the work once more, as it was recorded: with the same memory and numbers."""
        ...


class Stream(Protocol):
    """Work that is done in the order in which it was queued."""

    def run(self, work: Callable[[], object], *, waits: bool = False) -> None:
        """Queue ``work``: operations of torch, and kernels on the current stream.

        It may have returned before, while, or after the device does what it queues.

        Args:
            waits: whether ``work`` may read on the host what the device computes.
        """
        ...

    def capture(self, work: Callable[[], object]) -> CapturedWork:
        """Queue ``work`` and record it, so that the host need not queue its parts again.

        All that it reads or writes and that is not its own must live, and stay in place, as long as
        the recording does. It must have been done once before.

        Raises:
            RuntimeError: it cannot be recorded, e.g. since it waits for the device.
        """
        ...

    def mark(self) -> Event:
        """Return a mark after all that was queued so far."""
        ...

    def wait_for(self, mark: Event) -> None:
        """Let what is queued from now on wait for a mark of another stream."""
        ...

    def close(self) -> None:
        """Wait for all that was queued, whatever became of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class DeviceStreams:
    """The queues of a device: one samples and reads the next mini-batch while the other trains."""

    reading: Stream
    training: Stream


class CudaEvent:
    """An event of a GPU."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        """Record the event on ``stream``."""
        self.event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.event.record(stream)

    @property
    def reached(self) -> bool:
        """Whether it is reached already."""
        return bool(self.event.query())

    def wait(self) -> None:
        """Let the host wait until it is reached."""
        self.event.synchronize()

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds from ``earlier`` to this mark."""
        assert isinstance(earlier, CudaEvent)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class CudaCaptured:
    """A CUDA graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, stream: Any) -> None:
        """Know the stream on which it is launched."""
        self._graph = graph
        self._stream = stream

    def replay(self) -> None:
        """Launch the graph."""
        with torch.cuda.stream(self._stream):
            self._graph.replay()


class CudaStream:
    """A stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        """Make a stream of ``device``."""
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = None

    def run(self, work: Callable[[], object], *, waits: bool = False) -> None:
        """Queue what ``work`` queues on the current stream."""
        torch.cuda.set_device(self._device)  # kernels take the context of the thread
        with torch.cuda.stream(self._stream):
            work()

    def capture(self, work: Callable[[], object]) -> CudaCaptured:
        """Record ``work`` as a CUDA graph, and launch that."""
        if self._pool is None:
            # Recordings of a stream never run at once, so that they may share their memory.
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_device(self._device)
        with torch.cuda.graph(
            graph,
            pool=self._pool,
            stream=self._stream,
            # Other threads may write checkpoints meanwhile.
            capture_error_mode="thread_local",
        ):
            work()
        captured = CudaCaptured(graph, self._stream)
        captured.replay()
        return captured

    def mark(self) -> CudaEvent:
        """Return a mark after all that was queued so far."""
        return CudaEvent(self._stream)

    def wait_for(self, mark: Event) -> None:
        """Let what is queued from now on wait for a mark of another stream."""
        assert isinstance(mark, CudaEvent)
        self._stream.wait_event(mark.event)

    def close(self) -> None:
        """Wait for all that was queued; who waited for it has seen what failed."""
        with suppress(RuntimeError):
            self._stream.synchronize()
