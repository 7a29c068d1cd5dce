"""Graph attention networks: GAT (Veličković et al. 2018) and GATv2 (Brody et al. 2022)."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gnnscale import ops
from gnnscale.nn.conv.linear import Degrees, GraphLayer, edge_attr_of, linear, say_unweighted
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock
from gnnscale.nn.functional import Activation, relu_dropout
from gnnscale.nn.segment_ops import Segments
from gnnscale.sampling import Block


class _BlockSoftmax(torch.autograd.Function):
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


class _HeadSum(torch.autograd.Function):
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


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        own: torch.Tensor,
        z: torch.Tensor,
        attention: torch.Tensor,
        block: Block,
        slope: float,
    ) -> torch.Tensor:
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(own, z, attention)
        return ops.pair_scores(
            own,
            z,
            attention,
            block.indptr,
            block.indices,
            out=ops.empty((block.num_edges, len(attention)), torch.float32),
            slope=slope,
            num_threads=torch.get_num_threads(),
        )

    @staticmethod
    def backward(
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        own, z, attention = ctx.saved_tensors
        block: Block = ctx.block
        gradients = ops.pair_scores_backward(
            own,
            z,
            attention,
            block.indptr,
            block.indices,
            grads[0].contiguous(),
            slope=ctx.slope,
            num_threads=torch.get_num_threads(),
        )
        return *gradients, None, None


def pair_scores(
    own: torch.Tensor, z: torch.Tensor, attention: torch.Tensor, block: Block, slope: float
) -> torch.Tensor:
    """Return ``attention[k] · LeakyReLU(own[v, k] + z[u, k])`` of each edge, on the host.

    No row of an edge is made, forward or backward.

    Args:
        own: ``[num_dst, num_heads, width]`` float32.
        z: ``[num_src, num_heads, width]`` float32.
        attention: ``[num_heads, width]`` float32.
        slope: of LeakyReLU.

    Returns:
        ``[num_edges, num_heads]`` float32.
    """
    rows = (each.flatten(1).contiguous() for each in (own, z))
    out: torch.Tensor = _PairScores.apply(*rows, attention, block, slope)  # type: ignore[no-untyped-call]
    return out


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
    alpha = _BlockSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    out: torch.Tensor = _HeadSum.apply(alpha, z, block)  # type: ignore[no-untyped-call]
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


#: All heads of a layer.
_ALL = slice(None)


class AttentionLayer(GraphLayer):
    """``h'_v = ‖_k sum_u alpha_k(u, v) z_k(u) + b`` over u in N(v) and v.

    ``alpha_k`` is the softmax over v's edges of what ``scores`` returns, ``z`` the projected rows
    of sources. The last layer averages its heads in place of concatenating them. Attention decides
    what an edge counts: weights of edges are not used, as in PyG's and DGL's.

    Scores may read features of edges, as those of PyG do with ``edge_dim``. The edge of v to itself
    then has the mean of the features of v's in-edges.
    """

    uses_edge_weights: bool = False
    named: ClassVar[str]  #: how an option chooses it, in messages
    #: Of LeakyReLU.
    slope: ClassVar[float] = 0.2
    linear: nn.Linear  #: projects sources, ``[num_heads * width, num_in]``

    def __init__(self, num_out: int, num_heads: int, *, average: bool, edge_dim: int) -> None:
        """Build a layer to ``num_out`` features in all, or in each head if heads are averaged.

        Args:
            edge_dim: features of an edge that scores read; 0 for none.
        """
        super().__init__()
        self.edge_dim = edge_dim
        self.uses_edge_features = edge_dim > 0
        self.num_heads = num_heads
        self.average = average
        self.width = num_out if average else num_out // num_heads
        self.bias = nn.Parameter(torch.zeros(num_out))

    @property
    def own_product(self) -> nn.Linear | None:
        """The product that projects destinations for scores; None if that of sources does."""
        return None

    def scores(
        self,
        own: torch.Tensor,
        z: torch.Tensor,
        block: Block,
        attr: torch.Tensor | None = None,
        heads: slice = _ALL,
    ) -> torch.Tensor:
        """Return the score of each edge before the softmax, ``[num_edges, num_heads]`` float32.

        Args:
            own: ``[num_dst, num_heads, width]`` float32, projected destinations.
            z: ``[num_src, num_heads, width]`` float32, projected sources.
            attr: ``[num_edges, edge_dim]`` float32 features of edges; None if they are not read.
            heads: those of the layer that ``own`` and ``z`` are of.
        """
        raise NotImplementedError

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
            say_unweighted(self.named)
        attr = attr_with_own(block, degrees) if self.uses_edge_features else None
        block = with_self_edges(block)
        z = linear(self.linear, x).float().view(-1, self.num_heads, self.width)
        own = z[: block.num_dst]
        if self.own_product is not None:
            own = linear(self.own_product, x[: block.num_dst]).float().view_as(own)
        out = attend(self.scores(own, z, block, attr), z, block)
        return self.merge(out).to(x.dtype)

    def merge(self, out: torch.Tensor) -> torch.Tensor:
        """Concatenate or average the heads of ``out`` ``[num_dst, num_heads, width]``."""
        return (out.mean(1) if self.average else out.flatten(1)) + self.bias


def attr_with_own(block: Block, degrees: Degrees) -> torch.Tensor:
    """Return the features of the edges of ``with_self_edges(block)``, ``[num_edges, edge_dim]``.

    An edge of a vertex to itself has the mean of those of its in-edges, zeros without any.
    """
    attr = edge_attr_of(block)
    own = Segments(block, degrees).mean(attr)
    places = np.arange(block.num_dst, block.num_dst + block.num_edges)
    order = np.insert(places, block.indptr[:-1], np.arange(block.num_dst))
    return torch.cat([own, attr])[torch.from_numpy(order)]


class GATLayer(AttentionLayer):
    """The score of an edge is ``LeakyReLU(a_k · (W_k h_v ‖ W_k h_u))``, and ``z_k = W_k h``.

    If edges have features, ``b_k · U_k e_uv`` is added before LeakyReLU.
    """

    named: ClassVar[str] = "model=gat"

    def __init__(
        self, num_in: int, num_out: int, num_heads: int, *, average: bool, edge_dim: int = 0
    ) -> None:
        """Build a layer to ``num_out`` features in all, or in each head if heads are averaged.

        Args:
            edge_dim: features of an edge that scores read; 0 for none.
        """
        super().__init__(num_out, num_heads, average=average, edge_dim=edge_dim)
        self.linear = nn.Linear(num_in, num_heads * self.width, bias=False)
        self.attention_src = nn.Parameter(torch.empty(num_heads, self.width))
        self.attention_dst = nn.Parameter(torch.empty(num_heads, self.width))
        for weight in (self.linear.weight, self.attention_src, self.attention_dst):
            nn.init.xavier_uniform_(weight)
        if edge_dim:
            self.edge_linear = nn.Linear(edge_dim, num_heads * self.width, bias=False)
            self.attention_edge = nn.Parameter(torch.empty(num_heads, self.width))
            nn.init.xavier_uniform_(self.edge_linear.weight)
            nn.init.xavier_uniform_(self.attention_edge)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the projection of every source, and the attention of every head."""
        cost = super().cost(width_in, width_out)
        # Features of edges are few, and are multiplied for heads alone.
        return replace(cost, products=cost.products[:1])

    def scores(
        self,
        own: torch.Tensor,
        z: torch.Tensor,
        block: Block,
        attr: torch.Tensor | None = None,
        heads: slice = _ALL,
    ) -> torch.Tensor:
        """Return the sum of what both ends say, and the edge, through LeakyReLU."""
        src = (z * self.attention_src[heads]).sum(-1)
        dst = (own * self.attention_dst[heads]).sum(-1)
        scores = edge_scores(src, dst, block)
        if attr is not None:
            # Linear in the features: a head needs a vector, and no projected features.
            projection = self.edge_linear.weight.view(self.num_heads, self.width, self.edge_dim)
            of_edges = torch.einsum("hwe,hw->eh", projection, self.attention_edge)
            scores = scores + attr @ of_edges[:, heads]
        return functional.leaky_relu(scores, negative_slope=self.slope)


class GATv2Layer(AttentionLayer):
    """The score of an edge is ``a_k · LeakyReLU(W_k h_v + V_k h_u)``, and ``z_k = V_k h``.

    Both projections have a bias, and V is W if weights are shared. If edges have features,
    ``U_k e_uv`` is added to the sum.
    """

    named: ClassVar[str] = "model=gatv2"

    def __init__(
        self,
        num_in: int,
        num_out: int,
        num_heads: int,
        *,
        average: bool,
        share_weights: bool,
        edge_dim: int = 0,
    ) -> None:
        """Build a layer to ``num_out`` features in all, or in each head if heads are averaged.

        Args:
            edge_dim: features of an edge that scores read; 0 for none.
        """
        super().__init__(num_out, num_heads, average=average, edge_dim=edge_dim)
        self.linear = nn.Linear(num_in, num_heads * self.width)
        self.linear_dst = None if share_weights else nn.Linear(num_in, num_heads * self.width)
        self.attention = nn.Parameter(torch.empty(num_heads, self.width))
        nn.init.xavier_uniform_(self.attention)
        for each in filter(None, (self.linear, self.linear_dst)):
            nn.init.xavier_uniform_(each.weight)
            nn.init.zeros_(each.bias)
        if edge_dim:
            self.edge_linear = nn.Linear(edge_dim, num_heads * self.width, bias=False)
            nn.init.xavier_uniform_(self.edge_linear.weight)

    @property
    def own_product(self) -> nn.Linear | None:
        """The product with W, unless weights are shared."""
        return self.linear_dst

    def scores(
        self,
        own: torch.Tensor,
        z: torch.Tensor,
        block: Block,
        attr: torch.Tensor | None = None,
        heads: slice = _ALL,
    ) -> torch.Tensor:
        """Return the product of the attention vector with both ends' sum through LeakyReLU."""
        attention = self.attention[heads]
        if attr is None and not isinstance(block, DeviceBlock):
            return pair_scores(own, z, attention, block, self.slope)
        pairs = edge_scores(z.flatten(1), own.flatten(1), block).view(-1, *z.shape[1:])
        if attr is not None:
            of_edges = self.edge_linear(attr).view(-1, self.num_heads, self.width)
            pairs = pairs + of_edges[:, heads]
        return (functional.leaky_relu(pairs, negative_slope=self.slope) * attention).sum(-1)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the projections, and a row of all heads for every edge."""
        num_columns = self.num_heads * self.width
        own = () if self.linear_dst is None else ((width_in, num_columns),)
        return LayerCost(
            width_in=width_in,
            width_out=width_out,
            products=((width_in, num_columns),),
            own_products=own,
            attention=self.num_heads,
            pair_width=num_columns,
            host_makes_edge_rows=self.uses_edge_features,
        )
