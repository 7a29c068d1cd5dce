"""Base classes of layers (HitGNN's scatter, gather, update), and GCN, GraphSAGE and GIN."""

import logging
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale.core import Array, Float32Array, GraphError, Traffic
from gnnscale.features import Aggregation, FeatureStore
from gnnscale.graph import list_sums
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock, Rule
from gnnscale.nn.functional import Activation, aggregate, relu_dropout, sampling_totals, sum_scale
from gnnscale.ops.products import product
from gnnscale.sampling import Block

_LOG = logging.getLogger(__name__)

#: ``[num_src]`` float32 in-degrees of a block's sources in the full graph, if a layer uses them.
Degrees = Float32Array | None


class GraphLayer(nn.Module):
    """One layer: ``prepare`` activates and may aggregate rows, ``update`` computes output rows.

    The first layer may use ``load`` instead of ``prepare``: it reads rows from a feature store and
    may aggregate them in one pass. A layer whose aggregation has weights, such as attention, only
    activates rows in ``prepare``, and aggregates in ``update``::

        x = layer.prepare(h, block, degrees, act)  # [num_dst, f] if it aggregates
        h = layer.update(x, block, degrees)  # [num_dst, f_out]
    """

    #: Whether the layer's coefficients need the vertices' degrees in the full graph.
    uses_degrees: bool = False
    #: Whether ``Block.edge_attr`` is needed.
    uses_edge_features: bool = False
    #: Whether edge weights change the output.
    uses_edge_weights: bool = True
    #: Whether ``load`` aggregates, and returns rows of destinations only.
    aggregates_on_load: ClassVar[bool] = False
    #: Whether ``update`` is only the product of aggregated rows with ``self.linear``. Devices can
    #: then multiply a part of the columns each and add the products (P3), and the product can come
    #: before the aggregation (``ProjectedLayer``).
    splits_columns: ClassVar[bool] = False

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
        """Return the rows of ``vertices``, the sources of ``block``, and the bytes read.

        Layers with ``aggregates_on_load`` override it, and return rows aggregated over ``block``.
        """
        return store.gather(vertices, dtype=dtype, num_threads=num_threads)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost: by default the products with its ``nn.Linear`` modules."""
        linears = [module for module in self.modules() if isinstance(module, nn.Linear)]
        products = tuple((layer.in_features, layer.out_features) for layer in linears)
        return LayerCost(width_in=width_in, width_out=width_out, products=products)

    def prepare(self, h: Tensor, block: Block, degrees: Degrees, act: Activation | None) -> Tensor:
        """Apply ``act``, if any, to ``h`` ``[num_src, f]`` in place; return ``x`` for ``update``.

        Here ``x`` is ``h``. Layers with linear aggregation override it, and return ``h`` aggregated
        over ``block``.
        """
        return h if act is None else relu_dropout(h, act)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the output rows ``[num_dst, f_out]``, given the result of ``load`` or ``prepare``.

        Subclasses define it. ``degrees`` is None if the block has all neighbors, or the layer uses
        no degrees.
        """
        raise NotImplementedError


class LinearAggregationLayer(GraphLayer):
    """Layer whose aggregation is linear, with coefficients that do not depend on the rows."""

    aggregates_on_load: ClassVar[bool] = True
    #: The rule of ``aggregation``, for devices that compute coefficients themselves.
    rule: ClassVar[Rule]

    @property
    def product(self) -> nn.Linear | None:
        """``nn.Linear`` that ``update`` applies first; here None: ``update`` has no product.

        Its input is the aggregated row; with a concatenated self term, the vertex's own row
        followed by the aggregated row.
        """
        return None

    def finish(self, h: Tensor) -> Tensor:
        """Return the output rows from the result ``h`` of ``product``; here ``h`` itself."""
        return h

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients of the edges of ``block`` and of the destinations' own rows.

        Subclasses define it.
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
        """Return a row per destination, aggregated from ``vertices``' rows, and bytes read."""
        aggregation = self.aggregation(block, degrees)
        return store.aggregate(vertices, block, aggregation, dtype=dtype, num_threads=num_threads)

    def prepare(self, h: Tensor, block: Block, degrees: Degrees, act: Activation | None) -> Tensor:
        """Apply ``act``, if any, to ``h`` in place; return ``h`` aggregated over ``block``."""
        if isinstance(block, DeviceBlock):
            return block.aggregate(h, self.rule, degrees, act)  # type: ignore[arg-type]
        return aggregate(h, block, self.aggregation(block, degrees), act)


def edge_attr_of(block: Block) -> Tensor:
    """Return the edge features of ``block``, ``[num_edges, num_edge_features]``."""
    assert block.edge_attr is not None, "loading has checked that edges have features"
    return torch.from_numpy(block.edge_attr)


@cache
def warn_unweighted(model: str) -> None:
    """Warn that ``model`` ignores edge weights, once in a process."""
    _LOG.warning(f"{model} ignores edge weights: all edges count the same")


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return the product of rows ``x`` with ``layer``, plus its bias, in the type of ``x``."""
    if x.dtype == torch.float32:
        return product(layer, x)
    # oneDNN's bfloat16 product is a fifth faster on a transposed copy of the (small) weights.
    weight = layer.weight.to(x.dtype).t().contiguous()
    if layer.bias is None:
        return x @ weight
    return torch.addmm(layer.bias.to(x.dtype), x, weight)


def symmetric(block: Block, degrees: Degrees) -> Aggregation:
    """Return the coefficients of symmetric normalization with full-graph degrees.

    ``a[v] = sum_u h_u / sqrt(D(v) D(u))`` over u in N(v) and v itself; see ``GCNLayer``.
    GraphError: edges have weights, and a source's sum of in-edge weights is unknown.
    """
    assert degrees is not None
    sums = degrees[: block.num_src]
    if block.weight_sums is not None:
        sums = block.weight_sums
        if np.isnan(sums).any():
            raise GraphError(
                "model=gcn, sgc, appnp: expected the weights of all in-edges of both ends of an "
                "edge, got a partition's store, which lacks some of its boundary vertices; train "
                "from the store of the full graph"
            )
    root: Float32Array = np.float32(1) / np.sqrt(sums + np.float32(1))
    weights: Float32Array = root[block.indices]
    dst_scale = root[: block.num_dst]
    factors = block.edge_factors
    if factors is not None:
        weights = weights * factors
    scale = sum_scale(block, sampling_totals(block, degrees))
    return Aggregation(
        self_term="add",
        weights=weights,
        dst_scale=dst_scale if scale is None else dst_scale * scale,
        self_scale=dst_scale**2,
    )


class GCNLayer(LinearAggregationLayer):
    """``h'_v = W sum_u h_u / sqrt(D(v) D(u)) + b`` over u in N(v) and v itself.

    D counts a vertex's in-neighbors in the full graph, and the vertex itself. A sampled sum is
    multiplied by degree / number sampled, so that its expectation is the full sum.

    With edge weights, ``w_uv h_u`` is summed, and D is 1 plus the sum of in-edge weights, at both
    ends of an edge, as in ``gcn_norm`` of PyG.
    """

    uses_degrees = True
    splits_columns = True
    rule = Rule.SYMMETRIC

    def __init__(self, num_in: int, num_out: int, *, bias: bool = True) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.linear = nn.Linear(num_in, num_out, bias=bias)
        nn.init.xavier_uniform_(self.linear.weight)
        if bias:
            nn.init.zeros_(self.linear.bias)

    @property
    def product(self) -> nn.Linear:
        """``nn.Linear`` that ``update`` applies to aggregated rows."""
        return self.linear

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients of symmetric normalization with full-graph degrees."""
        return symmetric(block, degrees)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the product of aggregated rows ``x`` with the weights, plus the bias."""
        return linear(self.linear, x)


class HopLayer(LinearAggregationLayer):
    """One hop of GCN's aggregation without its matrix; see ``symmetric``."""

    uses_degrees = True
    rule = Rule.SYMMETRIC

    def __init__(self, width: int | None = None) -> None:
        """Build a hop, with a bias of ``width`` features; None: without a bias."""
        super().__init__()
        self.bias = None if width is None else nn.Parameter(torch.zeros(width))

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients of symmetric normalization with full-graph degrees."""
        return symmetric(block, degrees)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return aggregated rows ``x``, plus the bias if there is one."""
        return x if self.bias is None else x + self.bias.to(x.dtype)


def mean_divisors(block: Block, degrees: Degrees) -> Float32Array:
    """Return the divisors ``[num_dst]``, above 0, that turn sums over edges into means.

    They are the number or weight of the sampled edges; with importance, of all in-edges.
    """
    if block.edge_weights is not None:
        if block.importance is None:
            total = list_sums(block.indptr, block.edge_weights)
        else:
            assert block.weight_sums is not None
            total = block.weight_sums[: block.num_dst]
        least = np.finfo(np.float32).tiny
    elif block.importance is None:
        total, least = np.diff(block.indptr).astype(np.float32), np.float32(1)
    else:
        # An unbiased estimate of the full sum, divided by the number of its terms.
        assert degrees is not None
        total, least = degrees[: block.num_dst], np.float32(1)
    positive: Float32Array = np.maximum(total, least)
    return positive


class SAGELayer(LinearAggregationLayer):
    """``h'_v = W (h_v ‖ mean of h_u) + b`` over the sampled in-neighbors u.

    With edge weights, the mean is ``sum w_uv h_u / sum w_uv`` over the sampled edges. Neighbors
    sampled by weight (``sampler=weighted``) count equally.
    """

    splits_columns = True
    rule = Rule.MEAN

    def __init__(self, num_in: int, num_out: int) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.linear = nn.Linear(2 * num_in, num_out)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    @property
    def product(self) -> nn.Linear:
        """``nn.Linear`` that ``update`` applies to own and aggregated rows, side by side."""
        return self.linear

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients of the mean; a vertex without neighbors gets zeros."""
        scale: Float32Array = np.float32(1) / mean_divisors(block, degrees)
        return Aggregation(self_term="concat", weights=block.edge_factors, dst_scale=scale)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the product of ``x``, own and aggregated rows side by side, with the weights."""
        return linear(self.linear, x)


class GINLayer(LinearAggregationLayer):
    """``h'_v = MLP(h_v + sum of h_u)`` with one hidden layer; a sampled sum is rescaled.

    With edge weights, ``w_uv h_u`` is summed.
    """

    uses_degrees = True
    rule = Rule.SUM

    def __init__(self, num_in: int, num_hidden: int, num_out: int) -> None:
        """Build a layer from ``num_in`` over ``num_hidden`` to ``num_out`` features."""
        super().__init__()
        self.first = nn.Linear(num_in, num_hidden)
        self.second = nn.Linear(num_hidden, num_out)

    @property
    def product(self) -> nn.Linear:
        """First ``nn.Linear`` of the perceptron."""
        return self.first

    def finish(self, h: Tensor) -> Tensor:
        """Apply the perceptron's ReLU and second product to ``h`` ``[n, num_hidden]``."""
        return linear(self.second, h.relu())

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients of the sum, whose expectation is the sum over all neighbors."""
        assert degrees is not None
        scale = sum_scale(block, sampling_totals(block, degrees))
        return Aggregation(self_term="add", weights=block.edge_factors, dst_scale=scale)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the two-layer perceptron's output for aggregated rows ``x``."""
        return self.finish(linear(self.first, x))
