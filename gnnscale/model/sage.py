"""GraphSAGE with mean aggregation (Hamilton et al. 2017; HyScale-GNN eq. 4)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.feature import Aggregation
from gnnscale.model.layer import Degrees, LinearAggregationLayer, linear
from gnnscale.sampler import Block

__all__ = ["SAGELayer"]


class SAGELayer(LinearAggregationLayer):
    """``h'_v = W (h_v ‖ mean of h_u) + b`` over the sampled in-neighbours u."""

    splits_columns = True

    def __init__(self, num_in: int, num_out: int) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.linear = nn.Linear(2 * num_in, num_out)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Mean of the neighbours; a vertex without any gets zeros."""
        if block.importance is None:
            count = np.diff(block.indptr).astype(np.float32)
        else:
            # An unbiased estimate of the full sum, divided by the number of its terms.
            assert degrees is not None
            count = degrees[: block.num_dst]
        scale: NDArray[np.float32] = np.float32(1) / np.maximum(count, np.float32(1))
        return Aggregation(self_term="concat", weights=block.importance, dst_scale=scale)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply own and aggregated rows with their weights in one product."""
        return linear(self.linear, x)
