"""Writable shared-memory segment that processes and their GPUs access, and the GPU side of it."""

from __future__ import annotations

import ctypes
import os
import resource
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from gnnscale.core import Array, ConfigError, SharedMemory, one_line, shared_memory_of

#: ``gather(rows, index)``: rows ``[n, f]`` and index ``[m]`` of the GPU side give ``[m, f]``.
Gather = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: cudaHostRegisterPortable | cudaHostRegisterMapped
_PORTABLE_AND_MAPPED = 1 | 2


def index_rows(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return ``rows[index]`` by torch's indexing kernel, whose reads are not aligned."""
    return rows[index]


class GpuSide(Protocol):
    """GPU operations that unified tensors need; ``memory`` is ``[num_bytes]`` uint8 on the host."""

    gather: Gather

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in the GPU's memory."""

    def register(self, memory: torch.Tensor) -> None:
        """Give the GPU access to host memory."""

    def unregister(self, memory: torch.Tensor) -> None:
        """End the access that ``register`` gave."""

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return a GPU tensor that reads registered or allocated host memory in place."""

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return new host memory that the GPU accesses."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a host tensor in the GPU's memory."""

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``function`` on the GPU; its tensors are in GPU memory, or scalars of the host."""

    def synchronize(self) -> None:
        """Wait until the GPU has finished all queued work."""

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return new managed memory; ConfigError: it exceeds the GPU's free memory."""

    def advise(self, memory: torch.Tensor, advice: str, device: torch.device) -> int:
        """Advise the driver about memory (cudaMemAdvise), and return the error code; 0: success."""


#: Advices of cudaMemAdvise: names of PyTorch-Direct, and numbers of CUDA.
ADVICE = {
    "SetReadMostly": 1,
    "UnsetReadMostly": 2,
    "SetPreferredLocation": 3,
    "UnsetPreferredLocation": 4,
    "SetAccessedBy": 5,
    "UnsetAccessedBy": 6,
}


def check_free(num_bytes: int, free_bytes: int) -> None:
    """Raise ConfigError if ``num_bytes`` of managed memory exceed the GPU's ``free_bytes``."""
    if num_bytes > free_bytes:
        raise ConfigError(
            f"managed memory: expected at most the GPU's {free_bytes:,} B of free memory, got "
            f"{num_bytes:,} B"
        )


class _Bytes:
    """Memory that torch reads through ``__cuda_array_interface__``, without a copy."""

    def __init__(self, address: int, num_bytes: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class CudaSide:
    """GPU operations of the current CUDA device. Not verified on hardware."""

    def __init__(self, *, gather: Gather = index_rows) -> None:
        """Use the current device, with ``gather`` for row reads; ConfigError: no CUDA device."""
        if not torch.cuda.is_available():
            raise ConfigError("unified memory: expected a CUDA device, torch finds none")
        self.gather = gather
        self.device = torch.device("cuda", torch.cuda.current_device())

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in a CUDA device's memory."""
        return tensor.is_cuda

    def register(self, memory: torch.Tensor) -> None:
        """Lock the memory and map it for all contexts (cudaHostRegister)."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        result = runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE_AND_MAPPED)
        _check(result, "cudaHostRegister")

    def unregister(self, memory: torch.Tensor) -> None:
        """Wait for the device's kernels, then unlock the memory."""
        torch.cuda.synchronize(self.device)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        _check(runtime.cudaHostUnregister(memory.data_ptr()), "cudaHostUnregister")

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return a GPU tensor over host memory, whose device address equals its host address."""
        memory_bytes = _Bytes(memory.data_ptr(), memory.numel(), memory)
        return torch.as_tensor(memory_bytes, device=self.device)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return pinned memory ``[num_bytes]`` of torch's caching allocator (section 4.4)."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of ``tensor`` on the device."""
        return tensor.to(self.device)

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the function's result, computed on the current stream."""
        return function(*args, **kwargs)

    def synchronize(self) -> None:
        """Wait until the current stream has finished all queued work."""
        torch.cuda.current_stream(self.device).synchronize()

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return managed memory (cudaMallocManaged), whose pages migrate between host and GPU.

        ConfigError: the GPU has less free memory, or cuda-bindings is not installed.
        """
        check_free(num_bytes, torch.cuda.mem_get_info(self.device)[0])
        runtime = _runtime()
        error, address = runtime.cudaMallocManaged(num_bytes, runtime.cudaMemAttachGlobal)
        _check(error, "cudaMallocManaged")
        memory = torch.frombuffer(
            (ctypes.c_uint8 * num_bytes).from_address(address), dtype=torch.uint8
        )
        weakref.finalize(memory.untyped_storage(), runtime.cudaFree, address)
        return memory

    def advise(self, memory: torch.Tensor, advice: str, device: torch.device) -> int:
        """Call cudaMemAdvise for ``memory`` and ``device``, and return its error code."""
        runtime = _runtime()
        location = runtime.cudaMemLocation()
        kinds = runtime.cudaMemLocationType
        on_host = device.type == "cpu"
        location.type = (
            kinds.cudaMemLocationTypeHost if on_host else kinds.cudaMemLocationTypeDevice
        )
        location.id = 0 if on_host else device.index or 0
        cuda_advice = runtime.cudaMemoryAdvise(ADVICE[advice])
        (error,) = runtime.cudaMemAdvise(memory.data_ptr(), memory.numel(), cuda_advice, location)
        return int(error)


def _check(result: Any, call: str) -> None:
    """Raise RuntimeError, which names the CUDA function ``call``, unless ``int(result)`` is 0."""
    if int(result) != 0:
        raise RuntimeError(f"CUDA error {int(result)} of {call} ({result})")


def _runtime() -> Any:
    """Return the bindings of the CUDA runtime; ConfigError: the extra ``cuda`` is not installed."""
    try:
        return import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise ConfigError(
            f"managed memory: expected cuda-bindings, got an import error ({error}); "
            "`pip install '.[cuda]'` installs them, registered memory works without"
        ) from None


class SharedSegment:
    """Matrix in shared memory, which each process may register with its GPU."""

    def __init__(self, memory: SharedMemory, shape: tuple[int, ...], dtype: str) -> None:
        """Use ``memory`` as ``shape`` elements of ``dtype``; ConfigError: it is too small."""
        self.memory = memory
        self.shape = shape
        self.dtype = dtype  #: name of torch's element type
        needed = int(np.prod(shape, dtype=np.int64)) * self.torch_dtype.itemsize
        if needed > len(memory.map):
            num_bytes = len(memory.map)
            raise ConfigError(f"segment: {shape} {dtype}: expected {needed:,} B, got {num_bytes:,}")
        self.bytes = torch.frombuffer(memory.map, dtype=torch.uint8)  #: ``[num_bytes]`` uint8
        self._unregister: Callable[[], object] | None = None

    @classmethod
    def fill(cls, source: Array, dtype: str | None = None) -> SharedSegment:
        """Return a new segment with a copy of ``source``, which may be a mapped file.

        ``dtype`` is the name of the element type, None for the array's; bfloat16 is stored as
        uint16. ConfigError: there is not enough memory.
        """
        return cls(SharedMemory.filled(source), source.shape, dtype or source.dtype.name)

    @classmethod
    def of(cls, array: Array, dtype: str | None = None) -> SharedSegment:
        """Return a segment over ``array`` if it is contiguous in shared memory; else a copy."""
        # A slice of columns is not a segment.
        memory = shared_memory_of(array) if array.flags.c_contiguous else None
        if memory is None:
            return cls.fill(array, dtype)
        return cls(memory, array.shape, dtype or array.dtype.name)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str) -> SharedSegment:
        """Return a new segment of zeros."""
        num_bytes = int(np.prod(shape, dtype=np.int64)) * torch_dtype(dtype).itemsize
        return cls(SharedMemory.empty(num_bytes), shape, dtype)

    @classmethod
    def open(cls, descriptor: int, shape: tuple[int, ...], dtype: str) -> SharedSegment:
        """Map another process's segment by file descriptor; ConfigError: read-only or too small."""
        return cls(SharedMemory(os.dup(descriptor)), shape, dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Torch's element type."""
        return torch_dtype(self.dtype)

    @property
    def tensor(self) -> torch.Tensor:
        """The matrix as a plain tensor of ``shape``, without a copy."""
        count = int(np.prod(self.shape, dtype=np.int64))
        flat = self.bytes[: count * self.torch_dtype.itemsize].view(self.torch_dtype)
        return flat.view(self.shape)

    @property
    def registered(self) -> bool:
        """Whether the segment is registered with a GPU."""
        return self._unregister is not None

    def register(self, gpu: GpuSide) -> None:
        """Give this process's GPU access to the segment; ConfigError: its memory is unsuitable."""
        if not self.registered:
            register(self.bytes, gpu)
            self._unregister = weakref.finalize(self, gpu.unregister, self.bytes)

    def unregister(self) -> None:
        """End the GPU's access, if any; GPU operations on the segment are invalid from then on."""
        if self._unregister is not None:
            self._unregister()
            self._unregister = None


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's element type with this name; ConfigError: there is no such type."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f"segment: torch has no element type {name}")
    return dtype


def register(memory: torch.Tensor, gpu: GpuSide) -> None:
    """Register mapped host memory ``[num_bytes]`` uint8 with a GPU; RuntimeError: the GPU fails.

    ConfigError: the memory is read-only or private, or the limit of locked memory is too low.
    """
    check_shared(memory.data_ptr(), memory.numel())
    try:
        gpu.register(memory)
    except RuntimeError as error:
        raise (_locked_memory_error(memory.numel(), error) or error) from None


def check_shared(address: int, num_bytes: int) -> None:
    """Raise ConfigError unless the memory from ``address`` is mapped shared and writable."""
    checked = address
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, access = line.split()[:2]
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if not first <= checked < last:
            continue
        if "w" not in access:
            raise ConfigError("unified memory: expected a writable map, got a read-only map")
        if "s" not in access:
            raise ConfigError("unified memory: expected a shared map, got a private map")
        checked = last
        if checked >= address + num_bytes:
            return
    raise ConfigError("unified memory: expected mapped memory, got an address without a map")


def _locked_memory_error(num_bytes: int, error: Exception) -> ConfigError | None:
    """Return a ConfigError on the limit of locked memory if ``num_bytes`` exceed it, else None."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or num_bytes <= limit:
        return None
    return ConfigError(
        f"unified memory: {num_bytes:,} B cannot be registered with the GPU "
        f"({one_line(error, 80)}), and the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK) is "
        f"{limit:,} B; `ulimit -l unlimited` raises it, features=device and topology=device of the "
        "device need none"
    )
