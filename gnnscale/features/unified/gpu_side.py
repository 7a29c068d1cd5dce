"""The GPU's side of unified memory: a CUDA device, or the host if kernels run there."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import torch

from gnnscale.core import ConfigError

#: ``gather(rows, index)``: rows ``[n, f]`` and index ``[m]`` on the GPU's side give ``[m, f]``
Gather = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: cudaHostRegisterPortable | cudaHostRegisterMapped
_PORTABLE_AND_MAPPED = 1 | 2


def index_rows(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather by torch's own kernel, whose reads are not aligned."""
    return rows[index]


class GpuSide(Protocol):
    """What a unified tensor needs of a GPU. ``memory`` is ``[num_bytes]`` uint8 of the host."""

    gather: Gather

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the GPU's memory."""

    def register(self, memory: torch.Tensor) -> None:
        """Let the GPU read and write host memory."""

    def unregister(self, memory: torch.Tensor) -> None:
        """End what ``register`` began."""

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return registered or allocated memory as a tensor of the GPU, without a copy."""

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return new host memory that the GPU reads and writes."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor of the host in the GPU's memory."""

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute on the GPU; tensors are the GPU's, or scalars of the host."""

    def synchronize(self) -> None:
        """Wait until the GPU has finished what it was given."""

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return new managed memory; ConfigError above what the GPU has free."""

    def advise(self, memory: torch.Tensor, advice: str, device: torch.device) -> int:
        """Advise the driver about memory (cudaMemAdvise), and return its error code, 0 for none."""


#: Advices of cudaMemAdvise, by the names that PyTorch-Direct gives them, and their numbers.
ADVICE = {
    "SetReadMostly": 1,
    "UnsetReadMostly": 2,
    "SetPreferredLocation": 3,
    "UnsetPreferredLocation": 4,
    "SetAccessedBy": 5,
    "UnsetAccessedBy": 6,
}
#: cudaErrorInvalidValue: the memory is not managed.
INVALID_VALUE = 1


class HostGpuTensor(torch.Tensor):
    """A tensor of the GPU's side, if the host takes the GPU's part."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Results lie on the GPU's side too, unless they are unified."""
        if not all(each in (cls, torch.Tensor) for each in types):
            return NotImplemented  # a unified tensor decides
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.cpu, torch.Tensor.numpy):
            return result
        return _mark(result)


def _mark(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return (
            type(result)(_mark(part) for part in result)
            if type(result) in (tuple, list)
            else (result)
        )
    return result.as_subclass(HostGpuTensor) if type(result) is torch.Tensor else result


class HostSide:
    """The host in the GPU's place: the same memory, the same rules, real results."""

    def __init__(self, *, gather: Gather = index_rows, free_bytes: int = 1 << 30) -> None:
        """Gather by ``gather``; managed memory may have ``free_bytes``."""
        self.gather = gather
        self.num_computed = 0  #: operations computed on the GPU's side
        self._free_bytes = free_bytes
        self._reached: dict[int, int] = {}  # address: bytes
        self._managed: set[int] = set()  # addresses
        self.advised: list[tuple[str, torch.device]] = []  #: advice, in order

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is marked as the GPU's."""
        return isinstance(tensor, HostGpuTensor)

    def register(self, memory: torch.Tensor) -> None:
        """Note that the GPU's side reaches this memory."""
        self._reached[memory.data_ptr()] = memory.numel()

    def unregister(self, memory: torch.Tensor) -> None:
        """Note that it no longer does."""
        del self._reached[memory.data_ptr()]

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the memory, marked; RuntimeError if it is not registered."""
        if self._reached.get(memory.data_ptr(), -1) < memory.numel():
            raise RuntimeError("the GPU cannot reach this memory: it is not registered")
        return memory.as_subclass(HostGpuTensor)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return memory that is reached for as long as a tensor holds it."""
        memory = torch.empty(num_bytes, dtype=torch.uint8)
        self.register(memory)
        return memory

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a marked copy."""
        return tensor.clone().as_subclass(HostGpuTensor)

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute and mark the results."""
        self.num_computed += 1
        return _mark(function(*args, **kwargs))

    def synchronize(self) -> None:
        """Return at once: each operation has finished when it returns."""

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return memory, if it is free."""
        check_free(num_bytes, self._free_bytes)
        memory = self.allocate(num_bytes)
        self._managed.add(memory.data_ptr())
        return memory

    def advise(self, memory: torch.Tensor, advice: str, device: torch.device) -> int:
        """Note the advice about managed memory."""
        if memory.data_ptr() not in self._managed:
            return INVALID_VALUE
        self.advised.append((advice, device))
        return 0


def check_free(num_bytes: int, free_bytes: int) -> None:
    """Refuse managed memory above what the GPU has free, which would move to and fro."""
    if num_bytes > free_bytes:
        raise ConfigError(
            f"managed memory: {num_bytes:,} B exceed the {free_bytes:,} B that the GPU has free"
        )


class _Bytes:
    """Memory that torch takes through ``__cuda_array_interface__``, without a copy."""

    def __init__(self, address: int, num_bytes: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class CudaSide:
    """The current CUDA device. Its calls have not been run on a card."""

    def __init__(self, *, gather: Gather = index_rows) -> None:
        """Use the current device.

        Raises:
            ConfigError: there is no CUDA device.
        """
        if not torch.cuda.is_available():
            raise ConfigError("unified memory: torch finds no CUDA device on this machine")
        self.gather = gather
        self.device = torch.device("cuda", torch.cuda.current_device())

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in a CUDA device's memory."""
        return tensor.is_cuda

    def register(self, memory: torch.Tensor) -> None:
        """Lock the memory and map it for all contexts (cudaHostRegister)."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        result = runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE_AND_MAPPED)
        _check(result, "cudaHostRegister")

    def unregister(self, memory: torch.Tensor) -> None:
        """Unlock it, after the kernels that read it."""
        torch.cuda.synchronize(self.device)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        _check(runtime.cudaHostUnregister(memory.data_ptr()), "cudaHostUnregister")

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the memory at its device address; host and device have one address space."""
        held = _Bytes(memory.data_ptr(), memory.numel(), memory)
        return torch.as_tensor(held, device=self.device)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return pinned memory of torch's allocator, which is recycled (section 4.4)."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the device."""
        return tensor.to(self.device)

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute on the current stream."""
        return function(*args, **kwargs)

    def synchronize(self) -> None:
        """Wait for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return managed memory (cudaMallocManaged), which pages move to and fro.

        Raises:
            ConfigError: the GPU has less memory free, or cuda-bindings is not installed.
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
        """Call cudaMemAdvise."""
        runtime = _runtime()
        location = runtime.cudaMemLocation()
        kinds = runtime.cudaMemLocationType
        on_host = device.type == "cpu"
        location.type = (
            kinds.cudaMemLocationTypeHost if on_host else kinds.cudaMemLocationTypeDevice
        )
        location.id = 0 if on_host else device.index or 0
        asked = runtime.cudaMemoryAdvise(ADVICE[advice])
        (error,) = runtime.cudaMemAdvise(memory.data_ptr(), memory.numel(), asked, location)
        return int(error)


def _check(result: Any, call: str) -> None:
    """Raise what CUDA reports, by its number: its names are not equal to numbers.

    Raises:
        RuntimeError: ``result`` is no success.
    """
    if int(result) != 0:
        raise RuntimeError(f"CUDA error {int(result)} of {call} ({result})")


def _runtime() -> Any:
    """Return the bindings of CUDA's runtime, which the extra ``cuda`` installs.

    Raises:
        ConfigError: they are not there.
    """
    try:
        return import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise ConfigError(
            f"managed memory: needs cuda-bindings, which cannot be imported ({error}); "
            "`pip install 'gnnscale[cuda]'` installs them, registered memory needs none"
        ) from None
