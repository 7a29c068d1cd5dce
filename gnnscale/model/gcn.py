"""Graph convolutional network (Kipf and Welling 2017; HyScale-GNN eq. 3)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.feature import Aggregation
from gnnscale.model.aggregation import drawn_from, sum_scale
from gnnscale.model.layer import Degrees, LinearAggregationLayer, linear
from gnnscale.sampler import Block

__all__ = ["GCNLayer"]


class GCNLayer(LinearAggregationLayer):
    """``h'_v = W sum_u h_u / sqrt(D(v) D(u)) + b`` over u in N(v) and v itself.

    D counts a vertex's in-neighbours in the whole graph, and the vertex. A sampled sum is rescaled
    by degree / number sampled, so that its expectation is the full one.

    Where edges have weights, ``w_uv h_u`` is summed, and D adds up the weights of in-edges, and 1
    for the vertex itself, at both ends of an edge: as ``gcn_norm`` of PyG.
    """

    uses_degrees = True
    splits_columns = True

    def __init__(self, num_in: int, num_out: int) -> None:
        """Build a layer from ``num_in`` to ``num_out`` features."""
        super().__init__()
        self.linear = nn.Linear(num_in, num_out)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Symmetric normalisation with full-graph degrees."""
        assert degrees is not None
        sums = degrees[: block.num_src] if block.weight_sums is None else block.weight_sums
        root: NDArray[np.float32] = np.float32(1) / np.sqrt(sums + np.float32(1))
        weights: NDArray[np.float32] = root[block.indices]
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

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Multiply with the weights."""
        return linear(self.linear, x)
