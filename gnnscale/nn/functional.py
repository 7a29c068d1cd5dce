"""ReLU with dropout that no slice changes, and differentiable aggregation over a block."""

from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Float32Array
from gnnscale.features.base import Aggregation, write_aggregated
from gnnscale.nn.device_block import Activation, DeviceBlock
from gnnscale.nn.optim.sparse import RowSums
from gnnscale.sampling import Block, MiniBatch


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        ctx.activation, ctx.scale = activation, activation.apply_(x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        return ctx.activation.gradient(y, grads[0].contiguous(), ctx.scale), None


def activation(p: float, batch: MiniBatch, layer: int) -> Activation:
    """Return the activation of ``layer``'s output in the step of ``batch``."""
    block = batch.blocks[layer]
    if isinstance(block, DeviceBlock):
        return block.activation(p, seed=batch.seed, step=batch.step, layer=layer)
    return Activation(
        p=p,
        seed=batch.seed,
        step=batch.step,
        layer=layer,
        vertices=batch.input_vertices[: block.num_dst],
    )


#: Number of the activation of rows that the first layer reads; no model has so many layers.
_INPUTS = 1 << 16


def input_activation(p: float, batch: MiniBatch) -> Activation:
    """Return an activation of rows of the sources of the first block of ``batch``."""
    block = batch.blocks[0]
    if isinstance(block, DeviceBlock):
        return block.activation(p, seed=batch.seed, step=batch.step, layer=_INPUTS, sources=True)
    return Activation(
        p=p, seed=batch.seed, step=batch.step, layer=_INPUTS, vertices=batch.input_vertices
    )


#: Number of the dropout of input rows themselves.
_INPUT_ROWS = _INPUTS + 1


def input_dropout(x: torch.Tensor, p: float, batch: MiniBatch) -> torch.Tensor:
    """Return input rows with features dropped, and the remaining ones scaled by 1 / (1 - p).

    What is dropped is a pure function of ``(seed, step, vertex, column)``, on every device.

    Args:
        x: ``[num_input_vertices, f]`` float32 or bfloat16, which stays as it is.
        p: probability of dropping a feature.
    """
    block = batch.blocks[0]
    if isinstance(block, DeviceBlock):
        mask = block.activation(
            p, seed=batch.seed, step=batch.step, layer=_INPUT_ROWS, sources=True
        )
    else:
        mask = Activation(
            p=p, seed=batch.seed, step=batch.step, layer=_INPUT_ROWS, vertices=batch.input_vertices
        )
    # Features may be negative, and ReLU leaves the ones.
    factors = torch.ones_like(x, memory_format=torch.contiguous_format, requires_grad=False)
    mask.apply_(factors)
    return x * factors if x.requires_grad else factors.mul_(x)


def relu_dropout(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply ReLU and then dropout, overwriting ``x``.

    Args:
        x: ``[n, f]`` contiguous float32 or bfloat16, not needed any more by the caller.
    """
    out: torch.Tensor = _ReluDropout.apply(x, activation)  # type: ignore[no-untyped-call]
    return out


def sum_scale(block: Block, degrees: Float32Array) -> Float32Array | None:
    """Return what a sampled sum is multiplied with so that its expectation is the full sum.

    That is degree / number sampled for neighbour sampling. If edges carry their importance, it
    already does this, and nothing is left to do.

    Args:
        degrees: ``[at least num_dst]`` float32 in-degrees in the whole graph.

    Returns:
        ``[num_dst]`` float32, or None.
    """
    if block.importance is not None:
        return None
    num_sampled = np.diff(block.indptr).astype(np.float32)
    scale: Float32Array = degrees[: block.num_dst] / np.maximum(num_sampled, np.float32(1))
    return scale


def drawn_from(block: Block, degrees: Float32Array) -> Float32Array:
    """Return what ``sum_scale`` is to take for degrees when messages count by their weights.

    Neighbours that were drawn by weight stand for the sum of all weights, each alike; others for
    their number.

    Args:
        degrees: ``[at least num_dst]`` float32 in-degrees in the whole graph.
    """
    by_weight = block.weight_sums is not None and block.edge_weights is None
    return block.weight_sums if by_weight else degrees  # type: ignore[return-value]


class _WeightedAggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: torch.Tensor, block: Block, coefficients: Aggregation, act: Activation | None
    ) -> torch.Tensor:
        num_threads = torch.get_num_threads()
        ctx.block, ctx.coefficients, ctx.scale = block, coefficients, None
        if act is not None:
            # In place: the operation that computed h does not need it for its own gradient.
            ctx.scale = act.apply_(h)
            ctx.save_for_backward(h)
        out = ops.empty((block.num_dst, coefficients.width(h.shape[1])), h.dtype)
        write_aggregated(h, block, coefficients, out=out, ids=None, num_threads=num_threads)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        gate = None if ctx.scale is None else ctx.saved_tensors[0]
        sums = gradient_of_rows(grads[0], ctx.block, ctx.coefficients, scale=ctx.scale)
        threads = torch.get_num_threads()
        return sums.total(grads[0].dtype, gate=gate, num_threads=threads), None, None, None


def gradient_of_rows(
    grad: torch.Tensor, block: Block, coefficients: Aggregation, *, scale: float | None = None
) -> RowSums:
    """Return the gradient of the rows that were aggregated over a block, ``[num_src, f]``.

    Args:
        grad: that of the result, ``[num_dst, f]``, or ``[num_dst, 2 f]`` if the own row is
            concatenated.
        scale: what it is multiplied with; None for 1.
    """
    grad = grad.contiguous()
    width = grad.shape[1] // (2 if coefficients.self_term == "concat" else 1)
    dst_scale, self_scale = coefficients.dst_scale, coefficients.self_scale
    if scale not in (None, 1.0):
        ones = np.full(block.num_dst, scale, dtype=np.float32)
        dst_scale = ones if dst_scale is None else dst_scale * ones
        self_scale = ones if self_scale is None else self_scale * ones
    indptr, indices, weights = ops.transpose_block(
        block.indptr,
        block.indices,
        block.num_src,
        weights=coefficients.weights,
        dst_scale=dst_scale,
    )
    return RowSums(
        rows=grad[:, grad.shape[1] - width :],
        indptr=indptr,
        indices=indices,
        weights=weights,
        self_rows=grad[:, :width],
        self_scale=self_scale,
        num_self=block.num_dst,
    )


def aggregate(
    h: torch.Tensor, block: Block, coefficients: Aggregation, act: Activation | None = None
) -> torch.Tensor:
    """Aggregate hidden rows over a block, with gradient to ``h``.

    With ``act``, ReLU and dropout are applied to ``h`` first, overwriting it, and their gradient is
    taken in the same pass as the aggregation's.

    Args:
        h: ``[num_src, f]`` float32 or bfloat16, contiguous.
        act: activation of ``h``, None to use it as it is.

    Returns:
        ``[num_dst, f]`` or ``[num_dst, 2 f]`` of the same type.
    """
    out: torch.Tensor = _WeightedAggregate.apply(h, block, coefficients, act)  # type: ignore[no-untyped-call]
    return out
