"""Block (a layer of a sample) in device memory, with the operations of layers over it.

Attention and reductions of messages equal those of the host bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.aggregation import BlockArrays, RowSegments
from gnnscale.backend.cuda.kernels import columns_at_once, or_null, row_bytes, row_type
from gnnscale.nn.device_block import Activation, DeviceBlock, Rule

#: Dropout probabilities are multiples of 1 / 65536, as on the host.
_PROBABILITIES = 65536


@dataclass(frozen=True, kw_only=True)
class DeviceActivation(Activation):
    """ReLU and dropout of a layer's rows in device memory.

    Only the device may know the number of rows, ``count``; rows past it become 0.
    """

    block: BlockArrays  #: row i belongs to its vertex i
    count: torch.Tensor  #: int64 on the device: entry 0 is the number of rows

    def apply_(self, x: torch.Tensor) -> float:
        """Activate ``x`` ``[n, f]`` in place; return the scale of retained values, 1 / (1 - p)."""
        drop = min(round(self.p * _PROBABILITIES), _PROBABILITIES - 1)
        scale = _PROBABILITIES / (_PROBABILITIES - drop)
        vertices = self.block.vertices
        self.block.kernels.launch(
            f"relu_dropout_{columns_at_once(x)}",
            *(x, np.int32(row_type(x)), np.int64(row_bytes(x)), np.int64(x.shape[1])),
            *(vertices, np.int32(vertices.dtype == torch.int64), self.count, np.int64(len(x))),
            *(np.uint64(self.seed), self.block.step, np.uint64(self.layer)),
            *(np.uint32(drop), np.float32(scale)),
        )
        return scale

    def gradient(self, y: torch.Tensor, grad: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the gradient of the input of ``apply_``.

        ``grad`` is the gradient of its output ``y``, ``scale`` the number that it returned.
        """
        out = torch.empty_like(grad)
        sizes = (np.int32(row_type(grad)), np.int64(grad.numel()))
        name = f"relu_dropout_backward_{columns_at_once(y, grad, out)}"
        self.block.kernels.launch(name, y, grad, out, *sizes, np.float32(scale))
        return out


@dataclass(frozen=True, kw_only=True)
class CudaBlock(BlockArrays, DeviceBlock):
    """Block of a device with the operations that layers compute over it."""

    def copy(self, vertices: torch.Tensor) -> CudaBlock:
        """Return a copy of the block that later samples do not overwrite.

        Its vertices by local id are the first of ``vertices``, a copy of the mini-batch's vertices.
        """
        arrays = ("indptr", "indices", "importance", "edge_weights", "weight_sums")
        copied = {
            name: array.clone() for name in arrays if (array := getattr(self, name)) is not None
        }
        return replace(
            self,
            **copied,
            edge_vertices=None,
            vertices=vertices[: self.num_src],
            num_vertices=self.num_vertices.clone(),
            num_used=self.num_used.clone(),
            step=self.step.clone(),
        )

    def activation(
        self, p: float, *, seed: int, step: int, layer: int, sources: bool = False
    ) -> Activation:
        """Return ReLU and dropout of probability ``p`` for rows of the destinations.

        With ``sources``, for rows of all sources. ``seed`` of the run, ``step`` and number of the
        ``layer`` determine the dropped entries.
        """
        return DeviceActivation(
            p=p,
            seed=seed,
            step=step,
            layer=layer,
            vertices=self.vertices[: self.num_src if sources else self.num_dst],  # type: ignore[arg-type]
            count=self.num_vertices[1:] if sources else self.num_vertices,
            block=self,
        )

    def with_self_edges(self) -> CudaBlock:
        """Return a copy of the block with a self-edge before the edges of each destination.

        The copy has no edge weights.
        """
        capacity, device = self.num_edges + self.num_dst, self.indptr.device
        importance = self.importance
        result = replace(
            self,
            indptr=torch.empty_like(self.indptr),
            indices=torch.empty(capacity, dtype=torch.int32, device=device),
            importance=None if importance is None else torch.empty(capacity, device=device),
            edge_vertices=None,
            edge_weights=None,
            weight_sums=None,
            num_used=torch.empty_like(self.num_used),
        )
        edges = (self.indptr, self.indices, or_null(importance), self.num_vertices, self.num_used)
        outputs = (result.indptr, result.indices, or_null(result.importance), result.num_used)
        self.kernels.launch("self_edges", *edges, *outputs)
        return result

    def edge_scores(self, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return ``src[u] + dst[v]`` of each edge u to v, ``[num_edges, heads]``, with gradient.

        ``src`` is ``[num_src, heads]``, ``dst`` is ``[num_dst, heads]``.
        """
        out: torch.Tensor = _EdgeScores.apply(src, dst, self)  # type: ignore[no-untyped-call]
        return out

    def attend(self, scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return for each destination the sum of its sources' rows ``z``, weighted by attention.

        Weights are the softmax of ``scores``, ``[num_edges, heads]``, over each destination's
        in-edges. ``z`` is ``[num_src, heads, f]``, the result ``[num_dst, heads, f]``, with
        gradient.
        """
        alpha = _DeviceEdgeSoftmax.apply(scores, self)  # type: ignore[no-untyped-call]
        out: torch.Tensor = _DeviceHeadSum.apply(alpha, z.contiguous(), self)  # type: ignore[no-untyped-call]
        return out

    def sums(self, degrees: torch.Tensor | None) -> DeviceMessageSums:
        """Return the object that sums, averages or maximizes messages over each destination.

        ``degrees`` are ``[num_src]`` in-degrees in the full graph. None: the block has all
        neighbors.
        """
        return DeviceMessageSums(self, degrees)


class _EdgeScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, src: torch.Tensor, dst: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        ctx.block = block
        out = torch.empty((block.num_edges, src.shape[1]), device=src.device)
        inputs = (block.indptr, block.indices, src.contiguous(), dst.contiguous())
        block.kernels.launch("edge_scores", *inputs, *_sizes(block, src.shape[1]), out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        block, grad = ctx.block, grads[0].contiguous()
        heads = grad.shape[1]
        order, _, first = block.by_source
        edges = torch.arange(block.num_edges, dtype=torch.int32, device=grad.device)
        of_dst = RowSegments(indptr=block.indptr, indices=edges, num_rows=block.num_vertices)
        of_src = RowSegments(
            indptr=first, indices=order.to(torch.int32), num_rows=block.num_vertices[1:]
        )
        dst = torch.empty((block.num_dst, heads), device=grad.device)
        src = torch.empty((block.num_src, heads), device=grad.device)
        aggregation.sum_rows(block.kernels, grad, of_dst, dst)
        aggregation.sum_rows(block.kernels, grad, of_src, src)
        return src, dst, None


class _DeviceEdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        alpha = torch.empty_like(scores)
        inputs = (block.indptr, scores.contiguous(), or_null(block.importance))
        block.kernels.launch("edge_softmax", *inputs, *_sizes(block, scores.shape[1]), alpha)
        ctx.block = block
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (alpha,) = ctx.saved_tensors
        block: BlockArrays = ctx.block
        inputs, out = (block.indptr, alpha, grads[0].contiguous()), torch.empty_like(alpha)
        block.kernels.launch("edge_softmax_backward", *inputs, *_sizes(block, alpha.shape[1]), out)
        return out, None


class _DeviceHeadSum(torch.autograd.Function):
    """Sums over the edges e into i for each head k, ``sum_e alpha[e, k] z[indices[e], k]``."""

    @staticmethod
    def forward(ctx: Any, alpha: torch.Tensor, z: torch.Tensor, block: BlockArrays) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(alpha, z)
        out = torch.empty((block.num_dst, *z.shape[1:]), device=z.device)
        rows, sums = z.flatten(1), out.flatten(1)
        aggregation.sum_rows(
            block.kernels, rows, block.lists, sums, weights=alpha, heads=z.shape[1]
        )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        alpha, z = ctx.saved_tensors
        block: BlockArrays = ctx.block
        grad = grads[0].contiguous()
        order, destinations, first = block.by_source
        grad_alpha, grad_z = torch.empty_like(alpha), torch.empty_like(z)
        heads, width = z.shape[1:]
        inputs = (grad, z, block.indices, destinations)
        sizes = (np.int64(heads), np.int64(width), block.num_used, np.int64(block.num_edges))
        block.kernels.launch("edge_dot", *inputs, *sizes, grad_alpha)
        ends = destinations.index_select(0, order)
        lists = RowSegments(indptr=first, indices=ends, num_rows=block.num_vertices[1:])
        rows, sums, weights = grad.flatten(1), grad_z.flatten(1), alpha.index_select(0, order)
        aggregation.sum_rows(block.kernels, rows, lists, sums, weights=weights, heads=heads)
        return grad_alpha, grad_z, None


def _sizes(block: BlockArrays, num_heads: int) -> tuple[Any, torch.Tensor, torch.Tensor, Any]:
    """Return kernel arguments: heads, valid vertices, valid edges, and the capacity of edges."""
    return np.int64(num_heads), block.num_vertices, block.num_used, np.int64(block.num_edges)


class DeviceMessageSums:
    """Reductions of messages by destination; messages past the valid edges are ignored."""

    def __init__(self, block: BlockArrays, degrees: torch.Tensor | None) -> None:
        """Prepare the reductions over the destinations of ``block``.

        ``degrees`` are ``[num_src]`` in-degrees in the full graph, to which sampled sums are
        scaled. None: the block has all neighbors.
        """
        self.num_dst = block.num_dst  #: capacity of destinations
        #: ``[num_edges]`` int64 destination of each edge; 0 past the valid edges
        self.dst = block.destinations().long()
        self._block = replace(block, edge_weights=None, weight_sums=None)
        self._degrees = degrees

    def sum(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the sum of each destination's ``messages``, ``[num_dst, ...]``.

        ``messages`` are ``[num_edges, ...]``. Sums of sampled messages are scaled to estimate sums
        over all neighbors, as on the host.
        """
        scale = None
        if self._degrees is not None and self._block.importance is None:
            scale = aggregation.coefficients(self._block, Rule.SUM, self._degrees).dst_scale
        return self._summed(messages, scale)

    def mean(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the mean ``[num_dst, ...]`` of each destination's messages; 0 without messages.

        In layer-wise samples it is the estimate of the mean over all neighbors.
        """
        block = self._block
        if self._degrees is None:
            block = replace(block, importance=None)
        scale = aggregation.coefficients(block, Rule.MEAN, self._degrees).dst_scale
        return self._summed(messages, scale)

    def max(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the elementwise maximum of each destination's messages, 0 without messages.

        Messages with the maximum share its gradient equally.
        """
        flat = messages.flatten(1).contiguous()
        out: torch.Tensor = _DeviceSegmentMax.apply(flat, self._block, self.dst)  # type: ignore[no-untyped-call]
        return out.view(self.num_dst, *messages.shape[1:])

    def _summed(self, messages: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        flat = messages.flatten(1).contiguous()
        out: torch.Tensor = _DeviceSegmentSum.apply(flat, self._block, scale, self.dst)  # type: ignore[no-untyped-call]
        return out.view(self.num_dst, *messages.shape[1:])


class _DeviceSegmentSum(torch.autograd.Function):
    """Sums by destination: ``out[i] = scale[i] * sum_e importance[e] * messages[e]``.

    A missing factor is 1.
    """

    @staticmethod
    def forward(
        ctx: Any,
        messages: torch.Tensor,
        block: BlockArrays,
        scale: torch.Tensor | None,
        dst: torch.Tensor,
    ) -> torch.Tensor:
        ctx.block, ctx.scale, ctx.dst = block, scale, dst
        return _sum(messages, block, scale)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        block: BlockArrays = ctx.block
        grad = grads[0] if ctx.scale is None else grads[0] * ctx.scale[:, None]
        out = grad.index_select(0, ctx.dst)
        if block.importance is not None:
            out = out * block.importance[:, None]
        return torch.where(block.is_edge()[:, None], out, 0), None, None, None


class _DeviceSegmentMax(torch.autograd.Function):
    """Maxima by destination: ``out[i] = max_e messages[e]``, 0 for a destination without edges."""

    @staticmethod
    def forward(
        ctx: Any, messages: torch.Tensor, block: BlockArrays, dst: torch.Tensor
    ) -> torch.Tensor:
        is_edge = block.is_edge()[:, None]
        targets = dst[:, None].expand_as(messages)
        lowest = torch.where(is_edge, messages, -torch.inf)
        out = messages.new_full((block.num_dst, messages.shape[1]), -torch.inf)
        out.scatter_reduce_(0, targets, lowest, "amax")
        counts = _sum(is_edge.to(messages.dtype), replace(block, importance=None), None)
        out = torch.where(counts > 0, out, 0)
        ctx.block, ctx.dst = block, dst
        ctx.save_for_backward(messages, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        messages, largest = ctx.saved_tensors
        block: BlockArrays = ctx.block
        chosen = (messages == largest.index_select(0, ctx.dst)) & block.is_edge()[:, None]
        shared = _sum(chosen.to(messages.dtype), replace(block, importance=None), None)
        out = (grads[0] / shared.clamp(min=1)).index_select(0, ctx.dst)
        return torch.where(chosen, out, 0), None, None


def _sum(messages: torch.Tensor, block: BlockArrays, scale: torch.Tensor | None) -> torch.Tensor:
    edges = torch.arange(block.num_edges, dtype=torch.int32, device=messages.device)
    lists = RowSegments(indptr=block.indptr, indices=edges, num_rows=block.num_vertices)
    out = messages.new_empty(block.num_dst, messages.shape[1])
    weights = block.importance
    aggregation.sum_rows(block.kernels, messages, lists, out, weights=weights, dst_scale=scale)
    return out
