"""Tensors in host memory that the processor and a GPU compute with alike (PyTorch-Direct, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import get_default_nowrap_functions

from gnnscale.core import Array, check_choice
from gnnscale.features.unified.gpu_side import ADVICE, GpuSide
from gnnscale.features.unified.placement import Output, Placement, place
from gnnscale.features.unified.segment import SharedSegment

_T = torch.Tensor
_METHODS = "size dim numel nelement stride data_ptr storage_offset is_contiguous element_size"
_PROPERTIES = "shape dtype requires_grad ndim nbytes itemsize layout _version"
#: What is asked of a tensor that is no operation on its values.
_PLAIN = get_default_nowrap_functions() | {
    *(getattr(_T, name) for name in _METHODS.split()),
    *(getattr(_T, name).__get__ for name in _PROPERTIES.split()),
    *(_T.untyped_storage, _T.__len__, _T.is_floating_point),
}
#: What brings values to the processor.
_READS = {_T.item, _T.tolist, _T.numpy, _T.__bool__, _T.__int__, _T.__float__}
_READS |= {_T.__index__, _T.__repr__, _T.__str__, _T.__format__, _T.__array__}


@dataclass(frozen=True, kw_only=True)
class _UnifiedMemory:
    """Memory of both sides that a tensor lies in."""

    bytes: torch.Tensor  #: ``[num_bytes]`` uint8 of the host
    gpu: GpuSide
    owner: object = None  #: lives as long


class UnifiedTensor(torch.Tensor):
    """A tensor of the host's memory that kernels of a GPU read and write directly.

    It holds data, and no gradient. What is computed with it, on which side, and what the result is,
    follows table 3 of PyTorch-Direct. A view is a unified tensor of the same memory.
    """

    _memory: _UnifiedMemory
    _propagated: bool

    @staticmethod
    def copy_of(
        values: torch.Tensor | Array, gpu: GpuSide, *, propagated_to_cuda: bool = True
    ) -> UnifiedTensor:
        """Return a copy of ``values`` in memory that ``gpu`` allocates for both sides."""
        source = torch.as_tensor(values)
        out = empty(source.shape, source.dtype, gpu, propagated_to_cuda=propagated_to_cuda)
        plain(out).copy_(plain(source))
        return out

    @staticmethod
    def over(
        segment: SharedSegment, gpu: GpuSide, *, propagated_to_cuda: bool = True
    ) -> UnifiedTensor:
        """Return the matrix of a segment, registered with ``gpu``, without a copy.

        Raises:
            ConfigError: the limit of locked memory is too low.
        """
        segment.register(gpu)
        memory = _UnifiedMemory(bytes=segment.bytes, gpu=gpu, owner=segment)
        return _wrap(segment.tensor, memory, propagated_to_cuda)

    @property
    def is_unified(self) -> bool:
        """Whether it is a unified tensor: it is."""
        return True

    @property
    def propagated_to_cuda(self) -> bool:
        """Whether it prefers the GPU as the place of computation (section 4.3)."""
        return self._propagated

    def set_propagated_to_cuda(self, preferred: bool) -> None:
        """Switch the preference; nothing is moved."""
        self._propagated = preferred

    def mem_advise(self, advice: str, device: torch.device | str) -> int:
        """Advise the driver about its memory, and return cudaMemAdvise's error code, 0 for none.

        Memory that is registered, and not managed, has another code than 0.

        Args:
            advice: one of ``ADVICE``, as in ``SetPreferredLocation``.
            device: that the advice is about.

        Raises:
            ConfigError: there is no such advice.
        """
        check_choice("advice", advice, ADVICE)
        return self._memory.gpu.advise(self._memory.bytes, advice, torch.device(device))

    def requires_grad_(self, requires_grad: bool = True) -> UnifiedTensor:
        """Refuse a gradient.

        Raises:
            RuntimeError: one is asked for.
        """
        if requires_grad:
            raise RuntimeError("a unified tensor holds data, and no gradient; .cpu() copies it")
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute ``func`` on the side that table 3 names."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _PLAIN:
                return func(*args, **kwargs)
            if func in (_T.to, _T.cuda, _T.cpu):
                return _moved(func, args, kwargs)
            if func in _READS:
                args[0]._memory.gpu.synchronize()
                return func(plain(args[0]), *args[1:], **kwargs)
            return _computed(func, args, kwargs)


def is_unified(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is unified (table 1)."""
    return isinstance(tensor, UnifiedTensor)


def set_propagated_to_cuda(tensor: torch.Tensor, preferred: bool) -> None:
    """Switch the preference of a unified tensor (table 2).

    Raises:
        RuntimeError: ``tensor`` is another one.
    """
    _unified(tensor, "set_propagated_to_cuda").set_propagated_to_cuda(preferred)


def mem_advise(tensor: torch.Tensor, advice: str, device: torch.device | str) -> int:
    """Advise the driver about a unified tensor's memory (table 2); see its method.

    Raises:
        RuntimeError: ``tensor`` is another one.
    """
    return _unified(tensor, "mem_advise").mem_advise(advice, device)


def empty(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    gpu: GpuSide,
    *,
    propagated_to_cuda: bool = True,
    managed: bool = False,
) -> UnifiedTensor:
    """Return a new unified tensor, whose values are anything.

    Args:
        managed: whether its pages move to the side that touches them (cudaMallocManaged).

    Raises:
        ConfigError: managed memory is above what the GPU has free.
    """
    num_bytes = max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1)
    found = gpu.allocate_managed(num_bytes) if managed else gpu.allocate(num_bytes)
    used = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    values = found[:used].view(dtype).view(shape)
    return _wrap(values, _UnifiedMemory(bytes=found, gpu=gpu), propagated_to_cuda)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a unified tensor as one of the host, of the same memory; another as it is."""
    if not isinstance(tensor, UnifiedTensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _unified(tensor: torch.Tensor, what: str) -> UnifiedTensor:
    if not isinstance(tensor, UnifiedTensor):
        raise RuntimeError(f"{what}: the tensor is on {tensor.device}, and not unified")
    return tensor


def _wrap(values: torch.Tensor, memory: _UnifiedMemory, propagated: bool) -> UnifiedTensor:
    out = values.as_subclass(UnifiedTensor)
    out._memory, out._propagated = memory, propagated
    return out


def _moved(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return a copy on another device, or in another type."""
    tensor, rest = args[0], args[1:]
    target = kwargs.get("device", rest[0] if rest else None)
    if func is _T.cuda or (isinstance(target, str | torch.device) and "cuda" in str(target)):
        return tensor._memory.gpu.copy(plain(tensor))
    if isinstance(target, torch.dtype) or (target is None and "dtype" in kwargs):
        return _computed(func, args, kwargs)
    tensor._memory.gpu.synchronize()
    copied = plain(tensor).clone()
    return copied if func is _T.cpu else func(copied, *rest, **kwargs)


def _computed(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation."""
    operands = list(_tensors((args, kwargs)))
    unified = [each for each in operands if isinstance(each, UnifiedTensor)]
    gpu = unified[0]._memory.gpu
    others = [each for each in operands if not isinstance(each, UnifiedTensor)]
    placed = place(
        has_cpu=any(not gpu.owns(each) and each.dim() > 0 for each in others),
        has_gpu=any(gpu.owns(each) for each in others),
        prefers=[each.propagated_to_cuda for each in unified],
    )
    if placed.on_gpu:
        result = _on_gpu(func, args, kwargs, gpu)
    else:
        gpu.synchronize()
        result = func(*_each(args, plain), **_each(kwargs, plain))
    return _each(result, lambda each: _placed(each, placed, unified))


def _on_gpu(func: Any, args: Any, kwargs: dict[str, Any], gpu: GpuSide) -> Any:
    """Let the GPU compute; unified operands are read and written as they lie."""

    def reach(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, UnifiedTensor):
            return _mapped(tensor)
        return tensor if gpu.owns(tensor) or tensor.dim() == 0 else gpu.copy(tensor)

    index = args[1] if len(args) > 1 else None
    if func is _T.__getitem__ and isinstance(index, torch.Tensor) and _takes_rows(args[0], index):
        rows = reach(index)
        wrapped = rows + (rows < 0) * len(args[0])
        return gpu.run(gpu.gather, (_mapped(args[0]), wrapped), {})
    return gpu.run(func, _each(args, reach), _each(kwargs, reach))


def _takes_rows(x: torch.Tensor, index: torch.Tensor) -> bool:
    """Whether ``x[index]`` gathers rows of a matrix, which kernels do from line to line."""
    whole = index.dtype in (torch.int32, torch.int64) and index.dim() == 1
    return whole and x.dim() == 2 and plain(x).is_contiguous()


def _mapped(tensor: UnifiedTensor) -> torch.Tensor:
    """Return the GPU's tensor of the same memory."""
    memory, own = tensor._memory, plain(tensor)
    offset = own.data_ptr() - memory.bytes.data_ptr()
    whole = memory.gpu.map(memory.bytes)
    size = own.element_size()
    typed = whole[offset % size :][: (whole.numel() - offset % size) // size * size].view(own.dtype)
    return typed.as_strided(own.shape, own.stride(), offset // size)


def _placed(result: torch.Tensor, placed: Placement, operands: list[UnifiedTensor]) -> torch.Tensor:
    """Return a result as what table 3 says; one that lies in an operand's memory stays there."""
    for each in operands:
        memory = each._memory.bytes
        inside = memory.data_ptr() <= result.data_ptr() < memory.data_ptr() + memory.numel()
        if inside and result.numel():
            if plain(each).data_ptr() == result.data_ptr() and each.shape == result.shape:
                return each
            own = plain(each)
            shift = (result.data_ptr() - own.data_ptr()) // own.element_size()
            view = own.as_strided(result.shape, result.stride(), own.storage_offset() + shift).view(
                result.dtype
            )
            return _wrap(view, each._memory, each._propagated)
    if placed.output is Output.GPU:
        return result
    gpu = operands[0]._memory.gpu
    out = empty(result.shape, result.dtype, gpu, propagated_to_cuda=placed.propagated_to_cuda)
    if placed.on_gpu:
        gpu.run(_T.copy_, (_mapped(out), result), {})
        gpu.synchronize()
    else:
        plain(out).copy_(result)
    return out


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for each in values:
            yield from _tensors(each)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _each(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Change the tensors among ``values``, and leave what else there is."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if type(values) in (tuple, list):
        return type(values)(_each(value, change) for value in values)
    if (isinstance(values, tuple) and hasattr(values, "_fields")) or _is_return_type(values):
        return type(values)([_each(value, change) for value in values])
    if isinstance(values, dict):
        return {name: _each(value, change) for name, value in values.items()}
    return values


def _is_return_type(values: Any) -> bool:
    """Whether it is one of torch's results of several values, as that of ``max`` over rows."""
    return isinstance(values, tuple) and type(values).__module__ == "torch.return_types"
