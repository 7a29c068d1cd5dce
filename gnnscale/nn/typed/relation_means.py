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
    """Mean or sum over the edges of one edge type, times a factor."""

    source: int  #: number of the source vertex type
    block: Block  #: the edges
    #: ``[num_dst]``, the factor, of a mean divided by the number or weight of edges
    scale: Float32Array
    #: ``[num_dst]``, what one and the same row of all sources is multiplied with: of a mean the
    #: factor; of a sum the factor times the number or weight of edges; 0 without edges or weight
    share: Float32Array

    @classmethod
    def of(cls, source: int, block: Block, factor: float, *, sums: bool = False) -> "RelationMean":
        """Return the mean over ``block``, by edge weights if it has such, times ``factor``.

        ``sums``: the sum, times edge weights if it has such.
        """
        divisors = mean_divisors(block, None)
        has_rows = (np.diff(block.indptr) > 0) & (divisors > np.finfo(np.float32).tiny)
        if sums:
            scale, share = np.full(block.num_dst, factor, np.float32), has_rows * divisors * factor
        else:
            scale, share = np.float32(factor) / divisors, has_rows * factor
        return cls(source=source, block=block, scale=scale, share=share.astype(np.float32))

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

    @property
    def types(self) -> list[int]:
        """Vertex types of the own row and of the sources of each mean."""
        return [self.vertex_type, *(mean.source for mean in self.means)]

    def weights_of(self, weight: Tensor, widths: Sequence[int], needed: Sequence[bool]) -> Tensor:
        """Return the columns of ``weight`` that multiply rows of the vertex types ``needed``.

        ``widths`` are those of the rows of each type.
        """
        types = self.types
        if not self.has_shares and all(needed[number] for number in types):
            return weight
        parts = torch.split(weight, [widths[number] + self.has_shares for number in types], 1)
        pairs = zip(types, parts, strict=True)
        return torch.cat([part[:, : widths[t]] for t, part in pairs if needed[t]], 1)

    def build(self, rows: Sequence[SourceRows], *, num_threads: int) -> Tensor:
        """Return the columns ``[num_dst, sum of widths]`` of ``rows``, by vertex type."""
        widths = [rows[number].width + self.has_shares for number in self.types]
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
    """``columns(rows) W^T + b`` for each vertex type."""

    @staticmethod
    def forward(
        ctx: Any, columns: Sequence[MeanColumns | Tensor], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        number = len(columns)
        weights, biases = tensors[-2 * number : -number], tensors[-number:]
        rows = tensors[: -2 * number]
        sources, threads = list(map(SourceRows.of, rows)), torch.get_num_threads()
        products = [
            part if isinstance(part, Tensor) else part.build(sources, num_threads=threads)
            for part in columns
        ]
        ctx.columns = columns
        ctx.shapes = [(len(part), part.shape[1]) for part in rows]
        ctx.save_for_backward(*products, *weights)
        return tuple(map(multiply, products, weights, biases))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        number = len(ctx.columns)
        built, weights = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        grads = tuple(grad.contiguous() for grad in grads)
        needs_rows = ctx.needs_input_grad[1 : 1 + len(ctx.shapes)]
        row_grads: Sequence[Tensor | None] = [None] * len(ctx.shapes)
        if any(needs_rows):
            row_grads = _row_gradients(ctx.columns, ctx.shapes, grads, weights, needs_rows)
        weight_grads = map(weight_gradient, built, grads)
        return None, *row_grads, *weight_grads, *(grad.sum(0) for grad in grads)


def multiply_means(
    rows: Sequence[Tensor],
    columns: Sequence[MeanColumns | Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
) -> list[Tensor]:
    """Return ``columns(rows) W^T + b``, ``[num_dst, width_out]``, of each vertex type.

    Args:
        rows: by vertex type ``[num_src, width]`` float32. Those that need a gradient have one
            width. Empty: ``columns`` are built.
        columns: the columns of each vertex type, or what their ``build`` returns.
        weights: by vertex type ``[width_out, sum of widths]``.
        biases: by vertex type ``[width_out]``.
    """
    out = _MeansProduct.apply(columns, *rows, *weights, *biases)  # type: ignore[no-untyped-call]
    return list(out)


def _row_gradients(
    columns: Sequence[MeanColumns],
    shapes: Sequence[tuple[int, int]],
    grads: Sequence[Tensor],
    weights: Sequence[Tensor],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Return the gradient of the rows of the vertex types ``needed``, from those of all products.

    The gradients of their columns lie in one matrix, with a row for each own row and each mean: a
    single pass sums all that a source has part in. ``shapes`` are those of the rows of each type.
    """
    strides = [sum(needed[number] for number in of_type.types) for of_type in columns]
    sizes = [of_type.num_dst * stride for of_type, stride in zip(columns, strides, strict=True)]
    first_rows = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    widths = [width for _, width in shapes]
    width = widths[needed.index(True)]
    flat = ops.empty((first_rows[-1], width), torch.float32)
    own_rows, sources = [flat] * len(columns), [_SourceEdges() for _ in columns]
    for of_type, first, stride, grad, weight in zip(
        columns, first_rows, strides, grads, weights, strict=False
    ):
        if not stride:
            continue
        numbers = np.arange(first, first + of_type.num_dst * stride, stride, dtype=np.int32)
        part = flat[first : first + len(numbers) * stride].view(len(numbers), stride * width)
        multiply_into(grad, of_type.weights_of(weight, widths, needed).t(), out=part)
        own_rows[of_type.vertex_type] = part[:, :width]
        means = [mean for mean in of_type.means if needed[mean.source]]
        for position, mean in enumerate(means, stride - len(means)):
            sources[mean.source].add(mean, numbers + np.int32(position))
    threads = torch.get_num_threads()
    return [
        edges.sums(flat, root, count).total(torch.float32, num_threads=threads) if need else None
        for edges, root, (count, _), need in zip(sources, own_rows, shapes, needed, strict=True)
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
