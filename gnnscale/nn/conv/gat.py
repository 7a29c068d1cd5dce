"""Graph attention networks: GAT (Veličković et al. 2018) and GATv2 (Brody et al. 2022).

Their differentiable attention is scores, softmax and weighted sums over the edges of a block.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnscale import ops
from gnnscale.nn.conv.linear import Degrees, GraphLayer, edge_attr_of, linear, warn_unweighted
from gnnscale.nn.cost import LayerCost
from gnnscale.nn.device_block import DeviceBlock
from gnnscale.nn.segment_ops import Segments
from gnnscale.sampling import Block


class _BlockSoftmax(torch.autograd.Function):
    """Softmax of edge scores per destination and head, with exponentials times importance."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, block: Block) -> Tensor:
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (alpha,) = ctx.saved_tensors
        out = ops.edge_softmax_backward(
            ctx.block.indptr, alpha, grads[0].contiguous(), num_threads=torch.get_num_threads()
        )
        return out, None


class _HeadSum(torch.autograd.Function):
    """Sum of source rows: ``out[i, k] = sum_e alpha[e, k] z[indices[e], k]``, e the edges to i."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, z: Tensor, block: Block) -> Tensor:
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
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
    """GATv2's score of each edge and head, differentiable, without a stored row per edge."""

    @staticmethod
    def forward(
        ctx: Any, dst_rows: Tensor, z: Tensor, attention: Tensor, block: Block, slope: float
    ) -> Tensor:
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(dst_rows, z, attention)
        return ops.pair_scores(
            dst_rows,
            z,
            attention,
            block.indptr,
            block.indices,
            out=ops.empty((block.num_edges, len(attention)), torch.float32),
            slope=slope,
            num_threads=torch.get_num_threads(),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        dst_rows, z, attention = ctx.saved_tensors
        block: Block = ctx.block
        gradients = ops.pair_scores_backward(
            dst_rows,
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
    dst_rows: Tensor, z: Tensor, attention: Tensor, block: Block, slope: float
) -> Tensor:
    """Return ``attention[k] · LeakyReLU(dst_rows[v, k] + z[u, k])`` for each edge u to v, head k.

    No row per edge is stored, forward or backward, on the host. ``dst_rows`` ``[num_dst, num_heads,
    width]`` and ``z`` ``[num_src, num_heads, width]`` are projected rows, ``attention`` is
    ``[num_heads, width]``, the result ``[num_edges, num_heads]``, all float32.
    """
    flat = (rows.flatten(1).contiguous() for rows in (dst_rows, z))
    return _PairScores.apply(*flat, attention, block, slope)  # type: ignore[no-untyped-call, no-any-return]


def attend(scores: Tensor, z: Tensor, block: Block) -> Tensor:
    """Return each destination's sum of source rows, weighted by the softmax of edge scores.

    Edges of layer-wise sampling are weighted by their importance inside the softmax. ``scores`` is
    ``[num_edges, num_heads]``, ``z`` ``[num_src, num_heads, f]`` contiguous, the result ``[num_dst,
    num_heads, f]``, all float32.
    """
    if isinstance(block, DeviceBlock):
        return block.attend(scores, z)
    alpha = _BlockSoftmax.apply(scores, block)  # type: ignore[no-untyped-call]
    return head_sum(alpha, z, block)


def head_sum(alpha: Tensor, z: Tensor, block: Block) -> Tensor:
    """Return each destination's sum of source rows ``z``, weighted by ``alpha``, by head.

    Both have gradients. ``alpha`` is ``[num_edges, num_heads]``, ``z`` ``[num_src, num_heads, f]``,
    the result ``[num_dst, num_heads, f]``, all float32.
    """
    return _HeadSum.apply(alpha, z, block)  # type: ignore[no-untyped-call, no-any-return]


def with_self_edges(block: Block) -> Block:
    """Return ``block`` with a self-edge first in each list, without edge weights or features.

    If edges have importance, a self-edge has 1.
    """
    if isinstance(block, DeviceBlock):
        return block.with_self_edges()
    num_dst = block.num_dst
    starts = block.indptr[:-1]
    self_edges = np.arange(num_dst, dtype=np.int32)
    importance = block.importance
    return Block(
        indptr=block.indptr + np.arange(num_dst + 1),
        indices=np.insert(block.indices, starts, self_edges),
        num_src=block.num_src,
        importance=None if importance is None else np.insert(importance, starts, np.float32(1)),
    )


def edge_scores(src: Tensor, dst: Tensor, block: Block) -> Tensor:
    """Return ``src[u] + dst[v]`` for each edge from u to v, ``[num_edges, num_heads]`` float32."""
    if isinstance(block, DeviceBlock):
        return block.edge_scores(src, dst)
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    sources = torch.from_numpy(block.indices.astype(np.int64))
    return src[sources] + dst[torch.from_numpy(destinations)]


#: All heads of a layer.
_ALL = slice(None)


class AttentionLayer(GraphLayer):
    """``h'_v = ‖_k sum_u alpha_k(u, v) z_k(u) + b`` over u in N(v) and v.

    ``alpha_k`` is the softmax of ``scores`` over v's edges, and ``z`` are the projected source
    rows. The last layer averages its heads instead of concatenating them. Attention replaces edge
    weights, which are ignored, as in PyG and DGL.

    Scores may read edge features, as with ``edge_dim`` in PyG. The self-edge of v then has the mean
    of the features of v's in-edges.
    """

    uses_edge_weights: bool = False
    option_name: ClassVar[str]  #: the option that chooses this layer, for messages
    slope: ClassVar[float] = 0.2  #: negative slope of LeakyReLU
    linear: nn.Linear  #: projects sources, ``[num_heads * width, num_in]``

    def __init__(self, num_out: int, num_heads: int, *, average: bool, edge_dim: int) -> None:
        """Build a layer whose scores read ``edge_dim`` features of an edge, 0: none.

        With ``average``, heads of ``num_out`` features are averaged; otherwise heads of ``num_out /
        num_heads`` features are concatenated.
        """
        super().__init__()
        self.edge_dim = edge_dim
        self.uses_edge_features = edge_dim > 0
        self.num_heads = num_heads
        self.average = average
        self.width = num_out if average else num_out // num_heads
        self.bias = nn.Parameter(torch.zeros(num_out))

    @property
    def dst_linear(self) -> nn.Linear | None:
        """Projection of destinations; here None: ``linear`` projects destinations too."""
        return None

    def scores(
        self,
        dst_rows: Tensor,
        z: Tensor,
        block: Block,
        attr: Tensor | None = None,
        heads: slice = _ALL,
    ) -> Tensor:
        """Return the score of each edge before the softmax, ``[num_edges, num_heads]`` float32.

        Subclasses define it.

        Args:
            dst_rows: ``[num_dst, num_heads, width]`` float32, projected destinations.
            z: ``[num_src, num_heads, width]`` float32, projected sources.
            attr: ``[num_edges, edge_dim]`` float32 edge features; None: scores read none.
            heads: the layer's heads that ``dst_rows`` and ``z`` hold.
        """
        raise NotImplementedError

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost: a projection of every source, and attention by every head."""
        cost = super().cost(width_in, width_out)
        return replace(cost, attention=self.num_heads)

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return output rows: project source rows ``x``, attend, join or average the heads."""
        if block.edge_weights is not None:
            warn_unweighted(self.option_name)
        attr = _attr_with_self_edges(block, degrees) if self.uses_edge_features else None
        block = with_self_edges(block)
        z = linear(self.linear, x).float().view(-1, self.num_heads, self.width)
        dst_rows = z[: block.num_dst]
        if self.dst_linear is not None:
            dst_rows = linear(self.dst_linear, x[: block.num_dst]).float().view_as(dst_rows)
        out = attend(self.scores(dst_rows, z, block, attr), z, block)
        return self.merge(out).to(x.dtype)

    def merge(self, out: Tensor) -> Tensor:
        """Return heads ``out`` ``[num_dst, num_heads, width]`` joined or averaged, plus bias."""
        return (out.mean(1) if self.average else out.flatten(1)) + self.bias


def _attr_with_self_edges(block: Block, degrees: Degrees) -> Tensor:
    """Return the edge features of ``block``, before each list its mean, for the self-edge."""
    attr = edge_attr_of(block)
    means = Segments(block, degrees).mean(attr)
    edge_ids = np.arange(block.num_dst, block.num_dst + block.num_edges)
    order = np.insert(edge_ids, block.indptr[:-1], np.arange(block.num_dst))
    return torch.cat([means, attr])[torch.from_numpy(order)]


class GATLayer(AttentionLayer):
    """Attention with scores ``LeakyReLU(a_k · (W_k h_v ‖ W_k h_u))`` and ``z_k = W_k h``.

    With edge features, ``b_k · U_k e_uv`` is added before LeakyReLU.
    """

    option_name: ClassVar[str] = "model=gat"

    def __init__(
        self, num_in: int, num_out: int, num_heads: int, *, average: bool, edge_dim: int = 0
    ) -> None:
        """Build a layer for input rows of ``num_in`` features; see ``AttentionLayer``."""
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
        """Return the layer's cost: a projection of every source, and attention by every head."""
        cost = super().cost(width_in, width_out)
        # The product with edge features has num_heads columns only, and is negligible.
        return replace(cost, products=cost.products[:1])

    def scores(
        self,
        dst_rows: Tensor,
        z: Tensor,
        block: Block,
        attr: Tensor | None = None,
        heads: slice = _ALL,
    ) -> Tensor:
        """Return ``[num_edges, heads]``: LeakyReLU of summed terms of both ends and the edge."""
        src = (z * self.attention_src[heads]).sum(-1)
        dst = (dst_rows * self.attention_dst[heads]).sum(-1)
        scores = edge_scores(src, dst, block)
        if attr is not None:
            # a · (U e) = (U' a) · e: one vector per head replaces projected edge features.
            projection = self.edge_linear.weight.view(self.num_heads, self.width, self.edge_dim)
            edge_vectors = torch.einsum("hwe,hw->eh", projection, self.attention_edge)
            scores = scores + attr @ edge_vectors[:, heads]
        return functional.leaky_relu(scores, negative_slope=self.slope)


class GATv2Layer(AttentionLayer):
    """Attention with scores ``a_k · LeakyReLU(W_k h_v + V_k h_u)`` and ``z_k = V_k h``.

    Both projections have a bias. With ``share_weights``, V is W. With edge features, ``U_k e_uv``
    is added to the sum.
    """

    option_name: ClassVar[str] = "model=gatv2"

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
        """Build a layer for input rows of ``num_in`` features; see ``AttentionLayer``."""
        super().__init__(num_out, num_heads, average=average, edge_dim=edge_dim)
        self.linear = nn.Linear(num_in, num_heads * self.width)
        self.linear_dst = None if share_weights else nn.Linear(num_in, num_heads * self.width)
        self.attention = nn.Parameter(torch.empty(num_heads, self.width))
        nn.init.xavier_uniform_(self.attention)
        for layer in filter(None, (self.linear, self.linear_dst)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        if edge_dim:
            self.edge_linear = nn.Linear(edge_dim, num_heads * self.width, bias=False)
            nn.init.xavier_uniform_(self.edge_linear.weight)

    @property
    def dst_linear(self) -> nn.Linear | None:
        """Projection W of destinations; None: weights are shared."""
        return self.linear_dst

    def scores(
        self,
        dst_rows: Tensor,
        z: Tensor,
        block: Block,
        attr: Tensor | None = None,
        heads: slice = _ALL,
    ) -> Tensor:
        """Return ``[num_edges, heads]``: attention vector times LeakyReLU of the summed terms."""
        attention = self.attention[heads]
        if attr is None and not isinstance(block, DeviceBlock):
            return pair_scores(dst_rows, z, attention, block, self.slope)
        pairs = edge_scores(z.flatten(1), dst_rows.flatten(1), block).view(-1, *z.shape[1:])
        if attr is not None:
            edge_rows = self.edge_linear(attr).view(-1, self.num_heads, self.width)
            pairs = pairs + edge_rows[:, heads]
        return (functional.leaky_relu(pairs, negative_slope=self.slope) * attention).sum(-1)

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the layer's cost: the projections, and a row of all heads for each edge."""
        num_columns = self.num_heads * self.width
        dst_products = () if self.linear_dst is None else ((width_in, num_columns),)
        return LayerCost(
            width_in=width_in,
            width_out=width_out,
            products=((width_in, num_columns),),
            own_products=dst_products,
            attention=self.num_heads,
            pair_width=num_columns,
            host_makes_edge_rows=self.uses_edge_features,
        )
