"""Differentiable attention over the edges of a block: scores, softmax and weighted sums."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.nn.device_block import DeviceBlock
from gnnscale.sampling import Block


class _BlockSoftmax(torch.autograd.Function):
    """Softmax of scores over the edges of each destination, with importance as weights."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, block: Block) -> Tensor:
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (alpha,) = ctx.saved_tensors
        out = ops.edge_softmax_backward(
            ctx.block.indptr, alpha, grads[0].contiguous(), num_threads=torch.get_num_threads()
        )
        return out, None


class _HeadSum(torch.autograd.Function):
    """``out[i, k] = sum_e alpha[e, k] z[indices[e], k]`` for each head k."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, z: Tensor, block: Block) -> Tensor:
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
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
                block.indptr, block.indices, block.num_src, weights=alpha.numpy()[:, head]
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


class _PairScores(torch.autograd.Function):
    """Autograd function of ``pair_scores``."""

    @staticmethod
    def forward(
        ctx: Any, dst_rows: Tensor, z: Tensor, attention: Tensor, block: Block, slope: float
    ) -> Tensor:
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(dst_rows, z, attention)
        return ops.pair_scores(
            dst_rows,
            z,
            attention,
            block.indptr,
            block.indices,
            out=ops.empty((block.num_edges, len(attention)), torch.float32),
            slope=slope,
            num_threads=torch.get_num_threads(),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        dst_rows, z, attention = ctx.saved_tensors
        block: Block = ctx.block
        gradients = ops.pair_scores_backward(
            dst_rows,
            z,
            attention,
            block.indptr,
            block.indices,
            grads[0].contiguous(),
            slope=ctx.slope,
            num_threads=torch.get_num_threads(),
        )
        return *gradients, None, None


def pair_scores(
    dst_rows: Tensor, z: Tensor, attention: Tensor, block: Block, slope: float
) -> Tensor:
    """Return ``attention[k] · LeakyReLU(dst_rows[v, k] + z[u, k])`` for each edge, on the host.

    No row per edge is stored, forward or backward. ``dst_rows`` ``[num_dst, num_heads, width]`` and
    ``z`` ``[num_src, num_heads, width]`` are projected rows, ``attention`` is ``[num_heads,
    width]``, the result ``[num_edges, num_heads]``, all float32.
    """
    flat = (rows.flatten(1).contiguous() for rows in (dst_rows, z))
    return _PairScores.apply(*flat, attention, block, slope)  # type: ignore[no-untyped-call, no-any-return]


def attend(scores: Tensor, z: Tensor, block: Block) -> Tensor:
    """Return each destination's sum of source rows, weighted by the softmax of edge scores.

    Edges of layer-wise sampling are weighted by their importance inside the softmax. ``scores`` is
    ``[num_edges, num_heads]``, ``z`` ``[num_src, num_heads, f]`` contiguous, the result ``[num_dst,
    num_heads, f]``, all float32.
    """
    if isinstance(block, DeviceBlock):
        return block.attend(scores, z)
    alpha = _BlockSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    return _HeadSum.apply(alpha, z, block)  # type: ignore[no-untyped-call, no-any-return]


def with_self_edges(block: Block) -> Block:
    """Return ``block`` without edge weights and features, with a self-edge first in each list."""
    if isinstance(block, DeviceBlock):
        return block.with_self_edges()
    num_dst = block.num_dst
    starts = block.indptr[:-1]
    self_edges = np.arange(num_dst, dtype=np.int32)
    importance = block.importance
    return Block(
        indptr=block.indptr + np.arange(num_dst + 1),
        indices=np.insert(block.indices, starts, self_edges),
        num_src=block.num_src,
        importance=None if importance is None else np.insert(importance, starts, np.float32(1)),
    )


def edge_scores(src: Tensor, dst: Tensor, block: Block) -> Tensor:
    """Return ``src[u] + dst[v]`` for each edge from u to v, ``[num_edges, num_heads]`` float32."""
    if isinstance(block, DeviceBlock):
        return block.edge_scores(src, dst)
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    sources = torch.from_numpy(block.indices.astype(np.int64))
    return src[sources] + dst[torch.from_numpy(destinations)]
