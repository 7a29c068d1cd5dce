"""Means of neighbors' rows by edge type, and one product for all edge types of a destination type.

The own rows of the destinations and the means of their edge types are columns of one matrix, which
is multiplied by weights of all edge types together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.core import Float32Array, Int32Array
from gnnscale.features.typed import SourceRows
from gnnscale.nn.conv.linear import mean_divisors
from gnnscale.nn.optim.update_rules import RowSums
from gnnscale.ops.products import multiply, multiply_into, weight_gradient
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class RelationMean:
    """Mean over the edges of one edge type, times a factor."""

    source: int  #: number of the source vertex type
    block: Block  #: the edges
    scale: Float32Array  #: ``[num_dst]``, the factor divided by the number or weight of edges
    #: ``[num_dst]``, the factor; 0 for a destination without edges, or with weights of 0
    share: Float32Array

    @classmethod
    def of(cls, source: int, block: Block, factor: float) -> "RelationMean":
        """Return the mean over ``block``, by edge weights if it has such, times ``factor``."""
        divisors = mean_divisors(block, None)
        scale = np.float32(factor) / divisors
        has_mean = (np.diff(block.indptr) > 0) & (divisors > np.finfo(np.float32).tiny)
        return cls(source=source, block=block, scale=scale, share=has_mean * np.float32(factor))

    def write(self, rows: SourceRows, *, out: Tensor, num_threads: int) -> None:
        """Write the means of the sources' ``rows`` to ``out``, ``[num_dst, width]``."""
        ops.aggregate(
            rows.matrix,
            self.block.indptr,
            self.block.indices,
            ids=rows.ids,
            weights=self.block.edge_weights,
            dst_scale=self.scale,
            out=out,
            num_threads=num_threads,
        )


@dataclass(frozen=True, kw_only=True)
class MeanColumns:
    """Own rows and means of the destinations of one vertex type, side by side.

    The columns are the own row, then each of ``means``. With ``has_shares``, a column follows the
    own row, with ones, and one each mean, with its share: the bias of a linear layer before the
    mean is multiplied with it.
    """

    vertex_type: int
    num_dst: int  #: number of destinations
    means: tuple[RelationMean, ...]  #: edge types with edges
    has_shares: bool = False

    def build(self, rows: Sequence[SourceRows], *, num_threads: int) -> Tensor:
        """Return the columns ``[num_dst, sum of widths]`` of ``rows``, by vertex type."""
        types = [self.vertex_type, *(mean.source for mean in self.means)]
        widths = [rows[number].width + self.has_shares for number in types]
        out = ops.empty((self.num_dst, sum(widths)), torch.float32)
        root, *parts = torch.split(out, widths, 1)
        x = rows[self.vertex_type]
        ids = np.arange(self.num_dst, dtype=np.int32) if x.ids is None else x.ids[: self.num_dst]
        ops.gather(x.matrix, ids, out=root[:, : x.width], num_threads=num_threads)
        root[:, x.width :] = 1
        for mean, part in zip(self.means, parts, strict=True):
            x = rows[mean.source]
            mean.write(x, out=part[:, : x.width], num_threads=num_threads)
            if self.has_shares:
                part[:, -1] = torch.from_numpy(mean.share)
        return out


class _MeansProduct(torch.autograd.Function):
    """``columns(rows) W^T + b`` for each vertex type; all columns have a gradient, or no rows."""

    @staticmethod
    def forward(ctx: Any, columns: Sequence[MeanColumns], *tensors: Tensor) -> tuple[Tensor, ...]:
        number = len(columns)
        rows, weights, biases = (tensors[i * number : (i + 1) * number] for i in range(3))
        sources = [SourceRows.of(part) for part in rows]
        threads = torch.get_num_threads()
        products = [of_type.build(sources, num_threads=threads) for of_type in columns]
        ctx.columns = columns
        ctx.num_rows = [len(part) for part in rows]
        ctx.save_for_backward(*products, *weights)
        return tuple(map(multiply, products, weights, biases))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        number = len(ctx.columns)
        built, weights = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        grads = tuple(grad.contiguous() for grad in grads)
        needs_rows = ctx.needs_input_grad[1 : 1 + number]
        row_grads: Sequence[Tensor | None] = [None] * number
        if any(needs_rows):
            row_grads = _row_gradients(ctx.columns, ctx.num_rows, grads, weights)
        weight_grads = map(weight_gradient, built, grads)
        return None, *row_grads, *weight_grads, *(grad.sum(0) for grad in grads)


def multiply_means(
    rows: Sequence[Tensor],
    columns: Sequence[MeanColumns],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
) -> list[Tensor]:
    """Return ``columns(rows) W^T + b``, ``[num_dst, width_out]``, of each vertex type.

    Args:
        rows: by vertex type ``[num_src, width]`` float32. If they need a gradient, all have the
            same width.
        columns: the columns of each vertex type.
        weights: by vertex type ``[width_out, sum of widths]``.
        biases: by vertex type ``[width_out]``.
    """
    out = _MeansProduct.apply(columns, *rows, *weights, *biases)  # type: ignore[no-untyped-call]
    return list(out)


def _row_gradients(
    columns: Sequence[MeanColumns],
    num_rows: Sequence[int],
    grads: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> list[Tensor]:
    """Return the gradient of the rows of each vertex type, from those of all products.

    The gradients of all columns lie in one matrix, with a row for each own row and each mean: a
    single pass sums all that a source has part in.
    """
    strides = [1 + len(of_type.means) for of_type in columns]
    sizes = [of_type.num_dst * stride for of_type, stride in zip(columns, strides, strict=True)]
    first_rows = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    width = weights[0].shape[1] // strides[0]
    flat = ops.empty((first_rows[-1], width), torch.float32)
    own_rows, sources = [], [_SourceEdges() for _ in columns]
    for of_type, first, stride, grad, weight in zip(
        columns, first_rows, strides, grads, weights, strict=False
    ):
        numbers = np.arange(first, first + of_type.num_dst * stride, stride, dtype=np.int32)
        part = flat[first : first + len(numbers) * stride].view(len(numbers), stride * width)
        multiply_into(grad, weight.t(), out=part)
        own_rows.append(part[:, :width])
        for position, mean in enumerate(of_type.means, 1):
            sources[mean.source].add(mean, numbers + np.int32(position))
    return [
        edges.sums(flat, root, count).total(torch.float32, num_threads=torch.get_num_threads())
        for edges, root, count in zip(sources, own_rows, num_rows, strict=True)
    ]


class _SourceEdges:
    """Edges of all edge types from one vertex type, to rows of a matrix of gradients."""

    def __init__(self) -> None:
        self._means: list[RelationMean] = []
        self._rows: list[Int32Array] = []

    def add(self, mean: RelationMean, rows: Int32Array) -> None:
        """Add the edges of ``mean``; ``rows`` has the gradient's row of each destination."""
        self._means.append(mean)
        self._rows.append(rows)

    def sums(self, gradients: Tensor, own_rows: Tensor, num_src: int) -> RowSums:
        """Return the gradients of ``num_src`` sources; the first ones have ``own_rows``."""
        indptr, indices = np.zeros(num_src + 1, np.int64), np.zeros(0, np.int32)
        weights = None
        if self._means:
            blocks = [mean.block for mean in self._means]
            indptr, indices, weights = ops.transpose_block(
                _joined_offsets(blocks),
                np.concatenate([block.indices for block in blocks]),
                num_src,
                weights=_joined_weights(blocks),
                dst_scale=np.concatenate([mean.scale for mean in self._means]),
            )
            indices = np.concatenate(self._rows)[indices]
        return RowSums(
            rows=gradients,
            indptr=indptr,
            indices=indices,
            weights=weights,
            self_rows=own_rows,
            num_self=len(own_rows),
        )


def _joined_offsets(blocks: Sequence[Block]) -> Any:
    """Return the ``indptr`` of the lists of all ``blocks``, one after the other."""
    lengths = [np.diff(block.indptr) for block in blocks]
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))])


def _joined_weights(blocks: Sequence[Block]) -> Float32Array | None:
    """Return the edge weights of all ``blocks``; None: no block has such."""
    if all(block.edge_weights is None for block in blocks):
        return None
    weights = [
        np.ones(block.num_edges) if block.edge_weights is None else block.edge_weights
        for block in blocks
    ]
    return np.concatenate(weights).astype(np.float32, copy=False)
