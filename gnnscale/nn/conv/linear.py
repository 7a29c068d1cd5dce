"""The base of layers (HitGNN's scatter, gather, update), and GCN, GraphSAGE and GIN."""

import logging
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from gnnscale.core import Array, Float32Array, GraphError, Traffic
from gnnscale.features import Aggregation, FeatureStore
from gnnscale.graph import list_sums
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock, Rule
from gnnscale.nn.functional import Activation, aggregate, drawn_from, sum_scale
from gnnscale.ops.products import product
from gnnscale.sampling import Block

_LOG = logging.getLogger(__name__)

#: ``[num_src]`` float32: in-degrees in the whole graph of a block's sources, if asked for.
Degrees = Float32Array | None


class GraphLayer(nn.Module):
    """One layer: ``prepare`` brings a block's rows together, ``update`` makes output rows of them.

    ``load`` does what ``prepare`` does, but reads the rows from feature storage itself.
    """

    #: Whether the layer's coefficients need the vertices' degrees in the whole graph.
    uses_degrees: bool = False
    #: Whether ``Block.edge_attr`` is needed.
    uses_edge_features: bool = False
    #: Whether weights of edges change what it computes.
    uses_edge_weights: bool = True
    #: Whether ``load`` aggregates, so that only the rows of destinations are left.
    aggregates_on_load: ClassVar[bool] = False
    #: Whether ``update`` is the product of aggregated rows with ``self.linear`` and nothing else:
    #: each column of the features may then be multiplied elsewhere, and the products added (P3),
    #: and the product may be taken before the aggregation (``ProjectedLayer``).
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
    ) -> tuple[torch.Tensor, Traffic]:
        """Read rows ``vertices`` of ``store``, and return what ``update`` needs, without gradient.

        A layer that does not aggregate on load gets the rows as they are.
        """
        return store.gather(vertices, dtype=dtype, num_threads=num_threads)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return what the layer asks of a device: by default the products of its matrices."""
        linears = [module for module in self.modules() if isinstance(module, nn.Linear)]
        products = tuple((each.in_features, each.out_features) for each in linears)
        return LayerCost(width_in=width_in, width_out=width_out, products=products)

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: Activation | None
    ) -> torch.Tensor:
        """Activate ``h`` ``[num_src, f]`` and return what ``update`` needs of it, with gradient."""
        raise NotImplementedError

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Return the output rows ``[num_dst, f_out]``.

        Args:
            x: what ``load`` or ``prepare`` returned.
            degrees: None if the block has all neighbours, or the layer asks for none.
        """
        raise NotImplementedError


class LinearAggregationLayer(GraphLayer):
    """A layer whose aggregation is linear with coefficients that do not depend on the rows."""

    aggregates_on_load: ClassVar[bool] = True
    #: What ``aggregation`` returns, for devices that make coefficients by themselves.
    rule: ClassVar[Rule]

    @property
    def product(self) -> nn.Linear | None:
        """The product that ``update`` begins with; None without one.

        Its columns are those of aggregated rows; if a vertex's own row is concatenated, these come
        after as many of the own row.
        """
        return None

    def finish(self, h: torch.Tensor) -> torch.Tensor:
        """Return what ``update`` makes of the rows that ``product`` made."""
        return h

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients for ``block``."""
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
        """Read rows ``vertices`` of ``store``, aggregated on the way."""
        aggregation = self.aggregation(block, degrees)
        return store.aggregate(vertices, block, aggregation, dtype=dtype, num_threads=num_threads)

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: Activation | None
    ) -> torch.Tensor:
        """Activate and aggregate ``h``."""
        if isinstance(block, DeviceBlock):
            return block.aggregate(h, self.rule, degrees, act)  # type: ignore[arg-type]
        return aggregate(h, block, self.aggregation(block, degrees), act)


def edge_attr_of(block: Block) -> torch.Tensor:
    """Return the features of the edges of ``block``, ``[num_edges, num_edge_features]``."""
    assert block.edge_attr is not None, "loading has checked that edges have features"
    return torch.from_numpy(block.edge_attr)


@cache
def say_unweighted(what: str) -> None:
    """Warn once in a process that ``what`` ignores the weights of edges."""
    _LOG.warning(f"{what} does not use the weights of edges: all count alike")


def linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Apply ``layer`` in the type of ``x``; its weights stay float32."""
    if x.dtype == torch.float32:
        return product(layer, x)
    # oneDNN's bfloat16 product is a fifth faster on a transposed copy of the (small) weights.
    weight = layer.weight.to(x.dtype).t().contiguous()
    if layer.bias is None:
        return x @ weight
    return torch.addmm(layer.bias.to(x.dtype), x, weight)


def symmetric(block: Block, degrees: Degrees) -> Aggregation:
    """Return the coefficients of symmetric normalisation with full-graph degrees.

    ``a[v] = sum_u h_u / sqrt(D(v) D(u))`` over u in N(v) and v itself; see ``GCNLayer``.

    Raises:
        GraphError: edges have weights, and those of all in-edges of a source are not known.
    """
    assert degrees is not None
    sums = degrees[: block.num_src]
    if block.weight_sums is not None:
        sums = block.weight_sums
        if np.isnan(sums).any():
            raise GraphError(
                "model=gcn, sgc, appnp: divide by the weights of all in-edges of both ends, and a "
                "part's store lacks those of vertices at its rim; train from the store of the "
                "whole graph"
            )
    root: Float32Array = np.float32(1) / np.sqrt(sums + np.float32(1))
    weights: Float32Array = root[block.indices]
    dst_scale = root[: block.num_dst]
    factors = block.edge_factors
    if factors is not None:
        weights = weights * factors
    scale = sum_scale(block, drawn_from(block, degrees))
    return Aggregation(
        self_term="add",
        weights=weights,
        dst_scale=dst_scale if scale is None else dst_scale * scale,
        self_scale=dst_scale**2,
    )


class GCNLayer(LinearAggregationLayer):
    """``h'_v = W sum_u h_u / sqrt(D(v) D(u)) + b`` over u in N(v) and v itself.

    D counts a vertex's in-neighbours in the whole graph, and the vertex. A sampled sum is rescaled
    by degree / number sampled, so that its expectation is the full one.

    If edges have weights, ``w_uv h_u`` is summed, and D adds up the weights of in-edges, and 1
    for the vertex itself, at both ends of an edge: as ``gcn_norm`` of PyG.
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
        """That with the weights, which is all."""
        return self.linear

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Symmetric normalisation with full-graph degrees."""
        return symmetric(block, degrees)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply with the weights."""
        return linear(self.linear, x)


class HopLayer(LinearAggregationLayer):
    """One hop of GCN's aggregation without its matrix; see ``symmetric``."""

    uses_degrees = True
    rule = Rule.SYMMETRIC

    def __init__(self, width: int | None = None) -> None:
        """Build a hop, with a bias of ``width`` features if they are given."""
        super().__init__()
        self.bias = None if width is None else nn.Parameter(torch.zeros(width))

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Symmetric normalisation with full-graph degrees."""
        return symmetric(block, degrees)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Add the bias, if there is one."""
        return x if self.bias is None else x + self.bias.to(x.dtype)


class SAGELayer(LinearAggregationLayer):
    """``h'_v = W (h_v ‖ mean of h_u) + b`` over the sampled in-neighbours u.

    If edges have weights, the mean is ``sum w_uv h_u / sum w_uv`` over those sampled. Neighbours
    that were drawn by weight (``sampler=weighted``) count alike.
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
        """That with the weights of own and aggregated rows, which is all."""
        return self.linear

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Mean of the neighbours; a vertex without any gets zeros."""
        scale: Float32Array = np.float32(1) / self._total(block, degrees)
        return Aggregation(self_term="concat", weights=block.edge_factors, dst_scale=scale)

    @staticmethod
    def _total(block: Block, degrees: Degrees) -> Float32Array:
        """Return what each destination's sum is divided by, ``[num_dst]``, never 0."""
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

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply own and aggregated rows with their weights in one product."""
        return linear(self.linear, x)


class GINLayer(LinearAggregationLayer):
    """``h'_v = MLP(h_v + sum of h_u)`` with one hidden layer; a sampled sum is rescaled.

    If edges have weights, ``w_uv h_u`` is summed.
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
        """The first of the perceptron."""
        return self.first

    def finish(self, h: torch.Tensor) -> torch.Tensor:
        """Apply the rest of the perceptron to ``h`` ``[n, num_hidden]``."""
        return linear(self.second, h.relu())

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Sum of the neighbours, of the same expectation as over all of them."""
        assert degrees is not None
        scale = sum_scale(block, drawn_from(block, degrees))
        return Aggregation(self_term="add", weights=block.edge_factors, dst_scale=scale)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Apply the two-layer perceptron."""
        return self.finish(linear(self.first, x))
