"""ReLU and dropout in one pass, with random bits that no slice of a mini-batch changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.sampler import MiniBatch


@dataclass(frozen=True, kw_only=True)
class Activation:
    """ReLU and dropout of one layer's output in one step.

    What is dropped is a pure function of ``(seed, step, layer, vertex, column)``: a resumed run
    repeats an uninterrupted one, and devices that compute the same vertex drop the same of it.
    """

    p: float  #: probability of dropping, rounded to 1/65536; 0 when evaluating
    seed: int  #: of the run
    step: int  #: of the run
    layer: int  #: whose output is activated
    vertices: NDArray[np.integer]  #: ``[n]`` int32 or int64, the vertex of each row

    def apply_(self, x: torch.Tensor) -> float:
        """Activate ``x`` ``[n, f]`` in place; return the factor of what is kept, 1 / (1 - p)."""
        return ops.relu_dropout(
            x,
            self.vertices,
            p=self.p,
            seed=self.seed,
            step=self.step,
            layer=self.layer,
            num_threads=torch.get_num_threads(),
        )


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        ctx.scale = activation.apply_(x)
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
    """Return the activation of ``layer``'s output in the step of ``batch``."""
    return Activation(
        p=p,
        seed=batch.seed,
        step=batch.step,
        layer=layer,
        vertices=batch.input_vertices[: batch.blocks[layer].num_dst],
    )


def relu_dropout(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply ReLU and then dropout, overwriting ``x``.

    Args:
        x: ``[n, f]`` contiguous float32 or bfloat16, not needed any more by the caller.
    """
    out: torch.Tensor = _ReluDropout.apply(x, activation)  # type: ignore[no-untyped-call]
    return out
