"""Aggregation over a block as one linear map, differentiable, and fused with loading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.model.activation import Activation
from gnnscale.sampler import Block

__all__ = ["Aggregation", "aggregate", "load_aggregate", "sum_scale"]


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """A layer's aggregation with the coefficients of one block.

    ``a[i] = dst_scale[i] * sum_e weights[e] * h[indices[e]]``, and then either
    ``a[i] + self_scale[i] * h[i]`` (``self_term="add"``) or ``h[i] ‖ a[i]`` (``"concat"``).

    Attributes:
        self_term: what becomes of a destination's own row.
        weights: ``[num_edges]`` float32, None for ones.
        dst_scale: ``[num_dst]`` float32, None for ones.
        self_scale: ``[num_dst]`` float32, None for ones.
    """

    self_term: Literal["add", "concat"]
    weights: NDArray[np.float32] | None = None
    dst_scale: NDArray[np.float32] | None = None
    self_scale: NDArray[np.float32] | None = None


def sum_scale(block: Block, degrees: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return what a sampled sum is multiplied with so that its expectation is the full sum.

    That is degree / number sampled for neighbour sampling. Where edges carry their importance, it
    already does this, and nothing is left to do.

    Args:
        block: the layer's block.
        degrees: ``[at least num_dst]`` float32 in-degrees in the whole graph.

    Returns:
        ``[num_dst]`` float32, or None.
    """
    if block.importance is not None:
        return None
    num_sampled = np.diff(block.indptr).astype(np.float32)
    scale: NDArray[np.float32] = degrees[: block.num_dst] / np.maximum(num_sampled, np.float32(1))
    return scale


def _write(
    x: ops.Rows,
    block: Block,
    coefficients: Aggregation,
    out: torch.Tensor,
    ids: NDArray[Any] | None,
    num_threads: int,
) -> None:
    """Fill ``out`` from rows ``ids`` of ``x`` (from row ``i`` for local id ``i`` without ids)."""
    adds_own = coefficients.self_term == "add"
    width = out.shape[1] if adds_own else out.shape[1] // 2
    if not adds_own:
        own = np.arange(block.num_dst, dtype=np.int32) if ids is None else ids[: block.num_dst]
        ops.gather(x, own, out=out[:, :width], num_threads=num_threads)
    per_edge = ids is not None and block.edge_vertices is not None
    ops.aggregate(
        x,
        block.indptr,
        block.indices,
        ids=block.edge_vertices if per_edge else ids,
        ids_per_edge=per_edge,
        weights=coefficients.weights,
        dst_scale=coefficients.dst_scale,
        self_rows=x if adds_own else None,
        self_ids=ids if adds_own else None,
        self_scale=coefficients.self_scale,
        num_self=block.num_dst if adds_own else 0,
        out=out[:, out.shape[1] - width :],
        num_threads=num_threads,
    )


def load_aggregate(
    features: ops.Rows,
    vertices: NDArray[Any],
    block: Block,
    coefficients: Aggregation,
    *,
    dtype: torch.dtype,
    num_threads: int,
) -> torch.Tensor:
    """Aggregate straight from feature storage: no matrix of gathered input rows in between.

    Exact, not an approximation: input features need no gradient, so nothing else reads the rows.

    Args:
        features: ``[num_vertices, f]`` in any storage type.
        vertices: ``[num_src]`` global ids of the block's source vertices.
        block: the first layer's block.
        coefficients: of the aggregation.
        dtype: float32 or bfloat16.
        num_threads: threads to use.

    Returns:
        ``[num_dst, f]``, or ``[num_dst, 2 f]`` where the own row is concatenated.
    """
    width = (features if isinstance(features, torch.Tensor) else features[0]).shape[1]
    out = ops.empty(
        (block.num_dst, width * (2 if coefficients.self_term == "concat" else 1)), dtype
    )
    _write(features, block, coefficients, out, vertices, num_threads)
    return out


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: torch.Tensor, block: Block, coefficients: Aggregation, act: Activation | None
    ) -> torch.Tensor:
        num_threads = torch.get_num_threads()
        ctx.block, ctx.coefficients, ctx.scale = block, coefficients, None
        if act is not None:
            # In place: whoever computed h does not need it for its own gradient.
            ctx.scale = act.apply_(h)
            ctx.save_for_backward(h)
        width = h.shape[1] * (2 if coefficients.self_term == "concat" else 1)
        out = ops.empty((block.num_dst, width), h.dtype)
        _write(h, block, coefficients, out, None, num_threads)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        block: Block = ctx.block
        coefficients: Aggregation = ctx.coefficients
        grad = grads[0].contiguous()
        width = grad.shape[1] // (2 if coefficients.self_term == "concat" else 1)
        dst_scale, self_scale = coefficients.dst_scale, coefficients.self_scale
        if ctx.scale not in (None, 1.0):
            ones = np.full(block.num_dst, ctx.scale, dtype=np.float32)
            dst_scale = ones if dst_scale is None else dst_scale * ones
            self_scale = ones if self_scale is None else self_scale * ones
        indptr, indices, weights = ops.transpose_block(
            block.indptr,
            block.indices,
            block.num_src,
            weights=coefficients.weights,
            dst_scale=dst_scale,
        )
        out = ops.aggregate(
            grad[:, grad.shape[1] - width :],
            indptr,
            indices,
            weights=weights,
            self_rows=grad[:, :width],
            self_scale=self_scale,
            num_self=block.num_dst,
            gate=None if ctx.scale is None else ctx.saved_tensors[0],
            out=ops.empty((block.num_src, width), grad.dtype),
            num_threads=torch.get_num_threads(),
        )
        return out, None, None, None


def aggregate(
    h: torch.Tensor, block: Block, coefficients: Aggregation, act: Activation | None = None
) -> torch.Tensor:
    """Aggregate hidden rows over a block, with gradient to ``h``.

    With ``act``, ReLU and dropout are applied to ``h`` first, overwriting it, and their gradient is
    taken in the same pass as the aggregation's.

    Args:
        h: ``[num_src, f]`` float32 or bfloat16, contiguous.
        block: the layer's block.
        coefficients: of the aggregation.
        act: activation of ``h``, None where it is to be used as it is.

    Returns:
        ``[num_dst, f]`` or ``[num_dst, 2 f]`` of the same type.
    """
    out: torch.Tensor = _Aggregate.apply(h, block, coefficients, act)  # type: ignore[no-untyped-call]
    return out
