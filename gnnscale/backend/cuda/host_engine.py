"""Emulation of a GPU on the host: a stream is a thread with random delays, fixed by a seed.

Work of a stream that reads computed values on the host, which would wait for a GPU, is an error.
"""

import queue
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.engine import MemoryPiece
from gnnscale.backend.cuda.host_kernels import HostKernels, Recording, note_launch
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.streams import Event
from gnnscale.core import Array, SharedMemory, peak_rss_bytes
from gnnscale.planner import Cuda

#: Maximum random delay of a piece of work in seconds.
_MAX_DELAY_S = 2e-4

#: Functions that read values on the host, or whose result size depends on values.
_READS = frozenset(
    {
        *(torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy),
        *(torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__),
        *(torch.Tensor.__index__, torch.Tensor.__array__, torch.Tensor.nonzero, torch.nonzero),
        *(torch.Tensor.masked_select, torch.masked_select, torch.Tensor.unique, torch.unique),
        *(torch.equal, torch.Tensor.equal, torch.allclose, torch.Tensor.allclose),
    }
)


class HostReadError(RuntimeError):
    """Read of a computed value on the host within a step, which would wait for a GPU."""


#: Dispatcher operations of the same kind, which backward propagation calls directly.
_READS_BELOW = frozenset(
    {
        *(torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default),
        *(torch.ops.aten.masked_select.default, torch.ops.aten.equal.default),
        *(torch.ops.aten._unique2.default, torch.ops.aten.unique_dim.default),
    }
)


def _refuse(func: Any) -> None:
    name = getattr(func, "__name__", func)
    raise HostReadError(f"{name} of a tensor in a step waits for the device")


class _NoReads(TorchFunctionMode):
    """Mode that refuses torch functions that wait for a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS:
            _refuse(func)
        return func(*args, **(kwargs or {}))


class _NoReadsBelow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Mode that refuses operations of backward propagation that wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS_BELOW:
            _refuse(func)
        return func(*args, **(kwargs or {}))


@contextmanager
def no_host_reads() -> Iterator[None]:
    """Raise HostReadError, within ``with``, for torch operations that wait for a GPU."""
    with _NoReads(), _NoReadsBelow():  # type: ignore[no-untyped-call]
        yield


class HostEvent:
    """Mark in a thread's queue."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._time = 0.0

    def reach(self, error: BaseException | None) -> None:
        """Complete the mark now, and wake threads that wait for it.

        ``error`` is the error of the work before the mark. None: it has succeeded.
        """
        self._error, self._time = error, time.perf_counter()
        self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether all work before the mark is done."""
        return self._done.is_set()

    def wait(self) -> None:
        """Wait for the mark on the host, and raise the error of the work before it."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds from ``earlier`` to this mark."""
        assert isinstance(earlier, HostEvent)
        return self._time - earlier._time


@dataclass(frozen=True)
class HostCaptured:
    """Recording of a stream's work, which the stream's thread repeats."""

    _recording: Recording
    _queue: Callable[[Callable[[], object]], object]  #: queue of the thread

    def replay(self) -> None:
        """Queue the recorded work again on the stream's thread."""
        self._queue(self._recording.repeat)


class HostStream:
    """Thread that runs queued work in order, after random delays, until the first failure."""

    def __init__(self, seed: int) -> None:
        """Start the thread with delays fixed by ``seed``."""
        self._delays = random.Random(seed)
        self._queue: queue.SimpleQueue[Callable[[], object] | HostEvent | None] = (
            queue.SimpleQueue()
        )
        self._error: BaseException | None = None
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="cuda on the host", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], object], *, waits: bool = False) -> None:
        """Queue ``work``; unless ``waits``, it fails if it reads computed values on the host."""

        def guarded() -> None:
            with no_host_reads():
                work()

        self._put(work if waits else guarded)

    def capture(self, work: Callable[[], object]) -> HostCaptured:
        """Queue and record ``work``, which fails if it reads computed values on the host."""
        recording = Recording()

        def recorded() -> None:
            with no_host_reads(), recording.recorded():
                work()

        self._put(recorded)
        return HostCaptured(recording, self._put)

    def mark(self) -> HostEvent:
        """Return a mark after all queued work."""
        mark = HostEvent()
        self._put(mark)
        return mark

    def wait_for(self, mark: Event) -> None:
        """Make later work wait for a mark of another stream."""
        self._put(mark.wait)

    def close(self) -> None:
        """End the thread after all queued work; later work is dropped."""
        with self._closing:
            if not self._closed:
                self._queue.put(None)
            self._closed = True
        self._thread.join()

    def _put(self, work: Callable[[], object] | HostEvent) -> None:
        with self._closing:
            if not self._closed:
                self._queue.put(work)
            elif isinstance(work, HostEvent):  # wakes threads that wait for the mark
                work.reach(self._error or RuntimeError("cuda on the host: the device is closed"))

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            if isinstance(work, HostEvent):
                work.reach(self._error)
                continue
            if self._error is not None:
                continue
            time.sleep(self._delays.random() * _MAX_DELAY_S)
            try:
                work()
            except BaseException as error:
                self._error = error


class HostEngine:
    """Engine on the host: device memory is host memory, and streams are threads."""

    def __init__(self, device: Cuda) -> None:
        """Load the kernels for the host, compiled on first use."""
        self.device = torch.device("cpu")
        self.kernels: Kernels = HostKernels()
        self.memory_bytes = device.budget_bytes
        self._rss_bytes = peak_rss_bytes()
        self._num_streams = 0

    def stream(self) -> HostStream:
        """Return a new stream with its own random delays."""
        self._num_streams += 1
        return HostStream(self._num_streams)

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ``[size]`` zeros."""
        return torch.zeros(size, dtype=dtype)

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array`` as a tensor viewed as ``dtype``, without a copy if it is contiguous."""
        array = np.ascontiguousarray(array)
        with warnings.catch_warnings():  # torch warns of arrays that must not be written
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(np.asarray(array)).view(dtype)

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized tensor."""
        return torch.empty(shape, dtype=dtype)

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Return memory of a shared file, zeros; DeviceMemoryError: it exceeds the budget."""
        if num_bytes > self.memory_bytes:
            raise DeviceMemoryError(
                f"cuda on the host: a cache of {num_bytes / 1e6:,.1f} MB does not fit into "
                f"memory_bytes={self.memory_bytes}"
            )
        memory = SharedMemory.empty(num_bytes)
        return MemoryPiece(bytes=_bytes_of(memory, num_bytes), address=str(memory.path))

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Map the shared file ``address`` of another process, and return its bytes as uint8."""
        try:
            return _bytes_of(SharedMemory.open(Path(address)), num_bytes)
        except OSError as error:
            raise DeviceError(
                f"cuda on the host: a peer's cache cannot be opened: {error}"
            ) from None

    def collective(self, work: Callable[[], None], keep_alive: object) -> None:
        """Run ``work`` outside of torch's current modes, which check and record operations.

        A recording of this thread gets ``work`` as one call, and keeps ``keep_alive`` alive.
        """
        with _disable_current_modes():
            work()
        note_launch(work, (keep_alive,))

    def synchronize(self) -> None:
        """Do nothing: work outside of streams is done immediately."""

    def free_bytes(self) -> int:
        """Return the bytes of the whole budget; used memory is not counted."""
        return self.memory_bytes

    def peak_bytes(self) -> int:
        """Return the growth of this process's peak memory in bytes since the engine was opened."""
        return max(peak_rss_bytes() - self._rss_bytes, 0)

    def close(self) -> None:
        """Do nothing: the engine has no resources to free."""


def _bytes_of(memory: SharedMemory, num_bytes: int) -> torch.Tensor:
    return torch.frombuffer(memory.map, dtype=torch.uint8)[:num_bytes]
