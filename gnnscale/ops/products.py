"""Linear layers in float32 by MKL or oneDNN, whichever is faster on this processor.

torch multiplies float32 with MKL, which uses its fast kernels only on Intel processors. On AMD,
oneDNN takes about half the time: for 10,000 rows, 1,024 inputs and 256 outputs 14 ms in place of
29 ms on two Zen 5 cores, and 15 ms in place of 27 ms for the gradient of the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from gnnscale.core.hardware import multiplies_by_onednn

#: Multiply-accumulates from which oneDNN is faster: it compiles each new shape in 0.2 ms, and
#: mini-batches differ in their number of rows.
_MIN_MACS = 50_000_000
#: Number of inputs from which oneDNN is faster for the gradient of the weights.
_MIN_INPUTS = 256


@contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Let torch use ``num_threads`` threads inside a ``with`` block, then as many as before."""
    previous = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def product(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Return ``x W^T + b`` of a linear layer, differentiable.

    Args:
        layer: a layer with float32 weights.
        x: ``[..., in_features]`` float32, on any device.
    """
    if not torch.is_grad_enabled():
        return multiply(x, layer.weight, layer.bias)
    if not _takes_onednn(x, layer.weight.numel()):
        return layer(x)  # type: ignore[no-any-return]
    out: torch.Tensor = _Product.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return out


def multiply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x W^T + b``, not differentiable; ``weight`` is ``[outputs, inputs]``."""
    with torch.no_grad():
        if _takes_onednn(x, weight.numel()):
            return _multiply(x, weight, bias)
        return nn.functional.linear(x, weight, bias)


def multiply_into(x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor) -> None:
    """Write ``x W^T``, not differentiable, to ``out`` ``[n, outputs]``, which may be a view."""
    with torch.no_grad():
        if _takes_onednn(x, weight.numel()):
            out.copy_(_multiply(x, weight))
        else:
            torch.mm(x, weight.t(), out=out)


def _takes_onednn(x: torch.Tensor, num_weights: int) -> bool:
    return (
        x.dim() == 2
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and len(x) * num_weights >= _MIN_MACS
        and multiplies_by_onednn()
    )


def _multiply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x W^T + b``, by oneDNN, of float32 matrices on the CPU with any strides."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


class _Product(torch.autograd.Function):
    """Autograd function of ``x W^T + b`` by oneDNN."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _multiply(grad, weight.t()) if needs_x else None,
            weight_gradient(x, grad) if needs_weight else None,
            grad.sum(0) if needs_bias else None,
        )


def weight_gradient(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return ``grad^T x``, the ``[outputs, inputs]`` gradient of a linear layer's weights.

    Args:
        x: ``[n, inputs]`` inputs of the layer.
        grad: ``[n, outputs]`` gradient of its outputs.
    """
    inputs, outputs = x.shape[1], grad.shape[1]
    if inputs < _MIN_INPUTS or not _takes_onednn(x, inputs * outputs):
        return grad.t() @ x
    # Up to twice as fast if the longer side of the result is its row length.
    if inputs >= outputs:
        return _multiply(grad.t(), x.t())
    return _multiply(x.t(), grad.t()).t()
