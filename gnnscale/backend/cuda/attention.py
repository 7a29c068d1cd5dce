"""Attention over a device block, equal to the host's bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from gnnscale.backend.cuda.aggregation import sum_rows
from gnnscale.backend.cuda.block_edges import BlockArrays, RowSegments
from gnnscale.backend.cuda.kernels import grid, or_null

#: Any subclass of ``BlockArrays``.
OnDevice = TypeVar("OnDevice", bound=BlockArrays)


def with_self_edges(block: OnDevice) -> OnDevice:
    """Return ``block`` with a self-edge as the first edge of every destination."""
    capacity, device = block.num_edges + block.num_dst, block.indptr.device
    importance = block.importance
    result = replace(
        block,
        indptr=torch.empty_like(block.indptr),
        indices=torch.empty(capacity, dtype=torch.int32, device=device),
        importance=None if importance is None else torch.empty(capacity, device=device),
        edge_vertices=None,
        edge_weights=None,
        weight_sums=None,
        num_used=torch.empty_like(block.num_used),
    )
    block.kernels.launch(
        "self_edges",
        block.indptr,
        block.indices,
        or_null(importance),
        block.num_vertices,
        block.num_used,
        result.indptr,
        result.indices,
        or_null(result.importance),
        result.num_used,
        grid=grid(block.kernels),
    )
    return result


class _EdgeScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, src: torch.Tensor, dst: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        ctx.block = block
        out = torch.empty((block.num_edges, src.shape[1]), device=src.device)
        block.kernels.launch(
            "edge_scores",
            block.indptr,
            block.indices,
            src.contiguous(),
            dst.contiguous(),
            *_sizes(block, src.shape[1]),
            out,
            grid=grid(block.kernels),
        )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        block, grad = ctx.block, grads[0].contiguous()
        heads = grad.shape[1]
        order, _, first = block.by_source()
        edges = torch.arange(block.num_edges, dtype=torch.int32, device=grad.device)
        of_dst = RowSegments(indptr=block.indptr, indices=edges, num_rows=block.num_vertices)
        of_src = RowSegments(
            indptr=first, indices=order.to(torch.int32), num_rows=block.num_vertices[1:]
        )
        dst = torch.empty((block.num_dst, heads), device=grad.device)
        src = torch.empty((block.num_src, heads), device=grad.device)
        sum_rows(block.kernels, grad, of_dst, dst)
        sum_rows(block.kernels, grad, of_src, src)
        return src, dst, None


def edge_scores(block: BlockArrays, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    """Return ``src[u] + dst[v]`` of each edge, with gradient; see ``DeviceBlock.edge_scores``."""
    out: torch.Tensor = _EdgeScores.apply(src, dst, block)  # type: ignore[no-untyped-call]
    return out


class _DeviceEdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        alpha = torch.empty_like(scores)
        block.kernels.launch(
            "edge_softmax",
            block.indptr,
            scores.contiguous(),
            or_null(block.importance),
            *_sizes(block, scores.shape[1]),
            alpha,
            grid=grid(block.kernels),
        )
        ctx.block = block
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (alpha,) = ctx.saved_tensors
        block: BlockArrays = ctx.block
        out = torch.empty_like(alpha)
        block.kernels.launch(
            "edge_softmax_backward",
            block.indptr,
            alpha,
            grads[0].contiguous(),
            *_sizes(block, alpha.shape[1]),
            out,
            grid=grid(block.kernels),
        )
        return out, None


class _DeviceHeadSum(torch.autograd.Function):
    """``out[i, k] = sum_e alpha[e, k] z[indices[e], k]`` for each head k."""

    @staticmethod
    def forward(ctx: Any, alpha: torch.Tensor, z: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(alpha, z)
        out = torch.empty((block.num_dst, *z.shape[1:]), device=z.device)
        sum_rows(
            block.kernels,
            z.flatten(1),
            block.lists,
            out.flatten(1),
            weights=alpha,
            heads=z.shape[1],
        )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        alpha, z = ctx.saved_tensors
        block: BlockArrays = ctx.block
        grad = grads[0].contiguous()
        order, destinations, first = block.by_source()
        grad_alpha, grad_z = torch.empty_like(alpha), torch.empty_like(z)
        heads, width = z.shape[1:]
        num_heads, _, num_used, capacity = _sizes(block, heads)
        block.kernels.launch(
            "edge_dot",
            grad,
            z,
            block.indices,
            destinations,
            num_heads,
            np.int64(width),
            num_used,
            capacity,
            grad_alpha,
            grid=grid(block.kernels),
        )
        lists = RowSegments(
            indptr=first,
            indices=destinations.index_select(0, order),
            num_rows=block.num_vertices[1:],
        )
        sum_rows(
            block.kernels,
            grad.flatten(1),
            lists,
            grad_z.flatten(1),
            weights=alpha.index_select(0, order),
            heads=heads,
        )
        return grad_alpha, grad_z, None


def attend(block: BlockArrays, scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Sum source rows weighted by the softmax of edge scores; see ``gat.attend``."""
    alpha = _DeviceEdgeSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    out: torch.Tensor = _DeviceHeadSum.apply(alpha, z.contiguous(), block)  # type: ignore[no-untyped-call]
    return out


def _sizes(block: BlockArrays, num_heads: int) -> tuple[Any, torch.Tensor, torch.Tensor, Any]:
    """Return the size arguments of kernels over edges and heads."""
    return np.int64(num_heads), block.num_vertices, block.num_used, np.int64(block.num_edges)
