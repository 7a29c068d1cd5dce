"""Graph attention network (Veličković et al. 2018)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gnnscale import ops
from gnnscale.model.cost import LayerCost
from gnnscale.model.device_block import DeviceBlock
from gnnscale.model.functional import Activation, relu_dropout
from gnnscale.model.layer import Degrees, GraphLayer, edge_attr_of, linear, say_unweighted
from gnnscale.model.segments import Segments, take
from gnnscale.sampler import Block


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, block: Block) -> torch.Tensor:
        alpha = ops.edge_softmax(
            block.indptr,
            scores.contiguous(),
            bias=block.importance,
            num_threads=torch.get_num_threads(),
        )
        ctx.block = block
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (alpha,) = ctx.saved_tensors
        out = ops.edge_softmax_backward(
            ctx.block.indptr, alpha, grads[0].contiguous(), num_threads=torch.get_num_threads()
        )
        return out, None


class _WeightedSum(torch.autograd.Function):
    """``out[i, k] = sum_e alpha[e, k] z[indices[e], k]`` for each head k."""

    @staticmethod
    def forward(ctx: Any, alpha: torch.Tensor, z: torch.Tensor, block: Block) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(alpha, z)
        out = torch.empty(block.num_dst, *z.shape[1:])
        for head in range(z.shape[1]):
            ops.aggregate(
                z[:, head],
                block.indptr,
                block.indices,
                weights=alpha.detach().numpy()[:, head],
                out=out[:, head],
                num_threads=torch.get_num_threads(),
            )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        alpha, z = ctx.saved_tensors
        block: Block = ctx.block
        grad = grads[0].contiguous()
        num_threads = torch.get_num_threads()
        grad_alpha, grad_z = torch.empty_like(alpha), torch.empty_like(z)
        for head in range(z.shape[1]):
            ops.edge_dot(
                grad[:, head],
                z[:, head],
                block.indptr,
                block.indices,
                out=grad_alpha.numpy()[:, head],
                num_threads=num_threads,
            )
            indptr, indices, weights = ops.transpose_block(
                block.indptr, block.indices, block.num_src, weights=alpha.numpy()[:, head]
            )
            ops.aggregate(
                grad[:, head],
                indptr,
                indices,
                weights=weights,
                out=grad_z[:, head],
                num_threads=num_threads,
            )
        return grad_alpha, grad_z, None


def attend(scores: torch.Tensor, z: torch.Tensor, block: Block) -> torch.Tensor:
    """Sum source rows with the softmax of their edges' scores.

    Edges that a layer-wise sampler kept with a known probability count by their importance.

    Args:
        scores: ``[num_edges, num_heads]`` float32.
        z: ``[num_src, num_heads, f]`` float32, contiguous.

    Returns:
        ``[num_dst, num_heads, f]`` float32.
    """
    if isinstance(block, DeviceBlock):
        return block.attend(scores, z)
    alpha = _EdgeSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    out: torch.Tensor = _WeightedSum.apply(alpha, z, block)  # type: ignore[no-untyped-call]
    return out


def with_self_edges(block: Block) -> Block:
    """Return ``block`` with an edge from every destination to itself, first in its list."""
    if isinstance(block, DeviceBlock):
        return block.with_self_edges()
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


def edge_scores(src: torch.Tensor, dst: torch.Tensor, block: Block) -> torch.Tensor:
    """Return ``src[u] + dst[v]`` of each edge, ``[num_edges, num_heads]``.

    Args:
        src: ``[num_src, num_heads]`` float32.
        dst: ``[num_dst, num_heads]`` float32.
    """
    if isinstance(block, DeviceBlock):
        return block.edge_scores(src, dst)
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    sources = torch.from_numpy(block.indices.astype(np.int64))
    return src[sources] + dst[torch.from_numpy(destinations)]


class GATLayer(GraphLayer):
    """``h'_v = ‖_k sum_u alpha_k(u, v) W_k h_u`` over u in N(v) and v.

    ``alpha_k`` is the softmax over v's edges of ``LeakyReLU(a_k · (W_k h_v ‖ W_k h_u))``. The last
    layer averages its heads in place of concatenating them. Attention decides what an edge counts:
    weights of edges are not used, as in PyG's and DGL's.

    If edges have features, ``b_k · U_k e_uv`` is added before LeakyReLU, as ``GATConv`` of PyG
    does with ``edge_dim``. The edge of v to itself has the mean of the features of v's in-edges.
    """

    def __init__(
        self, num_in: int, num_out: int, num_heads: int, *, average: bool, edge_dim: int = 0
    ) -> None:
        """Build a layer to ``num_out`` features in all, or in each head if heads are averaged.

        Args:
            edge_dim: features of an edge that attention reads; 0 for none.
        """
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
        self.edge_dim = edge_dim
        self.uses_edge_features = edge_dim > 0
        if edge_dim:
            self.edge_linear = nn.Linear(edge_dim, num_heads * self.width, bias=False)
            self.attention_edge = nn.Parameter(torch.empty(num_heads, self.width))
            nn.init.xavier_uniform_(self.edge_linear.weight)
            nn.init.xavier_uniform_(self.attention_edge)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the projection of every source, and the attention of every head."""
        cost = super().cost(width_in, width_out)
        # Those of edges are of few features and heads.
        return replace(cost, products=cost.products[:1], attention=self.num_heads)

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: Activation | None
    ) -> torch.Tensor:
        """Return ``h``, activated."""
        return h if act is None else relu_dropout(h, act)

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Project, attend, and concatenate or average the heads."""
        if block.edge_weights is not None:
            say_unweighted("model=gat")
        of_edges = self._edge_scores(block, degrees) if self.uses_edge_features else None
        block = with_self_edges(block)
        z = linear(self.linear, x).float().view(-1, self.num_heads, self.width)
        score_src = (z * self.attention_src).sum(-1)
        score_dst = (z[: block.num_dst] * self.attention_dst).sum(-1)
        scores = edge_scores(score_src, score_dst, block)
        if of_edges is not None:
            scores = scores + of_edges
        out = attend(functional.leaky_relu(scores, negative_slope=0.2), z, block)
        merged = out.mean(1) if self.average else out.flatten(1)
        return (merged + self.bias).to(x.dtype)

    def _edge_scores(self, block: Block, degrees: Degrees) -> torch.Tensor:
        """Return what features of edges add to the scores ``[num_dst + num_edges, num_heads]``.

        The order is that of ``with_self_edges``. Heads need no projected features of edges: a
        score is linear in them, and so is that of a mean.
        """
        projection = self.edge_linear.weight.view(self.num_heads, self.width, self.edge_dim)
        scores = edge_attr_of(block) @ torch.einsum("hwe,hw->eh", projection, self.attention_edge)
        own = Segments(block, degrees).mean(scores)
        num_dst, num_edges = block.num_dst, block.num_edges
        places = np.arange(num_dst, num_dst + num_edges, dtype=np.int32)
        own_places = np.arange(num_dst, dtype=np.int32)
        order = np.insert(places, block.indptr[:-1], own_places)
        return take(torch.cat([own, scores]), order)
