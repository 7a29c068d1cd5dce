"""Transform-first layers for exact inference: multiply every vertex's row, then aggregate.

A ``TransformFirstLayer`` transforms each row once, in blocks of columns if memory is short, where
training would multiply a source's row in each chunk of edges. ``ProjectedLayer`` multiplies hidden
rows for the next layer while they are in memory.
"""

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core import Array, Traffic
from gnnscale.features import Aggregation, FeatureStore, WrappedStore
from gnnscale.nn.conv.gat import AttentionLayer, attend, with_self_edges
from gnnscale.nn.conv.linear import (
    Degrees,
    GraphLayer,
    LinearAggregationLayer,
    linear,
    warn_unweighted,
)
from gnnscale.nn.conv.pooling import PoolingLayer
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.segment_ops import neighbor_max
from gnnscale.ops.products import multiply
from gnnscale.sampling import Block

#: Transformed rows are padded to a multiple of this number of columns, the width of a vector of
#: float32, at which products and sums are fastest.
_COLUMNS = 16


class TransformedStore(WrappedStore):
    """Store of transformed rows, which can also return the rows before the transformation."""

    def features_of(self, vertices: Array) -> Tensor:
        """Return the rows ``[n, num_in]`` float32 of ``vertices`` before the transformation."""
        raise NotImplementedError

    def sums(
        self, vertices: Array, block: Block, degrees: Degrees, layer: LinearAggregationLayer
    ) -> Tensor:
        """Return transformed rows of the sources ``vertices``, aggregated over edges of ``block``.

        The result ``[num_dst, width]`` has ``layer``'s coefficients. A self term that ``layer``
        adds is included; a self term that it concatenates is not.
        """
        raise NotImplementedError


class TransformFirstLayer(GraphLayer):
    """Layer split into ``make``, which transforms a row, and the aggregation of transformed rows.

    It shares the weights of the trained layer, and reads them at each call. One layer of 64 output
    features, computed in two blocks of columns::

        for columns in (0, 32), (32, 64):
            half = layer.part(*columns)
            rows = half.make(h)  # [n, 32], of all vertices
    """

    #: columns of a transformed row
    width: int
    #: divisor of the number of columns in a block
    step: int = _COLUMNS
    #: whether ``update`` reads the destinations' rows before the transformation
    reads_own: bool = False
    #: whether the trained layer multiplies source rows, and thus a row once per chunk it is in
    repeats: bool = False
    columns: tuple[int, int]  #: ``(first, last + 1)`` of the columns that ``make`` computes

    def __init__(self, layer: GraphLayer, width: int) -> None:
        """Split ``layer``, whose transformed rows have ``width`` columns."""
        super().__init__()
        # A tuple: nn.Module would register the layer as a submodule.
        self._layers: tuple[Any, ...] = (layer,)
        self.uses_degrees = layer.uses_degrees
        self.width = width
        self.columns = (0, width)

    def part(self, first: int, end: int) -> "TransformFirstLayer":
        """Return a copy whose ``make`` and ``sums`` compute columns ``first`` to ``end - 1``."""
        layer = copy(self)
        layer.columns = (first, end)
        return layer

    @property
    def reads_rows(self) -> bool:
        """Whether ``load`` reads the destinations' untransformed rows."""
        return self.reads_own

    def make(self, h: Tensor) -> Tensor:
        """Transform rows ``h`` ``[n, num_in]``; return this layer's ``columns`` of the result."""
        raise NotImplementedError

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> Tensor:
        """Return transformed rows ``[num_dst, columns]``, aggregated over the edges of ``block``.

        ``store`` has the rows that ``make`` returned; ``vertices`` are the sources. ``degrees`` are
        ``[num_src]`` float32 in-degrees, if the layer uses them.
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
    ) -> tuple[Tensor, Traffic]:
        """Return aggregated transformed rows; with ``reads_own``, joined with destinations' rows.

        The latter are rows before the transformation. The returned traffic is empty.
        """
        assert isinstance(store, TransformedStore)
        sums = self.sums(store, vertices, block, degrees, num_threads)
        if self.reads_own:
            sums = torch.cat([sums, store.features_of(vertices[: block.num_dst])], dim=1)
        return sums, Traffic()


class LinearTransformFirst(TransformFirstLayer):
    """Transform-first GCN, GraphSAGE and GIN: ``W sum_u c_u h_u = sum_u c_u (W h_u)``.

    With ``projects=False``, rows are aggregated in blocks of columns and multiplied afterwards.
    """

    aggregates_on_load = True

    def __init__(self, layer: LinearAggregationLayer, width_in: int, *, projects: bool) -> None:
        """Split ``layer`` at its product; ``projects``: the product comes first, then aggregation.

        Input rows have ``width_in`` features.
        """
        product = layer.product
        assert product is not None
        super().__init__(layer, _padded_width(product.out_features) if projects else width_in)
        self.projects = projects  #: whether ``make`` multiplies
        self._width_in = width_in
        self.reads_own = product.in_features == 2 * width_in

    def make(self, h: Tensor) -> Tensor:
        """Return ``columns`` of ``h`` or, if ``projects``, of its product with the weights.

        With a concatenated self term, these are the weights for aggregated rows.
        """
        first, end = self.columns
        if not self.projects:
            return h[:, first:end]
        weight = _split(self._layers[0].product, self._width_in)[0][first:end]
        return multiply(h, _padded(weight, end - first))

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> Tensor:
        """Return sums ``[num_dst, columns]`` of neighbors' rows with the layer's coefficients."""
        assert isinstance(store, TransformedStore)
        return store.sums(vertices, block, degrees, self._layers[0])

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the output rows for ``x``: sums, joined with destinations' rows if ``reads_own``.

        Sums that ``make`` has not projected are multiplied here.
        """
        (layer,) = self._layers
        sums, dst_rows = x[:, : self.width], x[:, self.width :]
        if not self.projects:
            return layer.update(torch.cat([dst_rows, sums], dim=1), block, degrees)  # type: ignore[no-any-return]
        product = layer.product
        h = sums[:, : product.out_features]
        if product.bias is not None:
            h = h + product.bias
        if self.reads_own:
            h = torch.addmm(h, dst_rows, _split(product, self._width_in)[1].t())
        return layer.finish(h)  # type: ignore[no-any-return]


class AttentionTransformFirst(TransformFirstLayer):
    """Transform-first GAT and GATv2: each row is projected once."""

    repeats = True

    def __init__(self, layer: AttentionLayer) -> None:
        """Split ``layer`` at its projection; a block of columns holds whole heads."""
        super().__init__(layer, layer.num_heads * layer.width)
        self.step = layer.width

    @property
    def reads_rows(self) -> bool:
        """Whether destinations have their own projection, for which ``load`` reads their rows."""
        return self._layers[0].dst_linear is not None

    def make(self, h: Tensor) -> Tensor:
        """Return ``columns`` of the projections of rows ``h`` as sources."""
        return _multiply_columns(self._layers[0].linear, h, self.columns)

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> Tensor:
        """Return the attention-weighted sums ``[num_dst, columns]`` of projected rows."""
        (layer,) = self._layers
        rows, _ = store.gather(vertices, dtype=torch.float32, num_threads=num_threads)
        z = rows.view(len(vertices), -1, layer.width)
        dst_rows = z[: block.num_dst]
        if layer.dst_linear is not None:
            assert isinstance(store, TransformedStore)
            source_rows = store.features_of(vertices[: block.num_dst])
            product = _multiply_columns(layer.dst_linear, source_rows, self.columns)
            dst_rows = product.view_as(dst_rows)
        if block.edge_weights is not None:
            warn_unweighted(layer.option_name)
        heads = slice(*(column // layer.width for column in self.columns))
        block = with_self_edges(block)
        return attend(layer.scores(dst_rows, z, block, None, heads), z, block).flatten(1)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the output rows: aggregated heads ``x``, concatenated or averaged, plus bias."""
        (layer,) = self._layers
        return layer.merge(x.view(len(x), layer.num_heads, layer.width))  # type: ignore[no-any-return]


class PoolingTransformFirst(TransformFirstLayer):
    """Transform-first GraphSAGE with the pooling aggregator: each message is computed once."""

    repeats = True
    reads_own = True

    def __init__(self, layer: PoolingLayer) -> None:
        """Split ``layer`` between its product for messages and its product after the maximum."""
        super().__init__(layer, layer.pool.out_features)

    def make(self, h: Tensor) -> Tensor:
        """Return ``columns`` of the messages ``relu(W_pool h + b_pool)`` of rows ``h``."""
        return _multiply_columns(self._layers[0].pool, h, self.columns).relu_()

    def sums(
        self, store: FeatureStore, vertices: Array, block: Block, degrees: Degrees, num_threads: int
    ) -> Tensor:
        """Return the maxima ``[num_dst, columns]`` of the neighbors' messages."""
        if block.edge_weights is not None:
            warn_unweighted("model=sage model.aggregator=pool")
        rows, _ = store.gather(vertices, dtype=torch.float32, num_threads=num_threads)
        return neighbor_max(rows, block)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the output rows: the weights times ``h_v ‖ pooled row``, both found in ``x``."""
        dst_rows, pooled = x[:, self.width :], x[:, : self.width]
        return linear(self._layers[0].linear, torch.cat([dst_rows, pooled], dim=1))


def _multiply_columns(product: nn.Linear, h: Tensor, columns: tuple[int, int]) -> Tensor:
    """Return ``columns`` ``(first, last + 1)`` of the output of ``product`` for rows ``h``."""
    first, end = columns
    bias = None if product.bias is None else product.bias[first:end]
    return multiply(h, product.weight[first:end], bias)


class ProjectedLayer(LinearAggregationLayer):
    """Layer without its product, for rows that were multiplied before they are aggregated.

    Aggregation and product are linear: ``W sum_u c_u h_u = sum_u c_u (W h_u)``. With a concatenated
    self term, the product with ``W = W_own ‖ W_neighbors`` splits into ``W_own h_v + sum_u c_u
    (W_neighbors h_u)``. Weights are read at each call.
    """

    def __init__(self, layer: LinearAggregationLayer, width_in: int) -> None:
        """Split ``layer`` at its product; input rows have ``width_in`` features."""
        super().__init__()
        linear = layer.linear
        assert isinstance(linear, nn.Linear)
        # A tuple: nn.Module would register the layers as submodules.
        self._layers = (layer, linear)
        self.uses_degrees = layer.uses_degrees
        #: parts of a projected row: 1, the row to aggregate; 2, also the vertex's own row
        self.num_parts = linear.in_features // width_in
        #: columns of a row to aggregate: the layer's outputs, padded with zeros
        self.width = _padded_width(linear.out_features)

    @classmethod
    def of(cls, layer: GraphLayer, width_in: int) -> "ProjectedLayer | None":
        """Return the projected ``layer``; None: it cannot be split, or rows get no narrower."""
        if not (layer.splits_columns and isinstance(layer, LinearAggregationLayer)):
            return None
        projected = cls(layer, width_in)
        return projected if projected.num_parts * projected.width < width_in else None

    @torch.no_grad()
    def project(self, h: Tensor) -> Tensor:
        """Return rows ``h`` ``[n, width_in]`` times the weights: ``[n, num_parts * width]``.

        The first ``width`` columns are the row to aggregate. With two parts, the remaining columns
        are the self term, which a destination adds to its sum.
        """
        weights = _split(self._layers[1], h.shape[1])
        return multiply(h, torch.cat([_padded(weight, self.width) for weight in weights]))

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the original layer's coefficients; its self term is added, never concatenated."""
        return replace(self._layers[0].aggregation(block, degrees), self_term="add")

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return ``x``, projected and then aggregated rows, without padding columns, plus bias."""
        _, linear = self._layers
        return x[:, : linear.out_features] + linear.bias

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the cost of the original layer, including its product."""
        return self._layers[0].cost(width_in, width_out)


def transform_first_layer(layer: GraphLayer, width_in: int) -> TransformFirstLayer | None:
    """Return the transform-first form of ``layer``; None: it has no transformation of single rows.

    A layer with a linear aggregation multiplies first only if that makes rows narrower. None also
    if the layer reads edge features.
    """
    if layer.uses_edge_features:
        return None
    if isinstance(layer, AttentionLayer):
        return AttentionTransformFirst(layer)
    if isinstance(layer, PoolingLayer):
        return PoolingTransformFirst(layer)
    if not isinstance(layer, LinearAggregationLayer) or layer.product is None:
        return None
    projects = _padded_width(layer.product.out_features) < width_in
    return LinearTransformFirst(layer, width_in, projects=projects)


def _padded_width(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


def _split(product: nn.Linear, width_in: int) -> tuple[Tensor, ...]:
    """Return the columns of ``product``'s weights that multiply aggregated rows.

    With a concatenated self term, the columns that multiply a destination's own row follow.
    """
    return tuple(reversed(torch.split(product.weight, width_in, dim=1)))


def _padded(weight: Tensor, num_rows: int) -> Tensor:
    """Return ``weight`` with rows of zeros appended, ``num_rows`` in all."""
    return nn.functional.pad(weight, (0, 0, 0, num_rows - len(weight)))
