"""The host that stands for a GPU: streams are threads that are late at random, by a seed.

What a GPU would have to wait for is an error here: work that reads what the device computes.
"""

from __future__ import annotations

import queue
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from gnnscale.core import Array
from gnnscale.core.metrics import peak_rss_bytes
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.planner import Cuda

#: Seconds that a stream is late with a piece of work, at most.
_MAX_DELAY_S = 2e-4

#: Functions that need values on the host, or whose results are as large as values say.
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
    """A step reads on the host what the device has computed, for which a GPU would be waited."""


#: The same in gradients, for which functions are no longer seen by their names.
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
    """Refuses functions of torch that a GPU would be waited for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS:
            _refuse(func)
        return func(*args, **(kwargs or {}))


class _NoReadsBelow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses the same in gradients, which torch computes without the mode above."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS_BELOW:
            _refuse(func)
        return func(*args, **(kwargs or {}))


@contextmanager
def no_host_reads() -> Iterator[None]:
    """Refuse operations of torch that a GPU would be waited for, in this thread.

    Raises:
        HostReadError: one reads values on the host.
    """
    with _NoReads(), _NoReadsBelow():  # type: ignore[no-untyped-call]
        yield


class HostEvent:
    """A point in a thread's queue."""

    def __init__(self) -> None:
        """Make a mark that is not reached."""
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._time = 0.0

    def reach(self, error: BaseException | None) -> None:
        """Note that all before it is done, or that some of it has failed."""
        self._error, self._time = error, time.perf_counter()
        self._done.set()

    @property
    def reached(self) -> bool:
        """Whether it is reached already."""
        return self._done.is_set()

    def wait(self) -> None:
        """Let the host wait until it is reached; raise what failed before it."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds from ``earlier`` to this mark."""
        assert isinstance(earlier, HostEvent)
        return self._time - earlier._time


class HostCaptured:
    """A recording that a thread repeats."""

    def __init__(
        self, recording: Recording, queue: Callable[[Callable[[], object]], object]
    ) -> None:
        """Know the thread's queue."""
        self._recording = recording
        self._queue = queue

    def replay(self) -> None:
        """Queue the recording once more."""
        self._queue(self._recording.repeat)


class HostStream:
    """A thread that does what is queued, later than a caller may expect.

    Once something has failed nothing more is done, as in a CUDA context.
    """

    def __init__(self, seed: int) -> None:
        """Start the thread, whose delays are fixed by ``seed``."""
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
        """Queue ``work``, which may read tensors' values on the host only if it ``waits``."""

        def guarded() -> None:
            with no_host_reads():
                work()

        self._put(work if waits else guarded)

    def capture(self, work: Callable[[], object]) -> HostCaptured:
        """Queue ``work``, of which no part may wait, and record it."""
        recording = Recording()

        def recorded() -> None:
            with no_host_reads(), recording.recorded():
                work()

        self._put(recorded)
        return HostCaptured(recording, self._put)

    def mark(self) -> HostEvent:
        """Return a mark after all that was queued so far."""
        mark = HostEvent()
        self._put(mark)
        return mark

    def wait_for(self, mark: Event) -> None:
        """Let what is queued from now on wait for a mark of another stream."""
        self._put(mark.wait)

    def close(self) -> None:
        """End the thread, after all that was queued; what is queued later is not done."""
        with self._closing:
            if not self._closed:
                self._queue.put(None)
            self._closed = True
        self._thread.join()

    def _put(self, each: Callable[[], object] | HostEvent) -> None:
        with self._closing:
            if not self._closed:
                self._queue.put(each)
            elif isinstance(each, HostEvent):  # wakes those that wait for it
                each.reach(self._error or RuntimeError("cuda on the host: the device is closed"))

    def _work(self) -> None:
        while (each := self._queue.get()) is not None:
            if isinstance(each, HostEvent):
                each.reach(self._error)
                continue
            if self._error is not None:
                continue
            time.sleep(self._delays.random() * _MAX_DELAY_S)
            try:
                each()
            except BaseException as error:
                self._error = error


class HostEngine:
    """The host in the place of a GPU: its memory is the device's, its threads are streams."""

    def __init__(self, device: Cuda) -> None:
        """Compile the kernels for the host, if they were not before.

        Raises:
            ConfigError: there is no compiler.
        """
        self.device = torch.device("cpu")
        self.kernels: Kernels = HostKernels()
        self.memory_bytes = device.budget_bytes
        self._rss_bytes = peak_rss_bytes()
        self._num_streams = 0

    def stream(self) -> HostStream:
        """Return a new stream, of which each is late in its own way."""
        self._num_streams += 1
        return HostStream(self._num_streams)

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory."""
        return torch.zeros(size, dtype=dtype)

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array`` as a tensor, without a copy."""
        return host_tensor(array, dtype)

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return memory."""
        return torch.empty(shape, dtype=dtype)

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Return memory that is shared by its file."""
        if num_bytes > self.memory_bytes:
            raise DeviceMemoryError(
                f"cuda on the host: a cache of {num_bytes / 1e6:,.1f} MB does not fit into "
                f"memory_bytes={self.memory_bytes}"
            )
        memory = SharedMemory.empty(num_bytes)
        return MemoryPiece(bytes=_bytes_of(memory, num_bytes), address=str(memory.path))

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Return the memory of another process, by its file."""
        try:
            return _bytes_of(SharedMemory.open(Path(address)), num_bytes)
        except OSError as error:
            raise DeviceError(
                f"cuda on the host: a peer's cache cannot be opened: {error}"
            ) from None

    def collective(self, work: Callable[[], None], held: object) -> None:
        """Do it with its messages on the host, which are no operations of the device."""
        with _disable_current_modes():
            work()
        note_launch(work, (held,))

    def synchronize(self) -> None:
        """Nothing to do: what is begun outside of streams is done at once."""

    def free_bytes(self) -> int:
        """Return the budget, of which nothing is counted."""
        return self.memory_bytes

    def peak_bytes(self) -> int:
        """Return by how much the process has grown at its peak."""
        return max(peak_rss_bytes() - self._rss_bytes, 0)

    def close(self) -> None:
        """Nothing is held."""


def _bytes_of(memory: SharedMemory, num_bytes: int) -> torch.Tensor:
    return torch.frombuffer(memory.map, dtype=torch.uint8)[:num_bytes]


def host_tensor(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """Return ``array``, which may be read-only, as a tensor without a copy. It is only read."""
    array = np.ascontiguousarray(array)
    with warnings.catch_warnings():  # torch warns of arrays that must not be written
        warnings.simplefilter("ignore", UserWarning)
        found = torch.from_numpy(np.asarray(array))
    return found.view(dtype)
