"""GPU side of unified memory: the operations that tensors need, and a CUDA device."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import torch

from gnnscale.core import ConfigError

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
        """Return registered or allocated memory as a GPU tensor, without a copy."""

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return new host memory that the GPU accesses."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a host tensor in the GPU's memory."""

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the function's result on the GPU; tensors are GPU tensors, or host scalars."""

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
    """The current CUDA device. Not verified on hardware."""

    def __init__(self, *, gather: Gather = index_rows) -> None:
        """Use the current device; ConfigError: there is no CUDA device."""
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
        """Unlock the memory, after the kernels that read it."""
        torch.cuda.synchronize(self.device)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        _check(runtime.cudaHostUnregister(memory.data_ptr()), "cudaHostUnregister")

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the memory at its device address, which equals the host address."""
        memory_bytes = _Bytes(memory.data_ptr(), memory.numel(), memory)
        return torch.as_tensor(memory_bytes, device=self.device)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return pinned memory of torch's caching allocator (section 4.4)."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of ``tensor`` on the device."""
        return tensor.to(self.device)

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the function's result, computed on the current stream."""
        return function(*args, **kwargs)

    def synchronize(self) -> None:
        """Wait for the current stream."""
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
    """Raise RuntimeError for a CUDA error, by its number: enum members do not equal numbers."""
    if int(result) != 0:
        raise RuntimeError(f"CUDA error {int(result)} of {call} ({result})")


def _runtime() -> Any:
    """Return the bindings of the CUDA runtime, which the extra ``cuda`` installs."""
    try:
        return import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise ConfigError(
            f"managed memory: expected cuda-bindings, got an import error ({error}); "
            "`pip install 'gnnscale[cuda]'` installs them, registered memory works without"
        ) from None
