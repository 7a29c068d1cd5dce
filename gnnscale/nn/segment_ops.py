"""Sums, means and maxima over the edges of each destination, with gradients in a fixed order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.core import Float32Array, Int32Array
from gnnscale.nn.conv.linear import Degrees
from gnnscale.nn.device_block import DeviceBlock, MessageSums
from gnnscale.nn.functional import sum_scale
from gnnscale.sampling import Block

#: Reductions of ``Segments``.
REDUCTIONS = ("sum", "mean", "max")


class Segments:
    """Reductions of messages over the edges of each destination of a block.

    Sums run in the order of the edges, forward and backward, for any number of threads. Two
    destinations with two edges and one::

        segments = Segments(Block(indptr=[0, 2, 3], ...), None)
        segments.sum(torch.tensor([[1.0], [2.0], [5.0]]))  # [[3.0], [5.0]]
    """

    def __init__(self, block: Block, degrees: Degrees) -> None:
        """Group the edges of ``block`` by destination.

        ``degrees``: in-degrees, to scale sums of sampled neighbors; None: all neighbors are given.
        """
        self.num_dst = block.num_dst  #: number of destinations
        counts = np.diff(block.indptr)
        #: ``[num_edges]`` int64 destination of each edge, ascending
        self.dst = torch.from_numpy(np.repeat(np.arange(block.num_dst), counts))
        self._block = block
        self._degrees = degrees
        self._counts = counts

    def sum(self, messages: Tensor) -> Tensor:
        """Return the sums ``[num_dst, ...]`` of the messages ``[num_edges, ...]``.

        A sum over sampled neighbors estimates the sum over all neighbors: it is multiplied by
        degree / number sampled, or its edges are weighted by their importance.
        """
        scale = None if self._degrees is None else sum_scale(self._block, self._degrees)
        return self._reduce(_SegmentSum, messages, scale)

    def mean(self, messages: Tensor) -> Tensor:
        """Return the mean of each destination's messages, zeros without messages.

        If edges have importance (layer-wise sampling) and degrees are given, the sum weighted by
        importance is divided by the degree: an estimate of the mean over all neighbors.
        """
        count = self._counts
        if self._block.importance is not None and self._degrees is not None:
            # Importance makes the sum an estimate of the full sum, which has degree terms.
            count = self._degrees[: self.num_dst]
        scale = np.float32(1) / np.maximum(count, 1).astype(np.float32)
        return self._reduce(_SegmentSum, messages, scale)

    def max(self, messages: Tensor) -> Tensor:
        """Return the maximum of each destination's messages, zeros without messages.

        Messages that are equal to the maximum share its gradient equally.
        """
        return self._reduce(_SegmentMax, messages, self.dst)

    def _reduce(self, function: Any, messages: Tensor, argument: Any) -> Tensor:
        flat = messages.flatten(1).contiguous()
        out: Tensor = function.apply(flat, self._block, argument)
        return out.view(self.num_dst, *messages.shape[1:])


class _SegmentSum(torch.autograd.Function):
    """``out[i] = scale[i] * sum_e importance[e] * messages[e]``, over edges e of destination i."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, block: Block, scale: Float32Array | None) -> Tensor:
        ctx.block, ctx.scale = block, scale
        return ops.aggregate(
            messages,
            block.indptr,
            np.arange(block.num_edges, dtype=np.int32),
            weights=block.importance,
            dst_scale=scale,
            out=ops.empty((block.num_dst, messages.shape[1]), messages.dtype),
            num_threads=torch.get_num_threads(),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        block: Block = ctx.block
        grad = grads[0] if ctx.scale is None else grads[0] * torch.from_numpy(ctx.scale)[:, None]
        out = _rows(grad.contiguous(), _destinations(block))
        if block.importance is not None:
            out *= torch.from_numpy(block.importance)[:, None]
        return out, None, None


class _SegmentMax(torch.autograd.Function):
    """``out[i] = max_e messages[e]``, over edges e of destination i; 0 without edges."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, block: Block, dst: Tensor) -> Tensor:
        out = messages.new_full((block.num_dst, messages.shape[1]), -torch.inf)
        out.scatter_reduce_(0, dst[:, None].expand_as(messages), messages, "amax")
        out[torch.from_numpy(np.diff(block.indptr) == 0)] = 0
        ctx.block = block
        ctx.save_for_backward(messages, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        messages, largest = ctx.saved_tensors
        block: Block = ctx.block
        dst = _destinations(block)
        chosen = (messages == _rows(largest, dst)).to(messages.dtype)
        shared = _SegmentSum.apply(chosen, _unweighted(block), None)  # type: ignore[no-untyped-call]
        out = _rows(grads[0] / shared.clamp(min=1), dst)
        return out.mul_(chosen), None, None


class _NeighborMax(torch.autograd.Function):
    """``out[i] = max_e x[indices[e]]``, over edges e of destination i; 0 without edges."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block) -> Tensor:
        shape = (block.num_dst, x.shape[1])
        counts = ops.empty(shape, torch.float32) if ctx.needs_input_grad[0] else None
        out = ops.aggregate_max(
            x,
            block.indptr,
            block.indices,
            out=ops.empty(shape, x.dtype),
            counts=counts,
            num_threads=torch.get_num_threads(),
        )
        ctx.block = block
        ctx.save_for_backward(x, out, counts)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, largest, counts = ctx.saved_tensors
        block: Block = ctx.block
        indptr, indices, _ = ops.transpose_block(block.indptr, block.indices, block.num_src)
        out = ops.aggregate_max_backward(
            x,
            largest,
            # Destinations without edges divide 0 by 0; no edge reads their rows.
            grads[0].contiguous() / counts,
            indptr,
            indices,
            out=ops.empty(tuple(x.shape), x.dtype),
            num_threads=torch.get_num_threads(),
        )
        return out, None


class _SelectRows(torch.autograd.Function):
    """``out[n] = x[ids[n]]``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Int32Array) -> Tensor:
        ctx.ids, ctx.num_rows = ids, len(x)
        return _rows(x, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].contiguous()
        indptr, indices, _ = ops.transpose_block(np.arange(len(grad) + 1), ctx.ids, ctx.num_rows)
        out = ops.aggregate(
            grad,
            indptr,
            indices,
            out=ops.empty((ctx.num_rows, grad.shape[1]), grad.dtype),
            num_threads=torch.get_num_threads(),
        )
        return out, None


def message_sums(block: Block, degrees: Degrees) -> MessageSums:
    """Return an object that reduces messages over the edges of ``block``, on the block's device.

    ``degrees``: in-degrees, to scale sums of sampled neighbors; None: all neighbors are given.
    """
    if isinstance(block, DeviceBlock):
        return block.sums(degrees)  # type: ignore[arg-type]
    return Segments(block, degrees)


def neighbor_max(x: Tensor, block: Block) -> Tensor:
    """Return the maxima ``[num_dst, f]`` of neighbors' rows, with gradient; zeros without any.

    Edges that share a maximum share its gradient. On the host no row per edge is stored. ``x`` is
    ``[num_src, f]`` float32 or bfloat16.
    """
    if isinstance(block, DeviceBlock):
        sums = block.sums(None)
        return sums.max(take(x.float(), block.sources())).to(x.dtype)  # type: ignore[arg-type]
    return _NeighborMax.apply(x.contiguous(), block)  # type: ignore[no-untyped-call, no-any-return]


def take(x: Tensor, ids: Int32Array) -> Tensor:
    """Return rows ``ids`` ``[n]`` of ``x`` ``[num_rows, ...]``, with gradient.

    On the host, the gradients of a row that ``ids`` repeat are summed in the order of ``ids``. For
    a block on a device, ``ids`` are a tensor on the device.
    """
    if isinstance(ids, Tensor):
        return x.index_select(0, ids)
    out: Tensor = _SelectRows.apply(x.flatten(1).contiguous(), ids)  # type: ignore[no-untyped-call]
    return out.view(len(ids), *x.shape[1:])


def _rows(x: Tensor, ids: Int32Array) -> Tensor:
    out = ops.empty((len(ids), x.shape[1]), x.dtype)
    return ops.gather(x, ids, out=out, num_threads=torch.get_num_threads())


def _destinations(block: Block) -> Int32Array:
    return np.repeat(np.arange(block.num_dst, dtype=np.int32), np.diff(block.indptr))


def _unweighted(block: Block) -> Block:
    return Block(indptr=block.indptr, indices=block.indices, num_src=block.num_src)


def cut_block(block: Block, num_edges: int) -> Iterator[tuple[int, Block]]:
    """Cut ``block`` between destinations, and yield ``(first, part)`` for each part.

    A part has about ``num_edges`` edges, or those of one destination with more, and all sources;
    ``first`` is the number of its first destination in ``block``.
    """
    if block.num_edges <= num_edges:
        yield 0, block
        return
    cuts = np.flatnonzero(np.diff(block.indptr[:-1] // num_edges)) + 1
    for first, end in zip([0, *cuts], [*cuts, block.num_dst], strict=True):
        indptr = block.indptr[first : end + 1]
        edges = slice(indptr[0], indptr[-1])
        importance, weights, attr = (
            None if values is None else values[edges]
            for values in (block.importance, block.edge_weights, block.edge_attr)
        )
        part = Block(
            indptr=indptr - indptr[0],
            indices=block.indices[edges],
            num_src=block.num_src,
            importance=importance,
            edge_weights=weights,
            edge_attr=attr,
        )
        yield first, part
