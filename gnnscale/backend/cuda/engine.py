"""Kernels, streams and memory of a GPU."""

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
from gnnscale.core import Array, ConfigError, Gpu, Gpus
from gnnscale.features.unified import CudaSide, SharedSegment
from gnnscale.planner import CPU_HINT, Cuda, find_gpu

#: CUDA_IPC_HANDLE_SIZE.
_HANDLE_BYTES = 64


class IpcMemory:
    """GPU memory shared between processes by CUDA IPC, on one GPU or between peers."""

    def __init__(self, pointer: int, num_bytes: int, device: torch.device, *, address: str) -> None:
        """Wrap memory at ``pointer``; ``address`` is its IPC handle, empty for memory of others."""
        self.address = address
        self._pointer = pointer
        self.bytes = torch.as_tensor(_Span(pointer, num_bytes), device=device)  #: uint8

    @classmethod
    def new(cls, num_bytes: int, device: torch.device) -> "IpcMemory":
        """Allocate memory of ``device`` without torch's allocator: IPC shares whole allocations."""
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
    def open(cls, address: str, num_bytes: int, device: torch.device) -> "IpcMemory":
        """Map memory of another process; DeviceError: ``device`` has no access to it."""
        runtime = _runtime()
        handle = runtime.cudaIpcMemHandle_t()
        ctypes.memmove(handle.getPtr(), bytes.fromhex(address), _HANDLE_BYTES)
        flags = runtime.cudaIpcMemLazyEnablePeerAccess
        error, pointer = runtime.cudaIpcOpenMemHandle(handle, flags)
        _check(runtime, error, f"{device}: the cache of a peer")
        return cls(int(pointer), num_bytes, device, address="")

    def close(self) -> None:
        """Free the memory if it was allocated here, or unmap the memory of another process."""
        runtime = _runtime()
        free = runtime.cudaFree if self.address else runtime.cudaIpcCloseMemHandle
        (error,) = free(self._pointer)
        _check(runtime, error, "memory of a cache")


class _Span:
    """Range of GPU memory, in the form from which torch makes a tensor without a copy."""

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


def check_gpu(index: int, *, memory_bytes: int | None = None) -> Gpu:
    """Return GPU ``index`` of ``CUDA_VISIBLE_DEVICES``, if it can train.

    ``memory_bytes`` of None: all free memory. Raises ConfigError if the GPU is missing, or another
    process occupies it or too much of its memory; or the driver, torch, NVRTC or cuda-core is
    missing or too old.
    """
    gpu, gpus = find_gpu(index, memory_bytes=memory_bytes)
    _check_torch(gpus)
    load_core()
    return gpu


def _check_torch(gpus: Gpus) -> None:
    """Raise ConfigError if torch is built without CUDA, or for a newer CUDA than the driver's."""
    built_for = torch.version.cuda
    if built_for is None:
        raise ConfigError(
            f"device_plan: torch {torch.__version__} is built without CUDA; https://pytorch.org "
            f"says how to install one with CUDA {gpus.cuda[0]}; {CPU_HINT}"
        )
    if int(built_for.partition(".")[0]) > gpus.cuda[0]:
        raise ConfigError(
            f"device_plan: the NVIDIA driver {gpus.driver} runs CUDA up to {gpus.cuda[0]}."
            f"{gpus.cuda[1]}, and torch is built for CUDA {built_for}; a newer driver or another "
            f"torch goes with it; {CPU_HINT}"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryPiece:
    """Device memory that other processes can open."""

    bytes: torch.Tensor  #: ``[num_bytes]`` uint8 on the device
    address: str  #: argument of ``open_memory`` in the other process


class Engine(Protocol):
    """Interface to a GPU: ``CudaEngine``, or ``HostEngine`` which emulates one on the host."""

    kernels: Kernels
    device: torch.device
    memory_bytes: int

    def stream(self) -> Stream:
        """Return a new stream."""

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ``[size]`` zeros in page-locked host memory, so that copies are asynchronous."""

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array``, or a copy, as a tensor of ``dtype`` in host memory that kernels read.

        A bfloat16 ``array`` is given as uint16.
        """

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return uninitialized host memory that kernels and the host read and write."""

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Return device memory that other devices' workers can open, until the engine is closed."""

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Return ``[num_bytes]`` uint8 of another worker's device memory, for reading."""

    def collective(self, work: Callable[[], None], keep_alive: object) -> None:
        """Run ``work``, a collective operation, on the current stream.

        A recording of the stream keeps ``keep_alive``, the tensors of ``work``, alive.
        """

    def synchronize(self) -> None:
        """Wait for device work outside of the engine's streams, which do not wait for it."""

    def free_bytes(self) -> int:
        """Return the device memory in bytes that can still be allocated."""

    def peak_bytes(self) -> int:
        """Return the peak use of device memory in bytes."""

    def close(self) -> None:
        """Unregister host memory, and close device memory of ``memory`` and ``open_memory``."""


class CudaEngine:
    """GPU of this machine with a memory budget."""

    def __init__(self, device: Cuda, *, limits: bool = True) -> None:
        """Open the GPU, and set TF32 for the process.

        ``limits``: ``check_gpu`` checks the GPU, and torch's allocator, for the full process, is
        limited to the budget. False: another engine has done so.
        """
        if limits:  # otherwise this process may itself be the one that occupies the GPU
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
        """Return ``[size]`` zeros in page-locked host memory."""
        return torch.zeros(size, dtype=dtype, pin_memory=True)

    def reached(self, array: Array, dtype: torch.dtype) -> torch.Tensor:
        """Return ``array``, or a copy, in shared memory that the GPU reads until ``close``.

        It is copied unless it is in shared memory already.
        """
        return self._register(SharedSegment.of(array, _name(dtype)))

    def shared(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return host memory of zeros that the host and the GPU read and write, until ``close``."""
        return self._register(SharedSegment.empty(shape, _name(dtype)))

    def memory(self, num_bytes: int) -> MemoryPiece:
        """Allocate memory outside torch's allocator, whose budget shrinks by ``num_bytes``.

        DeviceMemoryError: it exceeds the free bytes of the budget.
        """
        if num_bytes > self.free_bytes():
            raise DeviceMemoryError(
                f"{self.device}: a cache of {num_bytes / 1e6:,.1f} MB does not fit into "
                f"{self.free_bytes() / 1e6:,.1f} MB of free memory; a smaller "
                "cache_planner.budget_bytes or ratio does"
            )
        piece = IpcMemory.new(num_bytes, self.device)
        self._pieces.append(piece)
        self.memory_bytes -= num_bytes
        self._limit()
        return MemoryPiece(bytes=piece.bytes, address=piece.address)

    def open_memory(self, address: str, num_bytes: int) -> torch.Tensor:
        """Map the memory that another process has allocated; ``address`` is its CUDA IPC handle."""
        self._pieces.append(IpcMemory.open(address, num_bytes, self.device))
        return self._pieces[-1].bytes

    def collective(self, work: Callable[[], None], keep_alive: object) -> None:
        """Run ``work``, which queues NCCL operations; a CUDA graph can record them.

        ``keep_alive`` is unused.
        """
        work()

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.device)

    def free_bytes(self) -> int:
        """Return the bytes of the budget that torch's allocator does not use."""
        return max(self.memory_bytes - torch.cuda.memory_allocated(self.device), 0)

    def peak_bytes(self) -> int:
        """Return the peak bytes of torch's allocator."""
        return torch.cuda.max_memory_allocated(self.device)

    def close(self) -> None:
        """Unregister shared memory, free the device's caches, and unmap those of peers.

        Failures are ignored.
        """
        for segment in self._segments:
            with suppress(RuntimeError):
                segment.unregister()
        self._segments.clear()
        for piece in self._pieces:
            with suppress(DeviceError):
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
