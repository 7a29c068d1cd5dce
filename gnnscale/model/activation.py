"""ReLU and dropout in one pass, with random bits that depend on the step alone."""

from __future__ import annotations

from typing import Any

import torch

from gnnscale import ops
from gnnscale.sampler import MiniBatch

__all__ = ["relu_dropout"]

_MASK = 2**64 - 1


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, key: int) -> torch.Tensor:
        ctx.scale = ops.relu_dropout(x, p=p, key=key, num_threads=torch.get_num_threads())
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (y,) = ctx.saved_tensors
        grad = ops.relu_dropout_backward(
            y, grads[0].contiguous(), scale=ctx.scale, num_threads=torch.get_num_threads()
        )
        return grad, None, None


def relu_dropout(x: torch.Tensor, p: float, batch: MiniBatch, layer: int) -> torch.Tensor:
    """Apply ReLU and then dropout, overwriting ``x``.

    The mask is a pure function of the run's seed, the step and the layer, so that a resumed run
    repeats an uninterrupted one bit for bit. ``p`` is rounded to 1/65536.

    Args:
        x: contiguous float32 or bfloat16, not needed any more by whoever computed it.
        p: probability of dropping, 0 when evaluating.
        batch: whose seed and step fix the mask.
        layer: index of the layer.
    """
    # No factor is the step between a stream's draws, or streams would be shifted copies of another.
    key = (batch.seed * 0xA0761D6478BD642F + batch.step * 0xD1342543DE82EF95 + layer + 1) & _MASK
    out: torch.Tensor = _ReluDropout.apply(x, p, key)  # type: ignore[no-untyped-call]
    return out
