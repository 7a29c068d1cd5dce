"""Graph isomorphism network, the GIN-0 variant (Xu et al. 2019)."""

from __future__ import annotations

import torch
from torch import nn

from gnnscale.feature import Aggregation
from gnnscale.model.aggregation import drawn_from, sum_scale
from gnnscale.model.layer import Degrees, LinearAggregationLayer, linear
from gnnscale.sampler import Block

__all__ = ["GINLayer"]


class GINLayer(LinearAggregationLayer):
    """``h'_v = MLP(h_v + sum of h_u)`` with one hidden layer; a sampled sum is rescaled.

    Where edges have weights, ``w_uv h_u`` is summed.
    """

    uses_degrees = True

    def __init__(self, num_in: int, num_hidden: int, num_out: int) -> None:
        """Build a layer from ``num_in`` over ``num_hidden`` to ``num_out`` features."""
        super().__init__()
        self.first = nn.Linear(num_in, num_hidden)
        self.second = nn.Linear(num_hidden, num_out)

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Sum of the neighbours, of the same expectation as over all of them."""
        assert degrees is not None
        scale = sum_scale(block, drawn_from(block, degrees))
        return Aggregation(self_term="add", weights=block.edge_factors, dst_scale=scale)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Apply the two-layer perceptron."""
        return linear(self.second, linear(self.first, x).relu())
