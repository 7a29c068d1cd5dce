"""Graph attention network (Veličković et al. 2018)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gnnscale.model.activation import Activation, relu_dropout
from gnnscale.model.attention import attend
from gnnscale.model.cost import LayerCost
from gnnscale.model.layer import Degrees, GraphLayer, linear, say_unweighted
from gnnscale.sampler import Block

__all__ = ["GATLayer", "with_self_edges"]


def with_self_edges(block: Block) -> Block:
    """Return ``block`` with an edge from every destination to itself, first in its list."""
    num_dst = block.num_dst
    starts = block.indptr[:-1]
    own = np.arange(num_dst, dtype=np.int32)
    importance = block.importance
    return Block(
        indptr=block.indptr + np.arange(num_dst + 1),
        indices=np.insert(block.indices, starts, own),
        num_src=block.num_src,
        importance=None if importance is None else np.insert(importance, starts, np.float32(1)),
    )


class GATLayer(GraphLayer):
    """``h'_v = ‖_k sum_u alpha_k(u, v) W_k h_u`` over u in N(v) and v.

    ``alpha_k`` is the softmax over v's edges of ``LeakyReLU(a_k · (W_k h_v ‖ W_k h_u))``. The last
    layer averages its heads in place of concatenating them. Attention decides what an edge counts:
    weights of edges are not used, as in PyG's and DGL's.
    """

    def __init__(self, num_in: int, num_out: int, num_heads: int, *, average: bool) -> None:
        """Build a layer to ``num_out`` features in all, or in each head where they are averaged."""
        super().__init__()
        self.num_heads = num_heads
        self.average = average
        self.width = num_out if average else num_out // num_heads
        self.linear = nn.Linear(num_in, num_heads * self.width, bias=False)
        self.attention_src = nn.Parameter(torch.empty(num_heads, self.width))
        self.attention_dst = nn.Parameter(torch.empty(num_heads, self.width))
        self.bias = nn.Parameter(torch.zeros(num_out))
        for weight in (self.linear.weight, self.attention_src, self.attention_dst):
            nn.init.xavier_uniform_(weight)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the projection of every source, and the attention of every head."""
        cost = super().cost(width_in, width_out)
        return replace(cost, attention=self.num_heads)

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: Activation | None
    ) -> torch.Tensor:
        """Return ``h``, activated."""
        return h if act is None else relu_dropout(h, act)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Project, attend, and concatenate or average the heads."""
        if block.edge_weights is not None:
            say_unweighted("model=gat")
        block = with_self_edges(block)
        z = linear(self.linear, x).float().view(-1, self.num_heads, self.width)
        score_src = (z * self.attention_src).sum(-1)
        score_dst = (z[: block.num_dst] * self.attention_dst).sum(-1)
        dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        scores = functional.leaky_relu(
            score_src[torch.from_numpy(block.indices.astype(np.int64))]
            + score_dst[torch.from_numpy(dst)],
            negative_slope=0.2,
        )
        out = attend(scores, z, block)
        merged = out.mean(1) if self.average else out.flatten(1)
        return (merged + self.bias).to(x.dtype)
