"""ReLU and dropout in one pass, with random bits that depend on the step alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gnnscale import ops
from gnnscale.sampler import MiniBatch

__all__ = ["Activation", "activation", "relu_dropout"]

_MASK = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Activation:
    """ReLU and dropout of one layer in one step.

    Attributes:
        p: probability of dropping, rounded to 1/65536; 0 when evaluating.
        key: fixes the mask.
    """

    p: float
    key: int


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        num_threads = torch.get_num_threads()
        ctx.scale = ops.relu_dropout(x, p=activation.p, key=activation.key, num_threads=num_threads)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        grad = ops.relu_dropout_backward(
            y, grads[0].contiguous(), scale=ctx.scale, num_threads=torch.get_num_threads()
        )
        return grad, None


def activation(p: float, batch: MiniBatch, layer: int) -> Activation:
    """Return the activation of ``layer`` in the step of ``batch``, dropping with probability ``p``.

    The mask is a pure function of the run's seed, the step, the layer and the slice's first seed:
    a resumed run repeats an uninterrupted one bit for bit, and devices draw masks of their own.
    """
    # No factor is the step between a stream's draws, or streams would be shifted copies of another.
    first = int(batch.seeds[0]) if batch.num_seeds else 0
    key = batch.seed * 0xA0761D6478BD642F + batch.step * 0xD1342543DE82EF95 + layer + 1
    key = (key + first * 0x9FB21C651E98DF25) & _MASK
    return Activation(p=p, key=key)


def relu_dropout(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply ReLU and then dropout, overwriting ``x``.

    Args:
        x: contiguous float32 or bfloat16, not needed any more by whoever computed it.
        activation: probability and mask.
    """
    out: torch.Tensor = _ReluDropout.apply(x, activation)  # type: ignore[no-untyped-call]
    return out
