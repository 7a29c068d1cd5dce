"""Differentiable attention over a block: edge softmax and the weighted sum of source rows."""

from __future__ import annotations

from typing import Any

import torch

from gnnscale import ops
from gnnscale.sampler import Block

__all__ = ["attend"]


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, block: Block) -> torch.Tensor:
        alpha = ops.edge_softmax(
            block.indptr,
            scores.contiguous(),
            bias=block.importance,
            num_threads=torch.get_num_threads(),
        )
        ctx.block = block
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (alpha,) = ctx.saved_tensors
        out = ops.edge_softmax_backward(
            ctx.block.indptr,
            alpha,
            grads[0].contiguous(),
            num_threads=torch.get_num_threads(),
        )
        return out, None


class _WeightedSum(torch.autograd.Function):
    """``out[i, k] = sum_e alpha[e, k] z[indices[e], k]`` for each head k."""

    @staticmethod
    def forward(ctx: Any, alpha: torch.Tensor, z: torch.Tensor, block: Block) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(alpha, z)
        out = torch.empty(block.num_dst, *z.shape[1:])
        for head in range(z.shape[1]):
            ops.aggregate(
                z[:, head],
                block.indptr,
                block.indices,
                weights=alpha.detach().numpy()[:, head],
                out=out[:, head],
                num_threads=torch.get_num_threads(),
            )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        alpha, z = ctx.saved_tensors
        block: Block = ctx.block
        grad = grads[0].contiguous()
        num_threads = torch.get_num_threads()
        grad_alpha, grad_z = torch.empty_like(alpha), torch.empty_like(z)
        for head in range(z.shape[1]):
            ops.edge_dot(
                grad[:, head],
                z[:, head],
                block.indptr,
                block.indices,
                out=grad_alpha.numpy()[:, head],
                num_threads=num_threads,
            )
            indptr, indices, weights = ops.transpose_block(
                block.indptr,
                block.indices,
                block.num_src,
                weights=alpha.numpy()[:, head],
            )
            ops.aggregate(
                grad[:, head],
                indptr,
                indices,
                weights=weights,
                out=grad_z[:, head],
                num_threads=num_threads,
            )
        return grad_alpha, grad_z, None


def attend(scores: torch.Tensor, z: torch.Tensor, block: Block) -> torch.Tensor:
    """Sum source rows with the softmax of their edges' scores.

    Edges that a layer-wise sampler kept with a known probability count by their importance.

    Args:
        scores: ``[num_edges, num_heads]`` float32.
        z: ``[num_src, num_heads, f]`` float32, contiguous.
        block: the layer's block.

    Returns:
        ``[num_dst, num_heads, f]`` float32.
    """
    alpha = _EdgeSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    out: torch.Tensor = _WeightedSum.apply(alpha, z, block)  # type: ignore[no-untyped-call]
    return out
