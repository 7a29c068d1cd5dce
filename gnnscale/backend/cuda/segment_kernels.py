"""Sums, means and maxima of messages over the edges of a device block; see ``Segments``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gnnscale.backend.cuda.aggregation import coefficients, sum_rows
from gnnscale.backend.cuda.block_edges import BlockArrays, RowSegments
from gnnscale.nn.device_block import Rule


class DeviceMessageSums:
    """Reductions of messages by destination; messages past the valid edges are ignored."""

    def __init__(self, block: BlockArrays, degrees: torch.Tensor | None) -> None:
        """Prepare the reductions; ``degrees`` of None: the block has all neighbors."""
        self.num_dst = block.num_dst  #: capacity of destinations
        #: ``[num_edges]`` int64 destination of each edge; 0 past the valid edges
        self.dst = block.destinations().long()
        self._block = replace(block, edge_weights=None, weight_sums=None)
        self._degrees = degrees

    def sum(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the sum of each destination's messages ``[num_edges, ...]``, ``[num_dst, ...]``.

        Sums of sampled messages estimate those over all neighbors, as on the host.
        """
        scale = None
        if self._degrees is not None and self._block.importance is None:
            scale = coefficients(self._block, Rule.SUM, self._degrees).dst_scale
        return self._summed(messages, self._block, scale)

    def mean(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the mean of each destination's messages; zeros without messages."""
        block = self._block
        if self._degrees is None:
            block = replace(block, importance=None)
        scale = coefficients(block, Rule.MEAN, self._degrees).dst_scale
        return self._summed(messages, self._block, scale)

    def max(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the maximum of each destination's messages; zeros without messages.

        Messages with equal maxima share the gradient.
        """
        flat = messages.flatten(1).contiguous()
        out: torch.Tensor = _DeviceSegmentMax.apply(flat, self._block, self.dst)  # type: ignore[no-untyped-call]
        return out.view(self.num_dst, *messages.shape[1:])

    def _summed(
        self, messages: torch.Tensor, block: BlockArrays, scale: torch.Tensor | None
    ) -> torch.Tensor:
        flat = messages.flatten(1).contiguous()
        out: torch.Tensor = _DeviceSegmentSum.apply(flat, block, scale, self.dst)  # type: ignore[no-untyped-call]
        return out.view(self.num_dst, *messages.shape[1:])


class _DeviceSegmentSum(torch.autograd.Function):
    """``out[i] = scale[i] * sum_e importance[e] * messages[e]``."""

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
    """``out[i] = max_e messages[e]``, 0 for a destination without edges."""

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
    out = torch.empty(
        (block.num_dst, messages.shape[1]), dtype=messages.dtype, device=messages.device
    )
    sum_rows(
        block.kernels,
        messages,
        RowSegments(indptr=block.indptr, indices=edges, num_rows=block.num_vertices),
        out,
        weights=block.importance,
        dst_scale=scale,
    )
    return out
