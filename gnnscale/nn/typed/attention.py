"""Layers with attention over edges with types: relational GAT, and HGT (Hu et al. 2020)."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnscale import ops
from gnnscale.core import Int64Array
from gnnscale.graph import GraphSchema
from gnnscale.nn.conv.gat import attend, edge_scores, head_sum
from gnnscale.nn.conv.linear import edge_attr_of, linear, warn_unweighted
from gnnscale.nn.typed.layer import TypedLayer
from gnnscale.ops.products import affine
from gnnscale.sampling import Block, TypedBlock


class RelationAttention(nn.Module):
    """Attention over one edge type: ``z_k = W_k h_u``, scores ``a_k · z_k + b_k · U_k h_v``.

    With features of edges, ``c_k · V_k e_uv`` is added. It is PyG's ``GATConv`` over a pair of
    vertex sets, without self-edges and bias.
    """

    slope: ClassVar[float] = 0.2  #: negative slope of LeakyReLU

    def __init__(self, width_in: int, num_heads: int, width: int, edge_dim: int = 0) -> None:
        """Build ``num_heads`` heads of ``width`` features, with weights by Glorot's rule.

        Scores read ``edge_dim`` features of an edge, 0: none.
        """
        super().__init__()
        self.num_heads, self.width, self.edge_dim = num_heads, width, edge_dim
        self.linear = nn.Linear(width_in, num_heads * width, bias=False)
        self.linear_dst = nn.Linear(width_in, num_heads * width, bias=False)
        self.attention_src = nn.Parameter(torch.empty(num_heads, width))
        self.attention_dst = nn.Parameter(torch.empty(num_heads, width))
        if edge_dim:
            self.edge_linear = nn.Linear(edge_dim, num_heads * width, bias=False)
            self.attention_edge = nn.Parameter(torch.empty(num_heads, width))
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, dst_rows: Tensor, block: Block) -> Tensor:
        """Return ``[num_dst, num_heads, width]`` of sources' and destinations' rows."""
        z = linear(self.linear, x).view(-1, self.num_heads, self.width)
        src = x @ self._vectors(self.linear, self.attention_src)
        dst = dst_rows @ self._vectors(self.linear_dst, self.attention_dst)
        scores = edge_scores(src, dst, block)
        if self.edge_dim:
            vectors = self._vectors(self.edge_linear, self.attention_edge)
            scores = scores + edge_attr_of(block) @ vectors
        return attend(functional.leaky_relu(scores, self.slope), z, block)

    def _vectors(self, projection: nn.Linear, attention: Tensor) -> Tensor:
        """Return ``U'_k b_k`` of each head, ``[width_in, num_heads]``: ``b · (U h) = (U' b) · h``.

        One vector for each head replaces projected rows.
        """
        matrices = projection.weight.view(self.num_heads, self.width, -1)
        return torch.einsum("hwf,hw->fh", matrices, attention)


class RGATLayer(TypedLayer):
    """``h'_v = sum_r (U_r h_v + b_r + attention_r(v))`` over the edge types r that end at v's type.

    ``combine`` mean or max replaces the sum, by feature. Each edge type has its own attention, with
    its own softmax. Edge weights are ignored. ``U_r``
    and ``b_r`` are weights of their own, though only their sums matter: Adam moves a sum of R
    weights R times as fast as one, and PyG's ``HeteroConv`` of ``GATConv`` has them, too. A type at
    which no edge type ends has one ``U`` and ``b``.
    """

    uses_edge_weights = False

    def __init__(
        self,
        schema: GraphSchema,
        width_in: int,
        width_out: int,
        *,
        num_heads: int,
        average: bool,
        combine: str = "sum",
        edge_widths: Sequence[int] = (),
    ) -> None:
        """Build a layer with ``num_heads`` heads for each edge type.

        With ``average``, heads of ``width_out`` features are averaged; otherwise heads of
        ``width_out / num_heads`` features are concatenated. Scores read ``edge_widths[r]`` features
        of an edge of type r; empty: none.
        """
        super().__init__(schema, width_in, width_out)
        self.num_heads, self.average, self.combine = num_heads, average, combine
        self.width = width_out if average else width_out // num_heads  #: features of a head
        widths = tuple(edge_widths) or (0,) * len(schema.edge_types)
        self.uses_edge_features = any(widths)
        self.relations = nn.ModuleList(
            RelationAttention(width_in, num_heads, self.width, edge_dim)
            for edge_dim, _ in zip(widths, schema.edge_types, strict=True)
        )
        counts = [max(1, len(edge_types)) for edge_types in self.incoming]
        #: U_r by vertex type, ``[num_edge_types, width_out, width_in]``
        self.roots = nn.ParameterList(torch.empty(n, width_out, width_in) for n in counts)
        #: b_r by vertex type, ``[num_edge_types, width_out]``
        self.biases = nn.ParameterList(torch.zeros(n, width_out) for n in counts)
        for matrix in (matrix for weight in self.roots for matrix in weight.detach()):
            nn.init.xavier_uniform_(matrix)

    def forward(self, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the new rows of the destinations of each vertex type; see ``TypedLayer``."""
        _warn_of_weights("model=rgat", block)
        return [self._combined(vertex_type, rows, block) for vertex_type in range(self.num_types)]

    def _combined(self, vertex_type: int, rows: Sequence[Tensor], block: TypedBlock) -> Tensor:
        """Return the new rows of the destinations of a type, over all edge types that end there."""
        root, bias = self.roots[vertex_type], self.biases[vertex_type]
        dst_rows = rows[vertex_type][: block.dst_sizes[vertex_type]]
        messages: dict[int, Tensor] = {}
        for number in self.active(vertex_type, block):
            x, edges = rows[self.sources[number]], block.relations[number]
            heads = self.relations[number](x, dst_rows, edges)
            messages[number] = heads.mean(1) if self.average else heads.flatten(1)
        if self.combine == "max":
            products = affine(dst_rows, root.flatten(0, 1), bias.flatten()).view(-1, *bias.shape)
            outputs = list(products.unbind(1))
            for position, number in enumerate(self.incoming[vertex_type]):
                if number in messages:
                    outputs[position] = outputs[position] + messages[number]
            return torch.stack(outputs).max(0).values
        out = affine(dst_rows, root.sum(0), bias.sum(0))
        for message in messages.values():
            out = out + message
        return out / len(root) if self.combine == "mean" else out


class HGTLayer(TypedLayer):
    """Heterogeneous graph transformer (Hu et al. 2020), as PyG's ``HGTConv`` computes it.

    Keys, queries and values have weights for each vertex type, and are related by matrices for each
    edge type. The softmax is over the edges of all edge types of a destination. The output is mixed
    with the destination's own row by a learned weight, if both have the same width. Edge weights
    are ignored.
    """

    uses_edge_weights = False

    def __init__(
        self, schema: GraphSchema, width_in: int, width_out: int, *, num_heads: int
    ) -> None:
        """Build ``num_heads`` heads of ``width_out / num_heads`` features."""
        super().__init__(schema, width_in, width_out)
        self.num_heads, self.width = num_heads, width_out // num_heads
        #: keys, then values, of sources
        self.keys_values = _linears(self.num_types, width_in, 2 * width_out)
        self.queries = _linears(self.num_types, width_in, width_out)
        self.out = _linears(self.num_types, width_out, width_out)
        matrices = (len(schema.edge_types), num_heads, self.width, self.width)
        self.key_relations = nn.Parameter(torch.empty(matrices))
        self.value_relations = nn.Parameter(torch.empty(matrices))
        #: factor of the scores of each edge type and head
        self.priors = nn.Parameter(torch.ones(len(schema.edge_types), num_heads))
        #: logit of the weight of the new row, against the destination's own row
        self.skips = nn.Parameter(torch.ones(self.num_types))
        bound = self.width**-0.5
        for matrix in (self.key_relations, self.value_relations):
            nn.init.uniform_(matrix, -bound, bound)

    def forward(self, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the new rows of the destinations of each vertex type; see ``TypedLayer``."""
        _warn_of_weights("model=hgt", block)
        active = [self.active(vertex_type, block) for vertex_type in range(self.num_types)]
        read = {self.sources[number] for numbers in active for number in numbers}
        projected = {number: self._keys_values(number, rows[number]) for number in sorted(read)}
        outputs = []
        for vertex_type, numbers in enumerate(active):
            dst_rows = rows[vertex_type][: block.dst_sizes[vertex_type]]
            heads = dst_rows.new_zeros(len(dst_rows), self.width_out)
            if numbers:
                heads = self._attend(dst_rows, vertex_type, numbers, projected, block)
            out = linear(self.out[vertex_type], functional.gelu(heads))  # type: ignore[arg-type]
            if self.width_in == self.width_out:
                out = torch.lerp(dst_rows, out, self.skips[vertex_type].sigmoid())
            outputs.append(out)
        return outputs

    def _keys_values(self, vertex_type: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of ``x``, ``[n, num_heads, width]`` each."""
        projected = linear(self.keys_values[vertex_type], x)  # type: ignore[arg-type]
        both = projected.view(len(x), 2, self.num_heads, self.width)
        keys, values = both.unbind(1)
        return keys, values

    def _attend(
        self,
        dst_rows: Tensor,
        vertex_type: int,
        numbers: Sequence[int],
        projected: dict[int, tuple[Tensor, Tensor]],
        block: TypedBlock,
    ) -> Tensor:
        """Return the messages of edge types ``numbers``, ``[num_dst, num_heads * width]``."""
        queries = linear(self.queries[vertex_type], dst_rows)  # type: ignore[arg-type]
        queries = queries.view(len(dst_rows), self.num_heads, self.width)
        blocks = [block.relations[number] for number in numbers]
        scores = []
        for number, edges in zip(numbers, blocks, strict=True):
            # q · (A k) = (A' q) · k, and sum a (M v) = M sum a v: the matrices of edge types
            # multiply rows of destinations, which are fewer than sources.
            scaled = self.priors[number] * self.width**-0.5
            related = torch.einsum(
                "nhe,hde,h->nhd", queries, self.key_relations[number], scaled
            ).contiguous()
            keys = projected[self.sources[number]][0]
            scores.append(_EdgeDot.apply(related, keys, edges))  # type: ignore[no-untyped-call]
        alphas = _JointSoftmax.apply(_merge(blocks), *scores)  # type: ignore[no-untyped-call]
        messages = [
            torch.einsum(
                "nhd,hde->nhe",
                head_sum(alpha, projected[self.sources[number]][1], edges),
                self.value_relations[number],
            )
            for number, alpha, edges in zip(numbers, alphas, blocks, strict=True)
        ]
        return torch.stack(messages).sum(0).flatten(1) if messages[1:] else messages[0].flatten(1)


def _linears(number: int, width_in: int, width_out: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(width_in, width_out) for _ in range(number))


def _warn_of_weights(option: str, block: TypedBlock) -> None:
    """Warn, once in a process, that a model ignores edge weights, if ``block`` has such."""
    if any(edges.edge_weights is not None for edges in block.relations):
        warn_unweighted(option)


class _EdgeDot(torch.autograd.Function):
    """``out[e, k] = q[i, k] · x[indices[e], k]`` for each edge e of destination i, and head k."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor, block: Block) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(q, x)
        out = torch.empty(block.num_edges, q.shape[1])
        for head in range(q.shape[1]):
            ops.edge_dot(
                q[:, head],
                x[:, head],
                block.indptr,
                block.indices,
                out=out.numpy()[:, head],
                num_threads=torch.get_num_threads(),
            )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        q, x = ctx.saved_tensors
        block: Block = ctx.block
        weights, num_threads = grads[0].numpy(), torch.get_num_threads()
        grad_q, grad_x = torch.empty(q.shape), torch.empty(x.shape)
        for head in range(q.shape[1]):
            ops.aggregate(
                x[:, head],
                block.indptr,
                block.indices,
                weights=weights[:, head],
                out=grad_q[:, head],
                num_threads=num_threads,
            )
            indptr, indices, transposed = ops.transpose_block(
                block.indptr, block.indices, block.num_src, weights=weights[:, head]
            )
            ops.aggregate(
                q[:, head],
                indptr,
                indices,
                weights=transposed,
                out=grad_x[:, head],
                num_threads=num_threads,
            )
        return grad_q, grad_x, None


class _Merged(NamedTuple):
    """Edge lists of several blocks with the same destinations, merged by destination."""

    indptr: Int64Array  #: ``[num_dst + 1]`` offsets of the merged lists
    positions: list[Tensor]  #: for each block ``[num_edges]``, where its edges are


def _merge(blocks: Sequence[Block]) -> _Merged:
    lengths = np.stack([np.diff(block.indptr) for block in blocks])
    indptr = np.concatenate([[0], np.cumsum(lengths.sum(0))])
    firsts = indptr[:-1] + np.cumsum(lengths, 0) - lengths
    positions = []
    for block, first, length in zip(blocks, firsts, lengths, strict=True):
        shifts = np.repeat(first - block.indptr[:-1], length)
        positions.append(torch.from_numpy(shifts + np.arange(block.num_edges)))
    return _Merged(indptr, positions)


class _JointSoftmax(torch.autograd.Function):
    """Softmax by head over the edges of a destination in several blocks."""

    @staticmethod
    def forward(ctx: Any, merged: _Merged, *scores: Tensor) -> tuple[Tensor, ...]:
        alpha = ops.edge_softmax(
            merged.indptr,
            _joined(merged, scores),
            bias=None,
            num_threads=torch.get_num_threads(),
        )
        ctx.merged = merged
        ctx.save_for_backward(alpha)
        return tuple(alpha[position] for position in merged.positions)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (alpha,) = ctx.saved_tensors
        merged: _Merged = ctx.merged
        out = ops.edge_softmax_backward(
            merged.indptr, alpha, _joined(merged, grads), num_threads=torch.get_num_threads()
        )
        return None, *(out[position] for position in merged.positions)


def _joined(merged: _Merged, parts: Sequence[Tensor]) -> Tensor:
    """Return values of the edges of all blocks ``[num_edges, num_heads]`` in merged order."""
    out = torch.empty(int(merged.indptr[-1]), parts[0].shape[1])
    for position, part in zip(merged.positions, parts, strict=True):
        out[position] = part
    return out
