"""The device ``"unified"`` of torch's functions, within a block (PyTorch-Direct, table 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gnnscale.features.unified.gpu_side import GpuSide
from gnnscale.features.unified.tensor import UnifiedTensor, empty, plain

#: Name of the device, as in ``t.to("unified")``.
NAME = "unified"


class UnifiedDevice(str):
    """Device argument for unified memory, within a ``unified_device`` block.

    Attributes:
        propagated_to_cuda: preference of new tensors.
        advise: an advice and the device it concerns, given before the first write; the memory is
            then managed. None: no advice.
    """

    propagated_to_cuda: bool
    advise: tuple[str, str] | None

    def __new__(
        cls, *, propagated_to_cuda: bool = True, advise: tuple[str, str] | None = None
    ) -> UnifiedDevice:
        """Create the device; torch's parser sees its name."""
        device = super().__new__(cls, NAME)
        device.propagated_to_cuda, device.advise = propagated_to_cuda, advise
        return device


class unified_device(TorchFunctionMode):  # noqa: N801 (a block, as torch's own)
    """Block in which ``"unified"`` is a device of torch's functions (table 1).

    ``torch.ones(128, device="unified")`` and ``tensor.to("unified")`` return unified tensors.
    """

    def __init__(self, gpu: GpuSide) -> None:
        """Share the tensors of the block with ``gpu``."""
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute ``func``, and copy a result that should be unified into unified memory."""
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
    """Return the unified device that ``device`` names. None: another device."""
    if isinstance(device, UnifiedDevice):
        return device
    return UnifiedDevice() if isinstance(device, str) and device == NAME else None
