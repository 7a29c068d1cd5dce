"""GIN with edge features: GINE (Hu et al. 2020, section 5.1)."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from gnnscale.nn.conv.linear import Degrees, GraphLayer, edge_attr_of, linear
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.functional import sampling_totals
from gnnscale.nn.segment_ops import Segments, cut_block, take
from gnnscale.sampling import Block

#: Edges whose messages are in memory at a time when no gradient needs them.
_SLICE_EDGES = 1 << 16


class GINELayer(GraphLayer):
    """``h'_v = MLP(h_v + sum of relu(h_u + U e_uv + c))``; a sampled sum is rescaled.

    This is ``GINEConv`` of PyG. With edge weights, a message is multiplied by its edge's weight.
    The sum is not linear in the rows, so that it cannot be computed while rows are loaded.
    """

    uses_degrees = True
    uses_edge_features = True

    def __init__(self, num_in: int, num_hidden: int, num_out: int, *, edge_dim: int) -> None:
        """Build a layer for edges of ``edge_dim`` features, with ``num_hidden`` hidden features."""
        super().__init__()
        self.first = nn.Linear(num_in, num_hidden)
        self.second = nn.Linear(num_hidden, num_out)
        self.edge_dim = edge_dim
        self.edge_linear = nn.Linear(edge_dim, num_in)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost: the perceptron's products, and a message for each edge."""
        cost = super().cost(width_in, width_out)
        first, second, edges = cost.products
        return replace(
            cost,
            products=(first, second),
            message_width=width_in,
            message_products=(edges,),
            messages_per_edge=True,
        )

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return the perceptron's output for each destination's row plus its sum of messages."""
        totals = None if degrees is None else sampling_totals(block, degrees)
        size = block.num_edges if torch.is_grad_enabled() else _SLICE_EDGES
        sums = [
            self._sum(x, part, None if totals is None else totals[first:])
            for first, part in cut_block(block, size)
        ]
        h = x[: block.num_dst] + (torch.cat(sums) if len(sums) > 1 else sums[0])
        return linear(self.second, linear(self.first, h).relu())

    def _sum(self, x: Tensor, block: Block, totals: Degrees) -> Tensor:
        """Return the destinations' sums of messages, ``[num_dst, num_in]``.

        Sampled sums are scaled to ``totals``, in-degrees or sums of weights. None: not scaled.
        """
        edge_rows = linear(self.edge_linear, edge_attr_of(block).to(x.dtype))
        messages = (take(x, block.indices) + edge_rows).relu_()
        if block.edge_weights is not None:
            messages = messages * torch.from_numpy(block.edge_weights)[:, None].to(x.dtype)
        return Segments(block, totals).sum(messages)
