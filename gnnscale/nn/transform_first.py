"""Layers that multiply each vertex's row once, before rows are aggregated: for all vertices.

A layer as it is trained multiplies the rows of a mini-batch: those of sources if products come
first, and aggregated rows else. Over all vertices, sources are there in every chunk of edges again,
and aggregated rows are as wide as features. Here a pass over all rows makes what is aggregated of
each; some of its columns at a time, if not all fit into memory. Hidden rows are multiplied for the
next layer while they are in memory (``ProjectedLayer``).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gnnscale.core import Array, Traffic
from gnnscale.features import Aggregation, FeatureStore
from gnnscale.nn.conv.gat import AttentionLayer, attend, with_self_edges
from gnnscale.nn.conv.linear import (
    Degrees,
    GraphLayer,
    LinearAggregationLayer,
    linear,
    say_unweighted,
)
from gnnscale.nn.conv.pooling import PoolingLayer
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.segment_ops import neighbor_max
from gnnscale.ops.products import multiply
from gnnscale.sampling import Block

#: Made rows are filled up to a multiple of so many columns, and made so many at a time: products
#: and sums of vectors' widths are the fastest.
_COLUMNS = 16


class TransformedStore(FeatureStore):
    """Made rows of vertices, and the rows that they were made of."""

    def own(self, vertices: Array) -> torch.Tensor:
        """Return the rows ``[n, num_in]`` float32 that those of ``vertices`` were made of."""
        raise NotImplementedError

    def sums(
        self, vertices: Array, block: Block, degrees: Degrees, layer: LinearAggregationLayer
    ) -> torch.Tensor:
        """Return neighbours' rows aggregated as in ``layer``, ``[num_dst, width]``.

        If that concatenates a vertex's own row, this is left out; else it is added.
        """
        raise NotImplementedError


class TransformFirstLayer(GraphLayer):
    """A layer without what ``make`` does to each row; weights are read at each call."""

    #: columns that are made of a row
    width: int
    #: a pass makes a multiple of so many of them
    step: int = _COLUMNS
    #: whether ``update`` takes the rows of destinations that were not made
    reads_own: bool = False
    #: whether the whole layer multiplies the rows of sources, and so each of them in many chunks
    repeats: bool = False
    columns: tuple[int, int]  #: ``(first, last + 1)`` of those that ``make`` and ``sums`` are of

    def __init__(self, layer: GraphLayer, width: int) -> None:
        """Take what follows ``make`` from ``layer``."""
        super().__init__()
        # In a tuple: a module that is an attribute would be a part of this one.
        self._whole: tuple[Any, ...] = (layer,)
        self.uses_degrees = layer.uses_degrees
        self.width = width
        self.columns = (0, width)

    def part(self, first: int, end: int) -> TransformFirstLayer:
        """Return the layer whose ``make`` and ``sums`` are of these columns alone."""
        found = copy(self)
        found.columns = (first, end)
        return found

    @property
    def reads_rows(self) -> bool:
        """Whether ``load`` reads the rows of destinations that were not made."""
        return self.reads_own

    def make(self, h: torch.Tensor) -> torch.Tensor:
        """Return what is aggregated of rows ``h`` ``[n, num_in]``, ``[n, columns]``."""
        raise NotImplementedError

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> torch.Tensor:
        """Return aggregated rows ``[num_dst, columns]``.

        Args:
            store: a ``TransformedStore`` of what ``make`` returns.
            vertices: ``[num_src]``.
        """
        raise NotImplementedError

    def load(
        self,
        store: FeatureStore,
        vertices: Array,
        block: Block,
        degrees: Degrees,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return aggregated rows, and beside them those of destinations if ``reads_own``."""
        assert isinstance(store, TransformedStore)
        sums = self.sums(store, vertices, block, degrees, num_threads)
        if self.reads_own:
            sums = torch.cat([sums, store.own(vertices[: block.num_dst])], dim=1)
        return sums, Traffic()


class LinearTransformFirst(TransformFirstLayer):
    """GCN, GraphSAGE and GIN: ``W sum_u c_u h_u = sum_u c_u (W h_u)``.

    With ``projects=False``, rows are aggregated as they are, some columns of them at a time.
    """

    aggregates_on_load = True

    def __init__(self, layer: LinearAggregationLayer, width_in: int, *, projects: bool) -> None:
        """Split the product of ``layer``."""
        product = layer.product
        assert product is not None
        super().__init__(layer, _filled(product.out_features) if projects else width_in)
        self.projects = projects  #: whether ``make`` multiplies
        self._width_in = width_in
        self.reads_own = product.in_features == 2 * width_in

    def make(self, h: torch.Tensor) -> torch.Tensor:
        """Multiply with the weights of aggregated rows."""
        first, end = self.columns
        if not self.projects:
            return h[:, first:end]
        weight = _split(self._whole[0].product, self._width_in)[0][first:end]
        return multiply(h, _padded(weight, end - first))

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> torch.Tensor:
        """Sum neighbours' rows with the coefficients of the layer."""
        assert isinstance(store, TransformedStore)
        return store.sums(vertices, block, degrees, self._whole[0])

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Add the product of a vertex's own row, and do what is left of the layer."""
        (layer,) = self._whole
        sums, own = x[:, : self.width], x[:, self.width :]
        if not self.projects:
            return layer.update(torch.cat([own, sums], dim=1), block, degrees)  # type: ignore[no-any-return]
        product = layer.product
        h = sums[:, : product.out_features]
        if product.bias is not None:
            h = h + product.bias
        if self.reads_own:
            h = torch.addmm(h, own, _split(product, self._width_in)[1].t())
        return layer.finish(h)  # type: ignore[no-any-return]


class AttentionTransformFirst(TransformFirstLayer):
    """GAT and GATv2, whose every row is projected once."""

    repeats = True

    def __init__(self, layer: AttentionLayer) -> None:
        """Split the product of ``layer``, head by head."""
        super().__init__(layer, layer.num_heads * layer.width)
        self.step = layer.width

    @property
    def reads_rows(self) -> bool:
        """If destinations are projected by other weights."""
        return self._whole[0].own_product is not None

    def make(self, h: torch.Tensor) -> torch.Tensor:
        """Project rows."""
        return _columns_of(self._whole[0].linear, h, self.columns)

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> torch.Tensor:
        """Sum projected rows by attention."""
        (layer,) = self._whole
        rows, _ = store.gather(vertices, dtype=torch.float32, num_threads=num_threads)
        z = rows.view(len(vertices), -1, layer.width)
        own = z[: block.num_dst]
        if layer.own_product is not None:
            assert isinstance(store, TransformedStore)
            found = store.own(vertices[: block.num_dst])
            own = _columns_of(layer.own_product, found, self.columns).view_as(own)
        if block.edge_weights is not None:
            say_unweighted(layer.named)
        heads = slice(*(each // layer.width for each in self.columns))
        block = with_self_edges(block)
        return attend(layer.scores(own, z, block, None, heads), z, block).flatten(1)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Concatenate or average the heads."""
        (layer,) = self._whole
        return layer.merge(x.view(len(x), layer.num_heads, layer.width))  # type: ignore[no-any-return]


class PoolingTransformFirst(TransformFirstLayer):
    """GraphSAGE with the pooling aggregator, whose every message is made once."""

    repeats = True
    reads_own = True

    def __init__(self, layer: PoolingLayer) -> None:
        """Split the products of ``layer``."""
        super().__init__(layer, layer.pool.out_features)

    def make(self, h: torch.Tensor) -> torch.Tensor:
        """Make messages."""
        return _columns_of(self._whole[0].pool, h, self.columns).relu_()

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> torch.Tensor:
        """Return the maximum of the neighbours' messages."""
        if block.edge_weights is not None:
            say_unweighted("model=sage model.aggregator=pool")
        rows, _ = store.gather(vertices, dtype=torch.float32, num_threads=num_threads)
        return neighbor_max(rows, block)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply own and pooled rows."""
        own, pooled = x[:, self.width :], x[:, : self.width]
        return linear(self._whole[0].linear, torch.cat([own, pooled], dim=1))


def _columns_of(product: nn.Linear, h: torch.Tensor, columns: tuple[int, int]) -> torch.Tensor:
    """Return these columns of the product of rows ``h``."""
    first, end = columns
    bias = None if product.bias is None else product.bias[first:end]
    return multiply(h, product.weight[first:end], bias)


class ProjectedLayer(LinearAggregationLayer):
    """A layer without its product, for rows that were multiplied before they are aggregated.

    The aggregation and the product are linear, so that their order does not matter:
    ``W sum_u c_u h_u = sum_u c_u (W h_u)``. If a vertex's own row is concatenated, the product
    with ``W = W_own ‖ W_neighbours`` splits into ``W_own h_v + sum_u c_u (W_neighbours h_u)``.
    Weights are read at each call.
    """

    def __init__(self, layer: LinearAggregationLayer, width_in: int) -> None:
        """Split the product of ``layer``."""
        super().__init__()
        linear = layer.linear
        assert isinstance(linear, nn.Linear)
        # In a tuple: a module that is an attribute would be a part of this one.
        self._whole = (layer, linear)
        self.uses_degrees = layer.uses_degrees
        #: 2 if a vertex has a row of its own besides the aggregated one
        self.num_parts = linear.in_features // width_in
        #: columns of a row that is aggregated, the layer's outputs filled up with zeros
        self.width = _filled(linear.out_features)

    @classmethod
    def of(cls, layer: GraphLayer, width_in: int) -> ProjectedLayer | None:
        """Return ``layer`` so, or None if it cannot be, or rows would be no narrower."""
        if not (layer.splits_columns and isinstance(layer, LinearAggregationLayer)):
            return None
        projected = cls(layer, width_in)
        return projected if projected.num_parts * projected.width < width_in else None

    @torch.no_grad()
    def project(self, h: torch.Tensor) -> torch.Tensor:
        """Multiply rows ``h`` ``[n, width_in]``.

        Returns:
            ``[n, num_parts * width]``: rows to be aggregated, and beside them the vertices' own.
        """
        weights = _split(self._whole[1], h.shape[1])
        return multiply(h, torch.cat([_padded(each, self.width) for each in weights]))

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the whole layer's coefficients; a vertex's own row is added in any case."""
        return replace(self._whole[0].aggregation(block, degrees), self_term="add")

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Add the bias."""
        _, linear = self._whole
        return x[:, : linear.out_features] + linear.bias

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the whole layer's."""
        return self._whole[0].cost(width_in, width_out)


def made_rows_layer(layer: GraphLayer, width_in: int) -> TransformFirstLayer | None:
    """Return ``layer`` so, or None if its rows are not made one by one.

    Those of a layer that sums are only multiplied first if that makes them narrower.
    """
    if layer.uses_edge_features:
        return None
    if isinstance(layer, AttentionLayer):
        return AttentionTransformFirst(layer)
    if isinstance(layer, PoolingLayer):
        return PoolingTransformFirst(layer)
    if not isinstance(layer, LinearAggregationLayer) or layer.product is None:
        return None
    projects = _filled(layer.product.out_features) < width_in
    return LinearTransformFirst(layer, width_in, projects=projects)


def _filled(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


def _split(product: nn.Linear, width_in: int) -> tuple[torch.Tensor, ...]:
    """Return the weights of aggregated rows, and those of a vertex's own if it is concatenated.

    Each is ``[out_features, width_in]``. Columns of ``product`` begin with those of the own row.
    """
    return tuple(reversed(torch.split(product.weight, width_in, dim=1)))


def _padded(weight: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return ``weight`` with rows of zeros after its own."""
    return nn.functional.pad(weight, (0, 0, 0, num_rows - len(weight)))
