"""Memory of a GPU that other processes open: CUDA's interprocess communication."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import torch

from gnnscale.backend.base import DeviceError, DeviceMemoryError

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
