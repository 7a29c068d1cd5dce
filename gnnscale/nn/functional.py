"""ReLU with reproducible dropout, and differentiable aggregation over a block."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.core import Float32Array
from gnnscale.features.base import Aggregation, write_aggregated
from gnnscale.nn.device_block import Activation, DeviceBlock
from gnnscale.nn.optim.update_rules import RowSums
from gnnscale.sampling import Block, MiniBatch


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: Activation) -> Tensor:
        ctx.activation, ctx.scale = activation, activation.apply_(x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return ctx.activation.gradient(y, grads[0].contiguous(), ctx.scale), None


def activation(p: float, batch: MiniBatch, layer: int) -> Activation:
    """Return ReLU, and dropout of probability ``p``, of ``layer``'s output in the batch's step."""
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


#: Layer number in the dropout stream of an encoder's hidden rows, above all numbers of layers.
_ENCODER = 1 << 16
#: Layer number in the dropout stream of input rows.
_INPUT_ROWS = _ENCODER + 1


def input_activation(p: float, batch: MiniBatch) -> Activation:
    """Return ReLU and dropout ``p`` for an encoder's hidden rows, one row for each input vertex."""
    return _source_activation(p, batch, _ENCODER)


def _source_activation(p: float, batch: MiniBatch, layer: int) -> Activation:
    """Return ReLU and dropout of probability ``p`` for the source rows of the first block.

    ``layer`` selects the random numbers of dropout, like the layer number of ``Activation``.
    """
    block = batch.blocks[0]
    if isinstance(block, DeviceBlock):
        return block.activation(p, seed=batch.seed, step=batch.step, layer=layer, sources=True)
    return Activation(
        p=p, seed=batch.seed, step=batch.step, layer=layer, vertices=batch.input_vertices
    )


def input_dropout(x: Tensor, p: float, batch: MiniBatch) -> Tensor:
    """Return input rows with features dropped, and the remaining features scaled by 1 / (1 - p).

    The dropped features are a pure function of ``(seed, step, vertex, column)``, on every device.
    ``x`` is ``[num_input_vertices, f]`` float32 or bfloat16, not modified.
    """
    # ReLU would zero negative features; it leaves ones unchanged.
    factors = torch.ones_like(x, memory_format=torch.contiguous_format, requires_grad=False)
    _source_activation(p, batch, _INPUT_ROWS).apply_(factors)
    return x * factors if x.requires_grad else factors.mul_(x)


def relu_dropout(x: Tensor, activation: Activation) -> Tensor:
    """Overwrite ``x`` ``[n, f]``, contiguous, by ReLU and dropout, and return it, with gradient."""
    return _ReluDropout.apply(x, activation)  # type: ignore[no-untyped-call, no-any-return]


def sum_scale(block: Block, degrees: Float32Array) -> Float32Array | None:
    """Return the factor of each sampled sum that makes its expectation the full sum.

    It is degree / number sampled, ``[num_dst]`` float32; None: the edges' importance has this
    effect. ``degrees`` are ``[at least num_dst]`` float32 in-degrees in the full graph.
    """
    if block.importance is not None:
        return None
    num_sampled = np.diff(block.indptr).astype(np.float32)
    scale: Float32Array = degrees[: block.num_dst] / np.maximum(num_sampled, np.float32(1))
    return scale


def sampling_totals(block: Block, degrees: Float32Array) -> Float32Array:
    """Return the totals for which sampled neighbors stand: ``degrees``, or sums of edge weights.

    Neighbors sampled by weight count equally, and stand for the sum of all in-edge weights.
    Neighbors sampled uniformly stand for the in-degree.
    """
    by_weight = block.weight_sums is not None and block.edge_weights is None
    return block.weight_sums if by_weight else degrees  # type: ignore[return-value]


class _WeightedAggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, block: Block, coefficients: Aggregation, act: Activation | None
    ) -> Tensor:
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        gate = None if ctx.scale is None else ctx.saved_tensors[0]
        sums = gradient_of_rows(grads[0], ctx.block, ctx.coefficients, scale=ctx.scale)
        threads = torch.get_num_threads()
        return sums.total(grads[0].dtype, gate=gate, num_threads=threads), None, None, None


def gradient_of_rows(
    grad: Tensor, block: Block, coefficients: Aggregation, *, scale: float | None = None
) -> RowSums:
    """Return the gradient of aggregated rows ``[num_src, f]``, as sums that are computed later.

    The rows were aggregated over ``block`` with ``coefficients``. ``grad`` is the gradient of the
    result, ``[num_dst, f]``, or ``[num_dst, 2 f]`` with a concatenated self term; ``scale``
    multiplies it, None: 1.
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
    h: Tensor, block: Block, coefficients: Aggregation, act: Activation | None = None
) -> Tensor:
    """Aggregate hidden rows ``h`` ``[num_src, f]``, contiguous, over a block, with gradient.

    With ``act``, ReLU and dropout are applied to ``h`` first, overwriting it, and one pass computes
    the gradient of both. The result is ``[num_dst, f]`` or ``[num_dst, 2 f]``.
    """
    return _WeightedAggregate.apply(h, block, coefficients, act)  # type: ignore[no-untyped-call, no-any-return]
