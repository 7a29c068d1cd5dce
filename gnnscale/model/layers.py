"""GCN, GraphSAGE and GIN, layer by layer."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.core.errors import GraphError
from gnnscale.feature import Aggregation
from gnnscale.graph import list_sums
from gnnscale.model.aggregation import drawn_from, sum_scale
from gnnscale.model.layer import Degrees, LinearAggregationLayer, linear
from gnnscale.sampler import Block


class GCNLayer(LinearAggregationLayer):
    """``h'_v = W sum_u h_u / sqrt(D(v) D(u)) + b`` over u in N(v) and v itself.

    D counts a vertex's in-neighbours in the whole graph, and the vertex. A sampled sum is rescaled
    by degree / number sampled, so that its expectation is the full one.

    If edges have weights, ``w_uv h_u`` is summed, and D adds up the weights of in-edges, and 1
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
        """Symmetric normalisation with full-graph degrees.

        Raises:
            GraphError: edges have weights, and those of all in-edges of a source are not known.
        """
        assert degrees is not None
        sums = degrees[: block.num_src]
        if block.weight_sums is not None:
            sums = block.weight_sums
            if np.isnan(sums).any():
                raise GraphError(
                    "model=gcn: divides by the weights of all in-edges of both ends, and a part's "
                    "store lacks those of vertices at its rim; train from the whole graph's store"
                )
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


class SAGELayer(LinearAggregationLayer):
    """``h'_v = W (h_v ‖ mean of h_u) + b`` over the sampled in-neighbours u.

    If edges have weights, the mean is ``sum w_uv h_u / sum w_uv`` over those sampled. Neighbours
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


class GINLayer(LinearAggregationLayer):
    """``h'_v = MLP(h_v + sum of h_u)`` with one hidden layer; a sampled sum is rescaled.

    If edges have weights, ``w_uv h_u`` is summed.
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
