"""The host in place of a GPU, for unified memory without a device."""

from collections.abc import Callable
from typing import Any

import torch

from gnnscale.features.unified.segment import Gather, check_free, index_rows

#: cudaErrorInvalidValue: the memory is not managed.
INVALID_VALUE = 1


class HostGpuTensor(torch.Tensor):
    """Tensor of the GPU side when the host stands in for the GPU."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Mark results as GPU tensors, unless an operand is unified."""
        if not all(kind in (cls, torch.Tensor) for kind in types):
            return NotImplemented  # the unified tensor places the operation
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.cpu, torch.Tensor.numpy):
            return result
        return _mark(result)


def _mark(result: Any) -> Any:
    if type(result) in (tuple, list):
        return type(result)(_mark(part) for part in result)
    return result.as_subclass(HostGpuTensor) if type(result) is torch.Tensor else result


class HostSide:
    """Host in place of a GPU: equal memory, equal rules, real results."""

    def __init__(self, *, gather: Gather = index_rows, free_bytes: int = 1 << 30) -> None:
        """Gather with ``gather``; managed memory is limited to ``free_bytes``."""
        self.gather = gather
        self.num_computed = 0  #: operations computed on the GPU side
        self._free_bytes = free_bytes
        self._registered: dict[int, int] = {}  # bytes by address
        self._managed: set[int] = set()  # addresses
        self.advised: list[tuple[str, torch.device]] = []  #: all advices, in order

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is marked as a GPU tensor."""
        return isinstance(tensor, HostGpuTensor)

    def register(self, memory: torch.Tensor) -> None:
        """Register the memory."""
        self._registered[memory.data_ptr()] = memory.numel()

    def unregister(self, memory: torch.Tensor) -> None:
        """Unregister the memory."""
        del self._registered[memory.data_ptr()]

    def map(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the memory, marked; raise RuntimeError if it is not registered."""
        if self._registered.get(memory.data_ptr(), -1) < memory.numel():
            raise RuntimeError("the GPU cannot reach this memory: it is not registered")
        return memory.as_subclass(HostGpuTensor)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return registered memory."""
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
        """Return at once: operations are synchronous."""

    def allocate_managed(self, num_bytes: int) -> torch.Tensor:
        """Return managed memory; raise ConfigError above ``free_bytes``."""
        check_free(num_bytes, self._free_bytes)
        memory = self.allocate(num_bytes)
        self._managed.add(memory.data_ptr())
        return memory

    def advise(self, memory: torch.Tensor, advice: str, device: torch.device) -> int:
        """Record the advice about managed memory."""
        if memory.data_ptr() not in self._managed:
            return INVALID_VALUE
        self.advised.append((advice, device))
        return 0
