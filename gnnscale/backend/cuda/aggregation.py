"""Arrays of a device block, and linear aggregation over it, equal to the host's bit for bit.

Sums run in edge order, those of gradients in the order of the block transposed by a stable sort, so
that no sum depends on the schedule of threads.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.kernels import (
    NULL,
    Argument,
    Kernels,
    columns_at_once,
    or_null,
    row_bytes,
    row_type,
)
from gnnscale.nn.device_block import Activation, Rule
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class RowSegments:
    """Segments in CSR form: result row i sums the rows ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: torch.Tensor  #: ``[n + 1]`` int64
    indices: torch.Tensor  #: int32
    num_rows: torch.Tensor  #: ``[1]`` int64 on the device: number of valid rows


@dataclass(frozen=True, kw_only=True)
class BlockArrays(Block):
    """Block in device memory, whose numbers of edges and vertices only the device may know.

    Its arrays are tensors. ``num_src``, ``num_dst`` and ``num_edges`` are capacities; entries past
    the valid ones are undefined.
    """

    indptr: torch.Tensor  # type: ignore[assignment]
    indices: torch.Tensor  # type: ignore[assignment]
    importance: torch.Tensor | None = None  # type: ignore[assignment]
    edge_vertices: torch.Tensor | None = None  # type: ignore[assignment]
    edge_weights: torch.Tensor | None = None  # type: ignore[assignment]
    weight_sums: torch.Tensor | None = None  # type: ignore[assignment]
    kernels: Kernels  #: kernels of the device
    vertices: torch.Tensor  #: ``[num_src]`` int32 or int64 vertices of the graph by local id
    num_vertices: torch.Tensor  #: ``[2]`` int64: valid destinations and valid sources
    num_used: torch.Tensor  #: ``[1]`` int64: valid edges
    step: torch.Tensor  #: ``[1]`` int64: step of the run

    @cached_property
    def by_source(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Order of the edges by source: sorted edges, destinations, and each source's offset.

        ``[num_edges]`` int64 edges, stably sorted by source; ``[num_edges]`` int32 destination of
        each edge, in the block's order; ``[num_src + 1]`` int64 first position of each source in
        the first array, then the number of valid edges.
        """
        keys, destinations = torch.empty_like(self.indices), torch.empty_like(self.indices)
        edges = (self.indptr, self.indices, self.num_vertices, self.num_used)
        sizes = (np.int64(self.num_edges), np.int32(self.num_src))
        self.kernels.launch("block_edges", *edges, *sizes, keys, destinations)
        ordered, order = torch.sort(keys, stable=True)
        sources = torch.arange(self.num_src + 1, dtype=torch.int32, device=keys.device)
        return order, destinations, torch.searchsorted(ordered, sources)

    def destinations(self) -> torch.Tensor:
        """Return the destination of each edge, ``[num_edges]`` int32; 0 past the valid edges."""
        return self.by_source[1]

    def sources(self) -> torch.Tensor:
        """Return the source of each edge, ``[num_edges]`` int32; 0 past the valid edges."""
        return torch.where(self.is_edge(), self.indices, 0)

    def is_edge(self) -> torch.Tensor:
        """Return whether each edge is valid, ``[num_edges]`` bool."""
        return torch.arange(self.num_edges, device=self.indices.device) < self.num_used

    @property
    def lists(self) -> RowSegments:
        """The block in CSR form: local ids of the sources of each destination."""
        return RowSegments(indptr=self.indptr, indices=self.indices, num_rows=self.num_vertices)

    def aggregate(
        self, h: torch.Tensor, rule: Rule, degrees: torch.Tensor | None, act: Activation | None
    ) -> torch.Tensor:
        """Return each destination's sources' rows of ``h`` combined by ``rule``, with gradient.

        ``h`` has a row per source, the result a row per destination, whose own row is added, or for
        ``MEAN`` placed before the mean. ``act``, if given, first activates ``h`` in place.
        ``degrees`` are ``[num_src]`` float32 in-degrees in the full graph, if ``rule`` uses them.
        """
        factors = coefficients(self, rule, degrees)
        out: torch.Tensor = _DeviceAggregate.apply(h, self, factors, act)  # type: ignore[no-untyped-call]
        return out


#: ``Rule`` of coefficients.cu.
_RULES = {Rule.SYMMETRIC: 0, Rule.MEAN: 1, Rule.SUM: 2}


@dataclass(frozen=True, kw_only=True)
class DeviceCoefficients:
    """Factors of a block's aggregation, for edges, destinations' sums and destinations' own rows.

    Entries past the valid edges and destinations are undefined.
    """

    concatenates: bool  #: whether a destination's row is concatenated to its sum, or added
    weights: torch.Tensor | None = None  #: ``[num_edges]`` float32. None: ones
    dst_scale: torch.Tensor | None = None  #: ``[num_dst]`` float32. None: ones
    self_scale: torch.Tensor | None = None  #: ``[num_dst]`` float32. None: ones

    def scaled(self, factor: float) -> "DeviceCoefficients":
        """Return coefficients for ``factor`` times as large sums and own rows of destinations."""
        if factor == 1.0:
            return self
        size = self.dst_scale
        assert size is not None
        self_scale = torch.ones_like(size) if self.self_scale is None else self.self_scale
        return replace(self, dst_scale=size * factor, self_scale=self_scale * factor)


def coefficients(
    block: BlockArrays, rule: Rule, degrees: torch.Tensor | None
) -> DeviceCoefficients:
    """Return the coefficients of aggregation ``rule`` over ``block``.

    ``degrees`` are ``[num_src]`` float32 in the full graph, if ``rule`` uses them. A coefficient is
    NaN if it depends on an unknown weight sum, NaN in the block.
    """

    def make(is_used: bool, size: int) -> torch.Tensor | None:
        return torch.empty(size, device=block.indptr.device) if is_used else None

    symmetric = rule is Rule.SYMMETRIC
    weighted = symmetric or block.importance is not None or block.edge_weights is not None
    result = DeviceCoefficients(
        concatenates=rule is Rule.MEAN,
        weights=make(weighted, block.num_edges),
        dst_scale=make(True, block.num_dst),
        self_scale=make(symmetric, block.num_dst),
    )
    weights = (block.importance, block.edge_weights, block.weight_sums, degrees)
    factors = (result.weights, result.dst_scale, result.self_scale)
    block.kernels.launch(
        "coefficients",
        *(np.int64(_RULES[rule]), block.indptr, block.indices, *map(or_null, weights)),
        *(block.num_vertices, block.num_used, *map(or_null, factors)),
    )
    return result


class _DeviceAggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: torch.Tensor,
        block: BlockArrays,
        factors: DeviceCoefficients,
        act: Activation | None,
    ) -> torch.Tensor:
        ctx.block, ctx.coefficients, ctx.scale = block, factors, None
        if act is not None:
            # In place, since the operation that computed h does not save it for its gradient.
            ctx.scale = act.apply_(h)
            ctx.save_for_backward(h)
        return _forward(block, h, factors, vertices=None, dtype=h.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        block: BlockArrays = ctx.block
        factors: DeviceCoefficients = ctx.coefficients.scaled(ctx.scale or 1.0)
        grad = grads[0].contiguous()
        width = grad.shape[1] // (2 if factors.concatenates else 1)
        lists, weights = transposed(block, factors.weights, factors.dst_scale)
        out = torch.empty((block.num_src, width), dtype=grad.dtype, device=grad.device)
        sum_rows(
            block.kernels,
            grad[:, grad.shape[1] - width :],
            lists,
            out,
            weights=weights,
            self_rows=grad[:, :width],
            self_scale=factors.self_scale,
            gate=None if ctx.scale is None else ctx.saved_tensors[0],
            num_self_rows=block.num_vertices,
        )
        return out, None, None, None


def load_aggregated(
    block: BlockArrays,
    table: torch.Tensor,
    rule: Rule,
    degrees: torch.Tensor | None,
    *,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return rows of ``table`` aggregated while they are read, without gradient.

    Source ``i`` has row ``block.vertices[i]`` of ``table``, ``[num_rows, f]``. ``degrees`` are
    ``[num_src]`` float32 in the full graph, if ``rule`` uses them. The result is ``[num_dst, f]``,
    for ``MEAN`` ``[num_dst, 2 * f]`` with the destinations' rows first, of ``dtype`` float32 or
    bfloat16.
    """
    factors = coefficients(block, rule, degrees)
    return _forward(block, table, factors, vertices=block.vertices, dtype=dtype)


def transposed(
    block: BlockArrays, weights: torch.Tensor | None, dst_scale: torch.Tensor | None
) -> tuple[RowSegments, torch.Tensor | None]:
    """Return the transposed block: the destinations of each source, in the order of the edges.

    The second result has the weight of each edge in the transposed block's order, ``weights[e] *
    dst_scale[dst]``, ``[num_edges]`` float32; a factor None is 1. None if both factors are.
    """
    order, destinations, indptr = block.by_source
    capacity = block.num_edges
    out = torch.empty_like(destinations)
    scaled = None
    if weights is not None or dst_scale is not None:
        scaled = torch.empty(capacity, device=out.device)
    inputs = (order, destinations, or_null(weights), or_null(dst_scale), np.int64(capacity))
    block.kernels.launch("transposed_edges", *inputs, out, or_null(scaled))
    return RowSegments(indptr=indptr, indices=out, num_rows=block.num_vertices[1:]), scaled


def vertex_floats(
    kernels: Kernels, table: torch.Tensor, vertices: torch.Tensor, count: torch.Tensor
) -> torch.Tensor:
    """Return ``table[vertices]``, ``[n]`` float32, with 0 from index ``count`` on.

    ``count`` is the number of valid ``vertices``, ``[1]`` int64 on the device.
    """
    return _floats(kernels, table, NULL, NULL, vertices, count)


def degrees_of(
    kernels: Kernels,
    graph: DeviceGraph,
    vertices: torch.Tensor,
    count: torch.Tensor,
    *,
    full_degrees: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the in-degrees of ``vertices``, ``[n]`` float32, with 0 from index ``count`` on.

    ``count`` is the number of valid ``vertices``, ``[1]`` int64 on the device. If ``graph`` is a
    partition, ``full_degrees`` are the in-degrees in the full graph, ``[num_vertices]`` int32.
    """
    if full_degrees is not None:
        return _floats(kernels, NULL, NULL, full_degrees, vertices, count)
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
    wide, size = np.int32(vertices.dtype == torch.int64), np.int64(len(vertices))
    kernels.launch("vertex_floats", table, indptr, degrees, vertices, wide, count, size, out)
    return out


def _forward(
    block: BlockArrays,
    x: torch.Tensor,
    factors: DeviceCoefficients,
    *,
    vertices: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    width = x.shape[1]
    columns = width * (2 if factors.concatenates else 1)
    out = torch.empty((block.num_dst, columns), dtype=dtype, device=block.indptr.device)
    sum_rows(
        block.kernels,
        x,
        block.lists,
        out[:, columns - width :],
        vertices=vertices,
        weights=factors.weights,
        dst_scale=factors.dst_scale,
        self_rows=x,
        self_scale=factors.self_scale,
        self_out=out[:, :width] if factors.concatenates else None,
        num_self_rows=block.num_vertices,
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
    self_rows: torch.Tensor | None = None,
    self_scale: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    self_out: torch.Tensor | None = None,
    num_self_rows: torch.Tensor | None = None,
) -> None:
    """Write the sums of source rows over the segments ``lists`` into ``out`` (aggregate.cu).

    Args:
        x: ``[n, f]`` source rows.
        lists: local ids of the sources of each sum.
        out: ``[m, f]``, written; rows past the last of ``lists`` become zeros.
        vertices: row of ``x`` by local id. None: local ids are rows.
        weights: ``[num_edges, heads]`` float32 factors of source rows. None: ones.
        heads: number of heads; each has f / heads columns.
        dst_scale: ``[m]`` float32 factors of sums. None: ones.
        self_rows: rows of the type of ``x``, found by local id as in ``x``. Row i is added to sum
            i, or copied to row i of ``self_out``.
        self_scale: ``[m]`` float32 factors of added ``self_rows``. None: ones.
        gate: ``[m, f]``; ``out`` is 0 where ``gate`` is not positive.
        self_out: ``[m, f]``, written. None: ``self_rows`` are added.
        num_self_rows: ``[1]`` int64 number of sums with a row in ``self_rows``.
    """
    columns = columns_at_once(x, out, self_rows, gate, self_out)
    if heads > 1 and out.shape[1] // heads % columns:
        columns = 1
    wide = vertices is not None and vertices.dtype == torch.int64
    kernels.launch(
        f"aggregate_{x.element_size()}_{columns}",
        *(x, np.int64(row_bytes(x)), np.int64(row_type(x)), np.int64(out.shape[1])),
        *(lists.indptr, lists.indices, or_null(vertices), np.int64(wide)),
        *(or_null(weights), np.int64(heads), or_null(dst_scale), or_null(self_scale)),
        *(or_null(self_rows), np.int64(0 if self_rows is None else row_bytes(self_rows))),
        *(or_null(gate), np.int64(0 if gate is None else row_bytes(gate))),
        *(out, np.int64(row_bytes(out)), np.int64(row_type(out)), or_null(self_out)),
        *(np.int64(len(out)), lists.num_rows, or_null(num_self_rows)),
    )
