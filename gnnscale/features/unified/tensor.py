"""Tensors in host memory of CPU and GPU, and torch's device of them (PyTorch-Direct, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions

from gnnscale.core import Array, check_choice
from gnnscale.features.unified.segment import ADVICE, GpuSide, SharedSegment

_T = torch.Tensor
_METHODS = "size dim numel nelement stride data_ptr storage_offset is_contiguous element_size"
_PROPERTIES = "shape dtype requires_grad ndim nbytes itemsize layout _version"
#: Functions that read metadata, not values.
_PLAIN = get_default_nowrap_functions() | {
    *(getattr(_T, name) for name in _METHODS.split()),
    *(getattr(_T, name).__get__ for name in _PROPERTIES.split()),
    *(_T.untyped_storage, _T.__len__, _T.is_floating_point),
}
#: Functions that return values to the CPU.
_READS = {_T.item, _T.tolist, _T.numpy, _T.__bool__, _T.__int__, _T.__float__}
_READS |= {_T.__index__, _T.__repr__, _T.__str__, _T.__format__, _T.__array__}


@dataclass(frozen=True, kw_only=True)
class _UnifiedMemory:
    """Unified memory of a tensor and its views."""

    bytes: torch.Tensor  #: ``[num_bytes]`` uint8 on the host
    gpu: GpuSide
    owner: object = None  #: object that must outlive the memory


class UnifiedTensor(torch.Tensor):
    """Tensor in host memory that GPU kernels read and write directly.

    It has no gradient. Table 3 of PyTorch-Direct decides where an operation on it runs, and the
    memory of the result. A view is a unified tensor of the same memory.

    Example::

        features = UnifiedTensor.copy_of(rows, gpu)
        batch = features[index]  # gathered by the GPU from host memory
        features.set_propagated_to_cuda(False)  # prefer the CPU from now on
    """

    _memory: _UnifiedMemory
    _propagated: bool

    @staticmethod
    def copy_of(
        values: torch.Tensor | Array, gpu: GpuSide, *, propagated_to_cuda: bool = True
    ) -> UnifiedTensor:
        """Return a copy of ``values`` in memory that ``gpu`` allocates."""
        source = torch.as_tensor(values)
        out = empty(source.shape, source.dtype, gpu, propagated_to_cuda=propagated_to_cuda)
        plain(out).copy_(plain(source))
        return out

    @staticmethod
    def over(
        segment: SharedSegment, gpu: GpuSide, *, propagated_to_cuda: bool = True
    ) -> UnifiedTensor:
        """Register ``segment`` with ``gpu``, and return a unified tensor over its matrix."""
        segment.register(gpu)
        memory = _UnifiedMemory(bytes=segment.bytes, gpu=gpu, owner=segment)
        return _wrap(segment.tensor, memory, propagated_to_cuda)

    @property
    def is_unified(self) -> bool:
        """True, as for every unified tensor (table 1)."""
        return True

    @property
    def propagated_to_cuda(self) -> bool:
        """Whether operations prefer the GPU (section 4.3)."""
        return self._propagated

    def set_propagated_to_cuda(self, preferred: bool) -> None:
        """Set whether operations prefer the GPU; no data moves."""
        self._propagated = preferred

    def mem_advise(self, advice: str, device: torch.device | str) -> int:
        """Advise the driver about the memory, and return cudaMemAdvise's error code; 0: success.

        ``advice`` is one of ``ADVICE``, e.g. ``SetPreferredLocation``. Registered memory is not
        managed and gives a nonzero code. ConfigError: the advice is unknown.
        """
        check_choice("advice", advice, ADVICE)
        return self._memory.gpu.advise(self._memory.bytes, advice, torch.device(device))

    def requires_grad_(self, requires_grad: bool = True) -> UnifiedTensor:
        """Refuse a gradient; RuntimeError: ``requires_grad`` is True."""
        if requires_grad:
            raise RuntimeError("a unified tensor has no gradient; .cpu() copies it")
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute ``func`` where table 3 says, on CPU or GPU; reads of values wait for the GPU."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _PLAIN:
                return func(*args, **kwargs)
            if func in (_T.to, _T.cuda, _T.cpu):
                return _copy_to(func, args, kwargs)
            if func in _READS:
                args[0]._memory.gpu.synchronize()
                return func(plain(args[0]), *args[1:], **kwargs)
            return _compute(func, args, kwargs)


def is_unified(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is unified (table 1)."""
    return isinstance(tensor, UnifiedTensor)


def set_propagated_to_cuda(tensor: torch.Tensor, preferred: bool) -> None:
    """Set whether a tensor's operations prefer the GPU; RuntimeError: it is not unified."""
    _unified(tensor, "set_propagated_to_cuda").set_propagated_to_cuda(preferred)


def mem_advise(tensor: torch.Tensor, advice: str, device: torch.device | str) -> int:
    """Advise the driver about a tensor's memory (table 2); RuntimeError: it is not unified."""
    return _unified(tensor, "mem_advise").mem_advise(advice, device)


def empty(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    gpu: GpuSide,
    *,
    propagated_to_cuda: bool = True,
    managed: bool = False,
) -> UnifiedTensor:
    """Return a new unified tensor with uninitialized values.

    With ``managed``, pages migrate to the side that touches them (cudaMallocManaged). ConfigError:
    managed memory exceeds the GPU's free memory.
    """
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    allocate = gpu.allocate_managed if managed else gpu.allocate
    memory = allocate(max(num_bytes, 1))
    values = memory[:num_bytes].view(dtype).view(shape)
    return _wrap(values, _UnifiedMemory(bytes=memory, gpu=gpu), propagated_to_cuda)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a unified tensor as a CPU tensor of its memory; other tensors are unchanged."""
    if not isinstance(tensor, UnifiedTensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _unified(tensor: torch.Tensor, function: str) -> UnifiedTensor:
    if not isinstance(tensor, UnifiedTensor):
        raise RuntimeError(f"{function}: expected a unified tensor, got one on {tensor.device}")
    return tensor


def _wrap(values: torch.Tensor, memory: _UnifiedMemory, propagated: bool) -> UnifiedTensor:
    out = values.as_subclass(UnifiedTensor)
    out._memory, out._propagated = memory, propagated
    return out


def _copy_to(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of ``to``, ``cpu`` or ``cuda``: a copy on a device, or in another type."""
    tensor, options = args[0], args[1:]
    target = kwargs.get("device", options[0] if options else None)
    if func is _T.cuda or (isinstance(target, str | torch.device) and "cuda" in str(target)):
        return tensor._memory.gpu.copy(plain(tensor))
    if isinstance(target, torch.dtype) or (target is None and "dtype" in kwargs):
        return _compute(func, args, kwargs)
    tensor._memory.gpu.synchronize()
    copied = plain(tensor).clone()
    return copied if func is _T.cpu else func(copied, *options, **kwargs)


def _compute(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of an operation, on the side and in the memory that table 3 names."""
    operands = list(_tensors((args, kwargs)))
    unified = [tensor for tensor in operands if isinstance(tensor, UnifiedTensor)]
    gpu = unified[0]._memory.gpu
    plain_operands = [tensor for tensor in operands if not isinstance(tensor, UnifiedTensor)]
    placement = place(
        has_cpu=any(not gpu.owns(tensor) and tensor.dim() > 0 for tensor in plain_operands),
        has_gpu=any(gpu.owns(tensor) for tensor in plain_operands),
        prefers=[tensor.propagated_to_cuda for tensor in unified],
    )
    if placement.on_gpu:
        result = _on_gpu(func, args, kwargs, gpu)
    else:
        gpu.synchronize()
        result = func(*_map_tensors(args, plain), **_map_tensors(kwargs, plain))
    return _map_tensors(result, lambda tensor: _place_result(tensor, placement, unified))


def _on_gpu(func: Any, args: Any, kwargs: dict[str, Any], gpu: GpuSide) -> Any:
    """Return the result of ``func`` on the GPU; CPU operands, except scalars, are copied there."""

    def to_gpu(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, UnifiedTensor):
            return _mapped(tensor)
        return tensor if gpu.owns(tensor) or tensor.dim() == 0 else gpu.copy(tensor)

    index = args[1] if len(args) > 1 else None
    if func is _T.__getitem__ and isinstance(index, torch.Tensor) and _gathers(args[0], index):
        rows = to_gpu(index)
        wrapped = rows + (rows < 0) * len(args[0])
        return gpu.run(gpu.gather, (_mapped(args[0]), wrapped), {})
    return gpu.run(func, _map_tensors(args, to_gpu), _map_tensors(kwargs, to_gpu))


def _gathers(x: torch.Tensor, index: torch.Tensor) -> bool:
    """Whether ``x[index]`` is a row gather: 1-D integer ``index``, contiguous matrix ``x``."""
    is_row_index = index.dtype in (torch.int32, torch.int64) and index.dim() == 1
    return is_row_index and x.dim() == 2 and plain(x).is_contiguous()


def _mapped(tensor: UnifiedTensor) -> torch.Tensor:
    """Return a GPU tensor over a unified tensor's memory, without a copy."""
    memory, values = tensor._memory, plain(tensor)
    offset = values.data_ptr() - memory.bytes.data_ptr()
    mapped = memory.gpu.map(memory.bytes)
    size = values.element_size()
    end = offset % size + (mapped.numel() - offset % size) // size * size
    typed = mapped[offset % size : end].view(values.dtype)
    return typed.as_strided(values.shape, values.stride(), offset // size)


def _place_result(
    result: torch.Tensor, placement: Placement, operands: list[UnifiedTensor]
) -> torch.Tensor:
    """Copy a result into the memory of ``placement``; a view of an operand stays a view."""
    for operand in operands:
        memory = operand._memory.bytes
        inside = memory.data_ptr() <= result.data_ptr() < memory.data_ptr() + memory.numel()
        if inside and result.numel():
            values = plain(operand)
            if values.data_ptr() == result.data_ptr() and operand.shape == result.shape:
                return operand
            shift = (result.data_ptr() - values.data_ptr()) // values.element_size()
            offset = values.storage_offset() + shift
            view = values.as_strided(result.shape, result.stride(), offset).view(result.dtype)
            return _wrap(view, operand._memory, operand._propagated)
    if placement.output is Output.GPU:
        return result
    gpu = operands[0]._memory.gpu
    out = empty(result.shape, result.dtype, gpu, propagated_to_cuda=placement.propagated_to_cuda)
    if placement.on_gpu:
        gpu.run(_T.copy_, (_mapped(out), result), {})
        gpu.synchronize()
    else:
        plain(out).copy_(result)
    return out


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _map_tensors(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return ``values`` with ``change`` applied to the tensors in them, at any depth."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if type(values) in (tuple, list):
        return type(values)(_map_tensors(value, change) for value in values)
    if (isinstance(values, tuple) and hasattr(values, "_fields")) or _is_return_type(values):
        return type(values)([_map_tensors(value, change) for value in values])
    if isinstance(values, dict):
        return {name: _map_tensors(value, change) for name, value in values.items()}
    return values


def _is_return_type(values: Any) -> bool:
    """Whether ``values`` is a named result of torch, e.g. of ``max`` over rows."""
    return isinstance(values, tuple) and type(values).__module__ == "torch.return_types"


class Output(Enum):
    """Kind of memory that holds an operation's result."""

    GPU = "gpu"
    UNIFIED = "unified"  #: host memory that the GPU also accesses


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Side that computes an operation, CPU or GPU, and the memory of the result."""

    on_gpu: bool  #: whether the GPU computes the operation; otherwise the CPU
    output: Output
    #: whether a unified result prefers the GPU for later operations
    propagated_to_cuda: bool = False


def place(*, has_cpu: bool, has_gpu: bool, prefers: Sequence[bool]) -> Placement:
    """Return the placement of an operation (PyTorch-Direct, table 3).

    ``has_cpu`` and ``has_gpu`` say whether operands include a CPU tensor that is not a scalar, and
    a GPU tensor. ``prefers`` has ``propagated_to_cuda`` of each unified operand, at least one.
    """
    if not has_cpu and has_gpu:  # the second row
        if all(prefers):
            return Placement(on_gpu=True, output=Output.GPU)
        return Placement(on_gpu=True, output=Output.UNIFIED, propagated_to_cuda=True)
    if not has_cpu and all(prefers):  # the third row
        return Placement(on_gpu=True, output=Output.GPU)
    return Placement(on_gpu=any(prefers), output=Output.UNIFIED)


#: Name of the device, as in ``t.to("unified")``.
NAME = "unified"


class UnifiedDevice(str):
    """Device argument for unified memory, within a ``unified_device`` block.

    ``propagated_to_cuda`` is the preference of new tensors. ``advise`` is an advice and its device,
    applied before the first write; memory is then managed.
    """

    propagated_to_cuda: bool
    advise: tuple[str, str] | None

    def __new__(
        cls, *, propagated_to_cuda: bool = True, advise: tuple[str, str] | None = None
    ) -> UnifiedDevice:
        """Create the device, a string that torch's parser sees as ``unified``."""
        device = super().__new__(cls, NAME)
        device.propagated_to_cuda, device.advise = propagated_to_cuda, advise
        return device


class unified_device(TorchFunctionMode):  # noqa: N801 (a block, as torch's own)
    """``with`` block in which ``"unified"`` is a device of torch's functions (table 1).

    ``torch.ones(128, device="unified")`` and ``tensor.to("unified")`` return unified tensors.
    """

    def __init__(self, gpu: GpuSide) -> None:
        """Create the block; ``gpu`` allocates its unified tensors."""
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute ``func``; copy the result to unified memory if the device argument says so."""
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.to and len(args) > 1 and _device(args[1]) is not None:
            return self._copy_to_unified(args[0], _device(args[1]))
        device = _device(kwargs.get("device"))
        if device is None:
            return func(*args, **kwargs)
        del kwargs["device"]
        return self._copy_to_unified(
            args[0] if func is torch.Tensor.to else func(*args, **kwargs), device
        )

    def _copy_to_unified(self, values: torch.Tensor, device: UnifiedDevice | None) -> UnifiedTensor:
        assert device is not None
        out = empty(
            values.shape,
            values.dtype,
            self._gpu,
            propagated_to_cuda=device.propagated_to_cuda,
            managed=device.advise is not None,
        )
        if device.advise is not None:
            out.mem_advise(*device.advise)
        plain(out).copy_(plain(values))
        return out


def _device(device: Any) -> UnifiedDevice | None:
    """Return the unified device that ``device`` names. None: another device, or no device."""
    if isinstance(device, UnifiedDevice):
        return device
    return UnifiedDevice() if isinstance(device, str) and device == NAME else None
