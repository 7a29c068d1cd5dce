"""GraphSAGE with the pooling aggregator (Hamilton et al. 2017, eq. 3)."""

import torch
from torch import Tensor, nn

from gnnscale.nn.conv.linear import Degrees, GraphLayer, linear, warn_unweighted
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.segment_ops import neighbor_max
from gnnscale.sampling import Block


class PoolingLayer(GraphLayer):
    """``h'_v = W (h_v ‖ max of relu(W_pool h_u + b_pool)) + b`` over the sampled in-neighbors u.

    The maximum is taken per feature; a vertex without neighbors gets zeros. Edge weights are
    ignored.
    """

    uses_edge_weights: bool = False

    def __init__(self, num_in: int, num_out: int) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.pool = nn.Linear(num_in, num_in)
        self.linear = nn.Linear(2 * num_in, num_out)
        for layer in (self.pool, self.linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost: a pooling product of sources, and a product of destinations."""
        return LayerCost(
            width_in=width_in,
            width_out=width_out,
            products=((2 * width_in, width_out),),
            message_width=width_in,
            message_products=((width_in, width_in),),
            host_makes_edge_rows=False,
        )

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the product of ``h_v ‖ pooled neighbors`` with the weights, plus the bias."""
        if block.edge_weights is not None:
            warn_unweighted("model=sage model.aggregator=pool")
        messages = linear(self.pool, x).relu()
        pooled = neighbor_max(messages, block)
        return linear(self.linear, torch.cat([x[: block.num_dst], pooled], dim=1))
