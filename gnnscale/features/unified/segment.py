"""Writable shared-memory segment that processes and their GPUs access."""

from __future__ import annotations

import os
import resource
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gnnscale.core import Array, ConfigError, one_line
from gnnscale.core.shared_memory import SharedMemory, shared_memory_of
from gnnscale.features.unified.gpu_side import GpuSide


class SharedSegment:
    """Matrix in shared memory, registered by each process with its GPU."""

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
        """Return a new segment with the elements of ``source``, also of a mapped file.

        ``dtype`` is the name of the element type, None for the array's; bfloat16 is stored as
        uint16. ConfigError: there is not enough memory.
        """
        return cls(SharedMemory.filled(source), source.shape, dtype or source.dtype.name)

    @classmethod
    def of(cls, array: Array, dtype: str | None = None) -> SharedSegment:
        """Return a segment over the shared memory of ``array``, or else a new segment's copy."""
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
        """Map a process's segment by its descriptor; ConfigError: it is read-only or too small."""
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
        """Give this process's GPU access to the segment; ConfigError: see ``register``."""
        if not self.registered:
            register(self.bytes, gpu)
            self._unregister = weakref.finalize(self, gpu.unregister, self.bytes)

    def unregister(self) -> None:
        """End the GPU's access; operations on tensors of the segment then run on the CPU."""
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
    """Register mapped host memory ``[num_bytes]`` uint8 with a GPU; RuntimeError: it cannot.

    ConfigError: the memory is read-only or private, or the limit of locked memory is too low.
    """
    check_shared(memory.data_ptr(), memory.numel())
    try:
        gpu.register(memory)
    except RuntimeError as error:
        raise (_locked_memory_error(memory.numel(), error) or error) from None


def check_shared(address: int, num_bytes: int) -> None:
    """Raise ConfigError unless memory is mapped shared and writable, as GPUs need it."""
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
    """Return the error that names the limit of locked memory, if ``num_bytes`` exceed the limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or num_bytes <= limit:
        return None
    return ConfigError(
        f"unified memory: {num_bytes:,} B cannot be registered with the GPU "
        f"({one_line(error, 80)}), and the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK) is "
        f"{limit:,} B; `ulimit -l unlimited` raises it, features=device and topology=device of the "
        "device need none"
    )
