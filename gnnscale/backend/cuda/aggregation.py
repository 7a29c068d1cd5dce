"""Linear aggregation over a block on a device, equal to the host's to the bit.

Coefficients are made by kernels. Sums run in the order of the edges, those of gradients over a
block that was turned around by a stable sort: no sum depends on which thread comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale.backend.cuda import kernels as layouts
from gnnscale.backend.cuda.block_edges import BlockArrays, RowSegments
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.kernels import NULL, Argument, Kernels, or_null
from gnnscale.nn.device_block import Activation, Rule

#: ``Rule`` of coefficients.cu.
_RULES = {Rule.SYMMETRIC: 0, Rule.MEAN: 1, Rule.SUM: 2}


@dataclass(frozen=True, kw_only=True)
class DeviceCoefficients:
    """``Aggregation`` of a block on a device; entries after those that count hold anything."""

    concatenates: bool  #: whether a destination's own row is kept beside its sum, or added
    weights: torch.Tensor | None = None  #: ``[num_edges]`` float32, None for ones
    dst_scale: torch.Tensor | None = None  #: ``[num_dst]`` float32, None for ones
    self_scale: torch.Tensor | None = None  #: ``[num_dst]`` float32, None for ones

    def scaled(self, factor: float) -> DeviceCoefficients:
        """Return the coefficients of sums that are ``factor`` times as large."""
        if factor == 1.0:
            return self
        size = self.dst_scale
        assert size is not None
        own = torch.full_like(size, factor) if self.self_scale is None else self.self_scale * factor
        return DeviceCoefficients(
            concatenates=self.concatenates,
            weights=self.weights,
            dst_scale=size * factor,
            self_scale=own,
        )


def coefficients(
    block: BlockArrays, rule: Rule, degrees: torch.Tensor | None
) -> DeviceCoefficients:
    """Return what the edges of ``block`` count under ``rule``, as the layers of the host count.

    Of a symmetric rule in which a vertex's sum of weights is not known (NaN), sums are NaN.
    """

    def make(wanted: bool, size: int) -> torch.Tensor | None:
        return torch.empty(size, device=block.indptr.device) if wanted else None

    symmetric = rule is Rule.SYMMETRIC
    weighted = symmetric or block.importance is not None or block.edge_weights is not None
    found = DeviceCoefficients(
        concatenates=rule is Rule.MEAN,
        weights=make(weighted, block.num_edges),
        dst_scale=make(True, block.num_dst),
        self_scale=make(symmetric, block.num_dst),
    )
    block.kernels.launch(
        "coefficients",
        np.int64(_RULES[rule]),
        block.indptr,
        block.indices,
        or_null(block.importance),
        or_null(block.edge_weights),
        or_null(block.weight_sums),
        or_null(degrees),
        block.num_vertices,
        block.num_used,
        or_null(found.weights),
        or_null(found.dst_scale),
        or_null(found.self_scale),
        grid=layouts.grid(block.kernels),
    )
    return found


class _DeviceAggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: torch.Tensor,
        block: BlockArrays,
        found: DeviceCoefficients,
        act: Activation | None,
    ) -> torch.Tensor:
        ctx.block, ctx.coefficients, ctx.scale = block, found, None
        if act is not None:
            # In place: the operation that computed h does not need it for its own gradient.
            ctx.scale = act.apply_(h)
            ctx.save_for_backward(h)
        return _forward(block, h, found, vertices=None, dtype=h.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        block: BlockArrays = ctx.block
        found: DeviceCoefficients = ctx.coefficients.scaled(ctx.scale or 1.0)
        grad = grads[0].contiguous()
        width = grad.shape[1] // (2 if found.concatenates else 1)
        lists, weights = transposed(block, found.weights, found.dst_scale)
        out = torch.empty((block.num_src, width), dtype=grad.dtype, device=grad.device)
        sum_rows(
            block.kernels,
            grad[:, grad.shape[1] - width :],
            lists,
            out,
            weights=weights,
            own=grad[:, :width],
            self_scale=found.self_scale,
            gate=None if ctx.scale is None else ctx.saved_tensors[0],
            num_own=block.num_vertices,
        )
        return out, None, None, None


def aggregate(
    block: BlockArrays,
    h: torch.Tensor,
    rule: Rule,
    degrees: torch.Tensor | None,
    act: Activation | None,
) -> torch.Tensor:
    """Activate ``h`` and aggregate it, with gradient; see ``DeviceBlock.aggregate``."""
    found = coefficients(block, rule, degrees)
    out: torch.Tensor = _DeviceAggregate.apply(h, block, found, act)  # type: ignore[no-untyped-call]
    return out


def load_aggregated(
    block: BlockArrays,
    table: torch.Tensor,
    rule: Rule,
    degrees: torch.Tensor | None,
    *,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Aggregate rows of a table while they are read (fused load-aggregate), without gradient.

    Args:
        table: ``[num_rows, f]``, of which row ``block.vertices[i]`` is that of source ``i``.
        dtype: of the result, float32 or bfloat16.

    Returns:
        ``[num_dst, f]``, or ``[num_dst, 2 f]`` if own rows are concatenated.
    """
    found = coefficients(block, rule, degrees)
    return _forward(block, table, found, vertices=block.vertices, dtype=dtype)


def transposed(
    block: BlockArrays, weights: torch.Tensor | None, dst_scale: torch.Tensor | None
) -> tuple[RowSegments, torch.Tensor | None]:
    """Turn a block around: the destinations of every source, in the order of the edges.

    Returns:
        The lists, and ``weights[e] * dst_scale[dst]`` ``[num_edges]`` float32 in their order; None
        if both are.
    """
    order, destinations, indptr = block.by_source()
    capacity = block.num_edges
    out = torch.empty_like(destinations)
    scaled = None
    if weights is not None or dst_scale is not None:
        scaled = torch.empty(capacity, device=out.device)
    block.kernels.launch(
        "transposed_edges",
        order,
        destinations,
        or_null(weights),
        or_null(dst_scale),
        np.int64(capacity),
        out,
        or_null(scaled),
        grid=layouts.grid(block.kernels),
    )
    return RowSegments(indptr=indptr, indices=out, num_rows=block.num_vertices[1:]), scaled


def vertex_floats(
    kernels: Kernels, table: torch.Tensor, vertices: torch.Tensor, count: torch.Tensor
) -> torch.Tensor:
    """Return ``table[vertices]``, ``[n]`` float32; 0 after the first ``count`` (``[1]`` int64)."""
    return _floats(kernels, table, NULL, NULL, vertices, count)


def degrees_of(
    kernels: Kernels,
    graph: DeviceGraph,
    vertices: torch.Tensor,
    count: torch.Tensor,
    *,
    known: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the in-degrees of ``vertices``, ``[n]`` float32; 0 after the first ``count``.

    Args:
        count: ``[1]`` int64 on the device.
        known: ``[num_vertices]`` int32 those in the whole graph, if ``graph`` is one part of it.
    """
    if known is not None:
        return _floats(kernels, NULL, NULL, known, vertices, count)
    return _floats(kernels, NULL, graph.indptr, NULL, vertices, count)


def _floats(
    kernels: Kernels,
    table: Argument,
    indptr: Argument,
    degrees: Argument,
    vertices: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    out = torch.empty(len(vertices), device=vertices.device)
    kernels.launch(
        "vertex_floats",
        table,
        indptr,
        degrees,
        vertices,
        np.int32(vertices.dtype == torch.int64),
        count,
        np.int64(len(vertices)),
        out,
        grid=layouts.grid(kernels),
    )
    return out


def _forward(
    block: BlockArrays,
    x: torch.Tensor,
    found: DeviceCoefficients,
    *,
    vertices: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    width = x.shape[1]
    columns = width * (2 if found.concatenates else 1)
    out = torch.empty((block.num_dst, columns), dtype=dtype, device=block.indptr.device)
    sum_rows(
        block.kernels,
        x,
        block.lists,
        out[:, columns - width :],
        vertices=vertices,
        weights=found.weights,
        dst_scale=found.dst_scale,
        own=x,
        self_scale=found.self_scale,
        own_out=out[:, :width] if found.concatenates else None,
        num_own=block.num_vertices,
    )
    return out


def sum_rows(
    kernels: Kernels,
    x: torch.Tensor,
    lists: RowSegments,
    out: torch.Tensor,
    *,
    vertices: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    heads: int = 1,
    dst_scale: torch.Tensor | None = None,
    own: torch.Tensor | None = None,
    self_scale: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    own_out: torch.Tensor | None = None,
    num_own: torch.Tensor | None = None,
) -> None:
    """Launch ``aggregate`` of aggregate.cu, of as many columns at once as all rows allow.

    Args:
        x: ``[n, f]`` rows that edges read.
        out: ``[m, f]``; rows after the last of ``lists`` become zeros.
        vertices: row of ``x`` by local id; None if local ids are rows.
        weights: ``[num_edges, heads]`` float32; each head has as many columns.
        own: ``[n, f]`` rows that are added to the first ``num_own``, or written to ``own_out``.
        gate: ``[m, f]``: ``out`` is 0 if it is not positive.
    """
    columns = layouts.columns_at_once(x, out, own, gate, own_out)
    if heads > 1 and out.shape[1] // heads % columns:
        columns = 1
    kernels.launch(
        f"aggregate_{x.element_size()}_{columns}",
        x,
        np.int64(layouts.row_bytes(x)),
        np.int64(layouts.row_type(x)),
        np.int64(out.shape[1]),
        lists.indptr,
        lists.indices,
        or_null(vertices),
        np.int64(vertices is not None and vertices.dtype == torch.int64),
        or_null(weights),
        np.int64(heads),
        or_null(dst_scale),
        or_null(self_scale),
        or_null(own),
        np.int64(0 if own is None else layouts.row_bytes(own)),
        or_null(gate),
        np.int64(0 if gate is None else layouts.row_bytes(gate)),
        out,
        np.int64(layouts.row_bytes(out)),
        np.int64(layouts.row_type(out)),
        or_null(own_out),
        np.int64(len(out)),
        lists.num_rows,
        or_null(num_own),
        grid=layouts.grid(kernels),
    )
