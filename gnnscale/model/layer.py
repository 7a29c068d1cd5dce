"""What the layers have in common, in HitGNN's terms: scatter and gather, then update."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.core.stages import Traffic
from gnnscale.feature import Aggregation, FeatureStore
from gnnscale.model.activation import Activation
from gnnscale.model.aggregation import aggregate
from gnnscale.model.cost import LayerCost
from gnnscale.sampler import Block

_LOG = logging.getLogger(__name__)

#: ``[num_src]`` float32: in-degrees in the whole graph of a block's sources, if asked for.
Degrees = NDArray[np.float32] | None


class GraphLayer(nn.Module):
    """One layer: ``prepare`` brings a block's rows together, ``update`` makes output rows of them.

    ``load`` does what ``prepare`` does, but reads the rows from feature storage itself.
    """

    #: Whether the layer's coefficients need the vertices' degrees in the whole graph.
    uses_degrees: bool = False
    #: Whether ``load`` aggregates, so that only the rows of destinations are left.
    aggregates_on_load: ClassVar[bool] = False
    #: Whether ``update`` is the product of aggregated rows with ``self.linear`` and nothing else:
    #: each column of the features may then be multiplied elsewhere, and the products added (P3),
    #: and the product may be taken before the aggregation (``ProjectedLayer``).
    splits_columns: ClassVar[bool] = False

    def load(
        self,
        store: FeatureStore,
        vertices: NDArray[Any],
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

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the coefficients for ``block``."""
        raise NotImplementedError

    def load(
        self,
        store: FeatureStore,
        vertices: NDArray[Any],
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
        return aggregate(h, block, self.aggregation(block, degrees), act)


@cache
def say_unweighted(what: str) -> None:
    """Warn once in a process that ``what`` ignores the weights of edges."""
    _LOG.warning(f"{what} does not use the weights of edges: all count alike")


def linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Apply ``layer`` in the type of ``x``; its weights stay float32."""
    if x.dtype == torch.float32:
        return layer(x)  # type: ignore[no-any-return]
    # oneDNN's bfloat16 product is a fifth faster on a transposed copy of the (small) weights.
    weight = layer.weight.to(x.dtype).t().contiguous()
    if layer.bias is None:
        return x @ weight
    return torch.addmm(layer.bias.to(x.dtype), x, weight)
