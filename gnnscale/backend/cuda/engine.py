"""Kernels, streams and memory of a GPU, or of the host that stands for one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import torch

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.kernels import CompiledKernels, Kernels, load_core
from gnnscale.backend.cuda.streams import CudaStream, Stream
from gnnscale.core import Array, ConfigError
from gnnscale.core import gpu as nvml
from gnnscale.features.unified import CudaSide, SharedSegment
from gnnscale.planner import Cuda
from gnnscale.planner.cuda_spec import OTHERWISE, find_gpu

#: Bytes of a handle (CUDA_IPC_HANDLE_SIZE).
_HANDLE_BYTES = 64


class IpcMemory:
    """A piece of a GPU's memory: this process's own, or another's, on the same GPU or on a peer."""

    def __init__(self, pointer: int, num_bytes: int, device: torch.device, *, address: str) -> None:
        """Know a piece; ``address`` is empty for another process's."""
        self.address = address
        self._pointer = pointer
        self.bytes = torch.as_tensor(_Span(pointer, num_bytes), device=device)  #: uint8

    @classmethod
    def new(cls, num_bytes: int, device: torch.device) -> IpcMemory:
        """Take memory of ``device``, beside torch's allocator: a whole allocation is shared.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        runtime = _runtime()
        error, pointer = runtime.cudaMalloc(num_bytes)
        if error == runtime.cudaError_t.cudaErrorMemoryAllocation:
            raise DeviceMemoryError(
                f"{device}: a cache of {num_bytes / 1e6:,.1f} MB does not fit into device memory"
            )
        _check(runtime, error, f"{device}: memory of a cache")
        error, handle = runtime.cudaIpcGetMemHandle(pointer)
        _check(runtime, error, f"{device}: the address of a cache")
        words = ctypes.string_at(handle.getPtr(), _HANDLE_BYTES)
        return cls(int(pointer), num_bytes, device, address=words.hex())

    @classmethod
    def open(cls, address: str, num_bytes: int, device: torch.device) -> IpcMemory:
        """Map another process's piece.

        Raises:
            DeviceError: ``device`` cannot reach it.
        """
        runtime = _runtime()
        handle = runtime.cudaIpcMemHandle_t()
        ctypes.memmove(handle.getPtr(), bytes.fromhex(address), _HANDLE_BYTES)
        flags = runtime.cudaIpcMemLazyEnablePeerAccess
        error, pointer = runtime.cudaIpcOpenMemHandle(handle, flags)
        _check(runtime, error, f"{device}: the cache of a peer")
        return cls(int(pointer), num_bytes, device, address="")

    def close(self) -> None:
        """Give the memory back, or unmap it.

        Raises:
            RuntimeError: CUDA refuses.
        """
        runtime = _runtime()
        free = runtime.cudaFree if self.address else runtime.cudaIpcCloseMemHandle
        (error,) = free(self._pointer)
        _check(runtime, error, "memory of a cache")


class _Span:
    """Memory that torch takes as a tensor without a copy."""

    def __init__(self, pointer: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def _runtime() -> Any:
    return import_module("cuda.bindings.runtime")


def _check(runtime: Any, error: Any, what: str) -> None:
    if error != runtime.cudaError_t.cudaSuccess:
        _, text = runtime.cudaGetErrorString(error)
        raise DeviceError(f"{what}: CUDA reports: {text.decode()}")


def check_gpu(index: int, *, memory_bytes: int | None = None) -> nvml.Gpu:
    """Return a GPU that can be trained on.

    Args:
        index: among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        memory_bytes: of its memory that are to be used; None for what is free.

    Raises:
        ConfigError: there is no such GPU, another process has it, or too much of its memory; or the
            driver, torch, NVRTC or cuda-core is missing or too old.
    """
    gpu, found = find_gpu(index, memory_bytes=memory_bytes)
    _check_torch(found)
    load_core()
    return gpu


def _check_torch(found: nvml.Gpus) -> None:
    """Refuse a torch without CUDA, and one whose CUDA the driver is too old for.

    A driver runs all minor versions of its CUDA's major version.
    """
    built_for = torch.version.cuda
    if built_for is None:
        raise ConfigError(
            f"device_plan: torch {torch.__version__} is built without CUDA; https://pytorch.org "
            f"says how to install one with CUDA {found.cuda[0]}; {OTHERWISE}"
        )
    if int(built_for.partition(".")[0]) > found.cuda[0]:
        raise ConfigError(
            f"device_plan: the NVIDIA driver {found.driver} runs CUDA up to {found.cuda[0]}."
            f"{found.cuda[1]}, and torch is built for CUDA {built_for}; a newer driver or another "
            f"torch goes with it; {OTHERWISE}"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryPiece:
    """Device memory that other processes may open."""

    bytes: torch.Tensor  #: ``[num_bytes]`` uint8 on the device
    address: str  #: what they open it by


class Engine(Protocol):
    """A GPU, or the host that stands for it."""

    kernels: Kernels  #: of the device
    device: torch.device  #: on which tensors lie
    memory_bytes: int  #: of its memory that may be taken

    def stream(self) -> Stream:
        """Return a new stream."""
        ...

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ``[size]`` in host memory that copies to and from the device do not wait for."""
        ...

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array`` in host memory that kernels read, registered if it was not before.

        Args:
            dtype: of its elements; bfloat16 is carried by uint16.
        """
        ...

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return host memory that kernels and the host read and write."""
        ...

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Return device memory that workers of other devices may open, until ``close``.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        ...

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Return ``[num_bytes]`` uint8 in the memory of another worker's device, to be read.

        Raises:
            DeviceError: the device cannot reach it.
        """
        ...

    def collective(self, work: Callable[[], None], held: object) -> None:
        """Do, on the current stream, what other devices take part in.

        Args:
            held: what must live as long as a recording of it.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all that was begun outside of streams; those do not wait for it."""
        ...

    def free_bytes(self) -> int:
        """Return how much device memory may still be taken."""
        ...

    def peak_bytes(self) -> int:
        """Return how much device memory was in use at once at most."""
        ...

    def close(self) -> None:
        """End the device's access to host memory."""
        ...


class CudaEngine:
    """A GPU of this machine, of whose memory no more than a budget is taken."""

    def __init__(self, device: Cuda, *, limits: bool = True) -> None:
        """Open the GPU.

        Args:
            limits: whether torch's allocator takes no more than the budget, for all of the process;
                another engine has set it otherwise.

        Raises:
            ConfigError: it is not there, is taken, or has less memory free than ``memory_bytes``;
                or the driver, torch, NVRTC or cuda-core is missing or too old.
        """
        if limits:  # this process may be the one that has the GPU for itself by now
            check_gpu(device.index, memory_bytes=device.memory_bytes)
        self.device = torch.device("cuda", device.index)
        torch.cuda.set_device(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        self.memory_bytes = free if device.memory_bytes is None else device.memory_bytes
        self._total_bytes = total
        if limits:
            self._limit()
        torch.backends.cuda.matmul.allow_tf32 = device.tf32
        self.kernels: Kernels = CompiledKernels(device.index)
        self._side = CudaSide()
        self._segments: list[SharedSegment] = []
        self._pieces: list[IpcMemory] = []

    def stream(self) -> Stream:
        """Return a new stream."""
        return CudaStream(self.device)

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return page-locked host memory."""
        return torch.zeros(size, dtype=dtype, pin_memory=True)

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array`` in a segment that the GPU reads: its own, or a new one with a copy.

        Raises:
            ConfigError: it cannot be registered: more memory would be locked than may be.
        """
        return self._register(SharedSegment.of(array, _name(dtype)))

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a segment that the GPU reads and writes, until ``close``."""
        return self._register(SharedSegment.empty(shape, _name(dtype)))

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Return memory beside torch's allocator, whose budget it lowers."""
        if num_bytes > self.free_bytes():
            raise DeviceMemoryError(
                f"{self.device}: a cache of {num_bytes / 1e6:,.1f} MB does not fit, "
                f"{self.free_bytes() / 1e6:,.1f} MB of its memory are left; a smaller "
                "cache_planner.budget_bytes or ratio does"
            )
        piece = IpcMemory.new(num_bytes, self.device)
        self._pieces.append(piece)
        self.memory_bytes -= num_bytes
        self._limit()
        return MemoryPiece(bytes=piece.bytes, address=piece.address)

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Return the memory of another process (CUDA IPC)."""
        self._pieces.append(IpcMemory.open(address, num_bytes, self.device))
        return self._pieces[-1].bytes

    def collective(self, work: Callable[[], None], held: object) -> None:
        """Queue what NCCL does, which a CUDA graph records."""
        work()

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.device)

    def free_bytes(self) -> int:
        """Return what the budget leaves beside torch's allocator."""
        return max(self.memory_bytes - torch.cuda.memory_allocated(self.device), 0)

    def peak_bytes(self) -> int:
        """Return the peak of torch's allocator."""
        return torch.cuda.max_memory_allocated(self.device)

    def close(self) -> None:
        """Unregister all segments; after a failure of the GPU their end is the process's."""
        for segment in self._segments:
            with suppress(RuntimeError):
                segment.unregister()
        self._segments.clear()
        for piece in self._pieces:
            with suppress(RuntimeError):
                piece.close()
        self._pieces.clear()

    def _limit(self) -> None:
        part = min(self.memory_bytes / self._total_bytes, 1.0)
        torch.cuda.set_per_process_memory_fraction(part, self.device)

    def _register(self, segment: SharedSegment) -> torch.Tensor:
        segment.register(self._side)
        self._segments.append(segment)
        return segment.tensor


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
