"""GraphSAGE with mean aggregation (Hamilton et al. 2017; HyScale-GNN eq. 4)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.feature import Aggregation
from gnnscale.graph import list_sums
from gnnscale.model.layer import Degrees, LinearAggregationLayer, linear
from gnnscale.sampler import Block

__all__ = ["SAGELayer"]


class SAGELayer(LinearAggregationLayer):
    """``h'_v = W (h_v ‖ mean of h_u) + b`` over the sampled in-neighbours u.

    Where edges have weights, the mean is ``sum w_uv h_u / sum w_uv`` over those sampled. Neighbours
    that were drawn by weight (``sampler=weighted``) count alike.
    """

    splits_columns = True

    def __init__(self, num_in: int, num_out: int) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.linear = nn.Linear(2 * num_in, num_out)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Mean of the neighbours; a vertex without any gets zeros."""
        scale: NDArray[np.float32] = np.float32(1) / self._total(block, degrees)
        return Aggregation(self_term="concat", weights=block.edge_factors, dst_scale=scale)

    @staticmethod
    def _total(block: Block, degrees: Degrees) -> NDArray[np.float32]:
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
        positive: NDArray[np.float32] = np.maximum(total, least)
        return positive

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply own and aggregated rows with their weights in one product."""
        return linear(self.linear, x)
