"""Unified memory as a device of torch's functions, within a block (PyTorch-Direct, table 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gnnscale.features.unified.gpu_side import GpuSide
from gnnscale.features.unified.tensor import UnifiedTensor, empty, plain

#: The name of the device, as in ``t.to("unified")``.
NAME = "unified"


class UnifiedDevice(str):
    """What ``device=`` and ``to`` take for unified memory, within a ``unified_device`` block.

    Attributes:
        propagated_to_cuda: preference of tensors that are made.
        advise: an advice and the device that it is about, given before anything is written, so that
            memory is managed; None for no advice.
    """

    propagated_to_cuda: bool
    advise: tuple[str, str] | None

    def __new__(
        cls, *, propagated_to_cuda: bool = True, advise: tuple[str, str] | None = None
    ) -> UnifiedDevice:
        """Make the device; for torch's parser it is a name."""
        made = super().__new__(cls, NAME)
        made.propagated_to_cuda, made.advise = propagated_to_cuda, advise
        return made


class unified_device(TorchFunctionMode):  # noqa: N801 (a block, as torch's own)
    """A block in which ``"unified"`` is a device of torch's functions (table 1).

    ``torch.ones(128, device="unified")`` and ``tensor.to("unified")`` make unified tensors.
    """

    def __init__(self, gpu: GpuSide) -> None:
        """Let tensors be shared with ``gpu``."""
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute ``func``, on the host if its result is to be unified."""
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.to and len(args) > 1 and _device(args[1]) is not None:
            return self._made(args[0], _device(args[1]))
        device = _device(kwargs.get("device"))
        if device is None:
            return func(*args, **kwargs)
        del kwargs["device"]
        return self._made(args[0] if func is torch.Tensor.to else func(*args, **kwargs), device)

    def _made(self, values: torch.Tensor, device: UnifiedDevice | None) -> UnifiedTensor:
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
    """Return what ``device`` says of unified memory; None if it is another device."""
    if isinstance(device, UnifiedDevice):
        return device
    return UnifiedDevice() if isinstance(device, str) and device == NAME else None
