"""Host memory that processes and their GPU share: one writable segment without a name."""

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
    """A matrix in shared memory, which each process registers with its GPU."""

    def __init__(self, memory: SharedMemory, shape: tuple[int, ...], dtype: str) -> None:
        """Take ``shape`` elements of type ``dtype`` of ``memory``.

        Raises:
            ConfigError: it is smaller, or torch has no such type.
        """
        self.memory = memory
        self.shape = shape
        self.dtype = dtype  #: name of the element type, one of torch's
        needed = int(np.prod(shape, dtype=np.int64)) * self.torch_dtype.itemsize
        if needed > len(memory.map):
            has = len(memory.map)
            raise ConfigError(f"segment: {shape} {dtype} needs {needed:,} B, has {has:,} B")
        self.bytes = torch.frombuffer(memory.map, dtype=torch.uint8)  #: ``[num_bytes]`` uint8
        self._unregister: Callable[[], object] | None = None

    @classmethod
    def fill(cls, source: Array, dtype: str | None = None) -> SharedSegment:
        """Return a new segment with the elements of ``source``, which may be a map of a file.

        Args:
            source: an array; bfloat16 is stored as uint16.
            dtype: name of its element type; None for the array's.

        Raises:
            ConfigError: there is not enough memory.
        """
        return cls(SharedMemory.filled(source), source.shape, dtype or source.dtype.name)

    @classmethod
    def of(cls, array: Array, dtype: str | None = None) -> SharedSegment:
        """Return the segment that ``array`` lies in, or a new one with its elements."""
        # Some columns of a matrix are no segment.
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
        """Map the segment of another process, whose file this process has inherited or received.

        Raises:
            ConfigError: the file is read-only, or smaller than ``shape``.
        """
        return cls(SharedMemory(os.dup(descriptor)), shape, dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The element type."""
        return torch_dtype(self.dtype)

    @property
    def tensor(self) -> torch.Tensor:
        """The matrix as a plain tensor of ``shape``, without a copy."""
        count = int(np.prod(self.shape, dtype=np.int64))
        flat = self.bytes[: count * self.torch_dtype.itemsize].view(self.torch_dtype)
        return flat.view(self.shape)

    @property
    def registered(self) -> bool:
        """Whether the GPU reads and writes the segment."""
        return self._unregister is not None

    def register(self, gpu: GpuSide) -> None:
        """Let the GPU of this process read and write the segment; ends with ``unregister``.

        Raises:
            ConfigError: the limit of locked memory is too low.
        """
        if not self.registered:
            register(self.bytes, gpu)
            self._unregister = weakref.finalize(self, gpu.unregister, self.bytes)

    def unregister(self) -> None:
        """End the GPU's access; tensors over the segment are computed with on the CPU only."""
        if self._unregister is not None:
            self._unregister()
            self._unregister = None


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's element type of this name.

    Raises:
        ConfigError: there is no such type.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f"segment: torch has no element type {name}")
    return dtype


def register(memory: torch.Tensor, gpu: GpuSide) -> None:
    """Register mapped host memory ``[num_bytes]`` uint8 with a GPU.

    Raises:
        ConfigError: it is read-only or private, or the limit of locked memory is too low.
        RuntimeError: the GPU does not take it.
    """
    check_shared(memory.data_ptr(), memory.numel())
    try:
        gpu.register(memory)
    except RuntimeError as error:
        raise (_locked_memory_error(memory.numel(), error) or error) from None


def check_shared(address: int, num_bytes: int) -> None:
    """Refuse memory that is not mapped shared and writable.

    A GPU cannot register read-only maps on all systems; of a private map, processes would each
    lock a copy.

    Raises:
        ConfigError: with the reason.
    """
    reached = address
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access = line.split()[:2]
        first, last = (int(end, 16) for end in place.split("-"))
        if not first <= reached < last:
            continue
        if "w" not in access:
            raise ConfigError("unified memory: a read-only map cannot be registered with a GPU")
        if "s" not in access:
            raise ConfigError("unified memory: a private map is a copy, use a shared one")
        reached = last
        if reached >= address + num_bytes:
            return
    raise ConfigError("unified memory: the memory is not mapped")


def _locked_memory_error(num_bytes: int, error: Exception) -> ConfigError | None:
    """Return what names the limit of locked memory, if ``num_bytes`` are above it.

    Whether a driver counts registered memory against it depends on the driver, so that this is
    looked at once registering has failed.
    """
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or num_bytes <= limit:
        return None
    return ConfigError(
        f"unified memory: {num_bytes:,} B cannot be registered with the GPU "
        f"({one_line(error, 80)}), and the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK) is "
        f"{limit:,} B; `ulimit -l unlimited` raises it, features=device and topology=device of the "
        "device need none"
    )
