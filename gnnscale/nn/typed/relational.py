"""Layers whose aggregation is the mean over each edge type: R-GCN and relational GraphSAGE."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gnnscale.features.typed import SourceRows
from gnnscale.graph import GraphSchema
from gnnscale.nn.typed.layer import TypedLayer
from gnnscale.nn.typed.relation_means import MeanColumns, RelationMean, multiply_means
from gnnscale.sampling import TypedBlock


class RelationalLayer(TypedLayer):
    """``h'_v = W_t h_v + sum_r W_r (mean of h_u) + b`` over the edge types r that end at v's type.

    The mean is over the sampled in-neighbors u by edge type r, and 0 without any. With edge
    weights, the mean is ``sum w_uv h_u / sum w_uv`` over the sampled edges.
    """

    #: How edge types are combined: ``sum``; ``mean``, over the edge types that end at v's type; or
    #: ``max``, by feature, over them.
    combine: str = "sum"
    #: Whether the sum over the sampled in-neighbors takes the place of the mean.
    sums: bool = False

    def root_weights(self) -> Sequence[Tensor]:
        """Return W_t of each vertex type, ``[width_out, width_in]``; subclasses define it."""
        raise NotImplementedError

    def relation_weights(self) -> Sequence[Tensor]:
        """Return W_r of each edge type, ``[width_out, width_in]``; subclasses define it."""
        raise NotImplementedError

    def biases(self) -> Sequence[Tensor]:
        """Return the bias of each vertex type, ``[width_out]``; subclasses define it."""
        raise NotImplementedError

    def forward(self, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the new rows of the destinations of each vertex type; see ``TypedLayer``."""
        if self.combine == "max":
            return self._maxima(rows, block)
        active = [self.active(vertex_type, block) for vertex_type in range(self.num_types)]
        return multiply_means(rows, self._columns(block), self.joined(active), self.biases())

    def joined(self, active: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return W_t, and W_r of the ``active`` edge types, side by side, for each vertex type."""
        return _side_by_side(self.root_weights(), self.relation_weights(), active)

    def _maxima(self, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the largest of the outputs of each edge type, own rows and bias included."""
        outputs: list[list[Tensor]] = [[] for _ in rows]
        for position in range(max(1, *map(len, self.incoming))):
            numbers = [edge_types[position : position + 1] for edge_types in self.incoming]
            columns = [
                MeanColumns(
                    vertex_type=vertex_type,
                    num_dst=block.dst_sizes[vertex_type] if part or not position else 0,
                    means=tuple(self._aggregation(number, block) for number in part),
                )
                for vertex_type, part in enumerate(numbers)
            ]
            products = multiply_means(rows, columns, self.joined(numbers), self.biases())
            for parts, out in zip(outputs, products, strict=True):
                if len(out) or not position:
                    parts.append(out)
        return [torch.stack(parts).max(0).values for parts in outputs]

    def encodes_means(self, widths: Sequence[int], block: TypedBlock) -> bool:
        """Whether ``forward_columns`` multiplies less than encoders and ``forward``.

        ``widths`` are the numbers of features of each vertex type, before encoders.
        """
        if self.combine == "max":
            return False
        encoding = self.width_in * sum(
            width * size for width, size in zip(widths, block.src_sizes, strict=True)
        )
        forward = encoded = 0
        for vertex_type, size in enumerate(block.dst_sizes):
            numbers = self.active(vertex_type, block)
            ends = [vertex_type, *(self.sources[number] for number in numbers)]
            num_columns = sum(widths[end] for end in ends)
            forward += size * len(ends) * self.width_in * self.width_out
            encoded += (size + self.width_in) * num_columns * self.width_out
        return encoded < encoding + forward

    def columns(
        self, rows: Sequence[SourceRows], block: TypedBlock, *, num_threads: int
    ) -> list[Tensor]:
        """Return what ``forward_columns`` multiplies, of rows that the encoders read.

        Args:
            rows: by vertex type the rows of its ``block.src_sizes[t]`` sources.
            block: the edges.
            num_threads: threads to use; the result does not depend on it.

        Returns:
            By vertex type ``[block.dst_sizes[t], w]`` float32 without gradient: own rows and means
            side by side, own rows first.
        """
        columns = self._columns(block, has_shares=True)
        return [of_type.build(rows, num_threads=num_threads) for of_type in columns]

    def forward_columns(
        self, columns: Sequence[Tensor], block: TypedBlock, encoders: Sequence[nn.Linear]
    ) -> list[Tensor]:
        """Return what ``forward_encoded`` returns, from the result of ``columns`` for ``block``."""
        return multiply_means((), columns, self._composed(encoders, block), self.biases())

    def forward_encoded(
        self, rows: Sequence[Tensor], block: TypedBlock, encoders: Sequence[nn.Linear]
    ) -> list[Tensor]:
        """Return what ``forward`` returns for encoded rows, without encoding each row.

        A mean of encoded rows is the encoded mean: the encoder's matrix is multiplied with the
        layer's, and its bias enters through the share of the mean.

        Args:
            rows: by vertex type ``[block.src_sizes[t], width_t]`` float32. Those that need a
                gradient have one width.
            block: the edges.
            encoders: by vertex type a layer from ``width_t`` to ``width_in`` features.
        """
        columns, weights = self._columns(block, has_shares=True), self._composed(encoders, block)
        return multiply_means(rows, columns, weights, self.biases())

    def _composed(self, encoders: Sequence[nn.Linear], block: TypedBlock) -> list[Tensor]:
        """Return the weights of each vertex type, times the encoders' weights and biases.

        Those are W_t, and W_r of the edge types with edges in ``block``, side by side.
        """
        active = [self.active(vertex_type, block) for vertex_type in range(self.num_types)]
        edge_types = [number for part in active for number in part]
        roots: list[Tensor] = []
        relations: dict[int, Tensor] = {}
        all_roots, all_relations = self.root_weights(), self.relation_weights()
        for vertex_type, encoder in enumerate(encoders):
            numbers = [number for number in edge_types if self.sources[number] == vertex_type]
            # One product for all matrices that multiply rows of the type.
            parts = [all_roots[vertex_type], *(all_relations[number] for number in numbers)]
            matrix = torch.cat([encoder.weight, encoder.bias[:, None]], 1)
            composed = torch.split(torch.cat(parts) @ matrix, self.width_out)
            roots.append(composed[0])
            relations.update(zip(numbers, composed[1:], strict=True))
        return _side_by_side(roots, relations, active)

    def _columns(self, block: TypedBlock, *, has_shares: bool = False) -> list[MeanColumns]:
        """Return own rows and means of each vertex type over ``block``."""
        columns = []
        for vertex_type in range(self.num_types):
            factor = 1 / max(1, len(self.incoming[vertex_type])) if self.combine == "mean" else 1.0
            means = tuple(
                self._aggregation(number, block, factor)
                for number in self.active(vertex_type, block)
            )
            columns.append(
                MeanColumns(
                    vertex_type=vertex_type,
                    num_dst=block.dst_sizes[vertex_type],
                    means=means,
                    has_shares=has_shares,
                )
            )
        return columns

    def _aggregation(self, number: int, block: TypedBlock, factor: float = 1.0) -> RelationMean:
        """Return the mean or sum over the edges of the edge type ``number``, times ``factor``."""
        source, edges = self.sources[number], block.relations[number]
        return RelationMean.of(source, edges, factor, sums=self.sums)


def _side_by_side(
    roots: Sequence[Tensor],
    relations: Sequence[Tensor] | Mapping[int, Tensor],
    active: Sequence[Sequence[int]],
) -> list[Tensor]:
    return [
        torch.cat([root, *(relations[number] for number in numbers)], 1)
        for root, numbers in zip(roots, active, strict=True)
    ]


class RGCNLayer(RelationalLayer):
    """Relational graph convolution (Schlichtkrull et al. 2018, eq. 2 and 3).

    The bias is one for all vertex types. With bases V_b, ``W_r = sum_b a_rb V_b``.
    """

    def __init__(
        self, schema: GraphSchema, width_in: int, width_out: int, *, num_bases: int | None = None
    ) -> None:
        """Build a layer with weights by Glorot's rule; ``num_bases`` None: without bases."""
        super().__init__(schema, width_in, width_out)
        num_relations = len(schema.edge_types)
        matrices = num_relations if num_bases is None else num_bases
        self.root = nn.Parameter(torch.empty(self.num_types, width_out, width_in))
        #: W_r of each edge type, or the bases
        self.weight = nn.Parameter(torch.empty(matrices, width_out, width_in))
        self.bias = nn.Parameter(torch.zeros(width_out))
        #: a_rb ``[num_edge_types, num_bases]``; None: without bases
        self.coefficients: nn.Parameter | None = None
        if num_bases is not None:
            self.coefficients = nn.Parameter(torch.empty(num_relations, num_bases))
            nn.init.xavier_uniform_(self.coefficients)
        for matrix in (*self.root.detach(), *self.weight.detach()):
            nn.init.xavier_uniform_(matrix)

    def root_weights(self) -> Sequence[Tensor]:
        """Return W_t of each vertex type, ``[width_out, width_in]``."""
        return self.root.unbind()

    def relation_weights(self) -> Sequence[Tensor]:
        """Return W_r of each edge type, ``[width_out, width_in]``, composed of the bases if any."""
        if self.coefficients is None:
            return self.weight.unbind()
        composed = self.coefficients @ self.weight.flatten(1)
        return composed.view(-1, self.width_out, self.width_in).unbind()

    def biases(self) -> Sequence[Tensor]:
        """Return the bias of each vertex type, ``[width_out]``: the same for all."""
        return [self.bias] * self.num_types


class RSAGELayer(RelationalLayer):
    """GraphSAGE with weights for each edge type, and a bias for each vertex type.

    ``combine`` says how edge types are combined; the own row and the bias are added once. With the
    ``aggregator`` ``sum``, rows of in-neighbors are added in place of their mean.
    """

    def __init__(
        self,
        schema: GraphSchema,
        width_in: int,
        width_out: int,
        *,
        combine: str = "sum",
        aggregator: str = "mean",
    ) -> None:
        """Build a layer with weights by Glorot's rule, over own rows and means side by side."""
        super().__init__(schema, width_in, width_out)
        self.combine, self.sums = combine, aggregator == "sum"
        #: for each vertex type a layer over own rows and the means of each edge type that ends here
        self.linears = nn.ModuleList(
            nn.Linear((1 + len(edge_types)) * width_in, width_out) for edge_types in self.incoming
        )
        for linear in self._linears():
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def root_weights(self) -> Sequence[Tensor]:
        """Return W_t of each vertex type, ``[width_out, width_in]``."""
        return [linear.weight[:, : self.width_in] for linear in self._linears()]

    def relation_weights(self) -> Sequence[Tensor]:
        """Return W_r of each edge type, ``[width_out, width_in]``."""
        weights: dict[int, Tensor] = {}
        for linear, edge_types in zip(self._linears(), self.incoming, strict=True):
            parts = torch.split(linear.weight, self.width_in, 1)[1:]
            weights.update(zip(edge_types, parts, strict=True))
        return [weights[number] for number in range(len(self.sources))]

    def joined(self, active: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the weights of each vertex type, without a copy if all edge types are active."""
        weights = []
        for linear, edge_types, numbers in zip(self._linears(), self.incoming, active, strict=True):
            if len(numbers) == len(edge_types):
                weights.append(linear.weight)
                continue
            root, *parts = torch.split(linear.weight, self.width_in, 1)
            chosen = [parts[edge_types.index(number)] for number in numbers]
            weights.append(torch.cat([root, *chosen], 1))
        return weights

    def biases(self) -> Sequence[Tensor]:
        """Return the bias of each vertex type, ``[width_out]``."""
        return [linear.bias for linear in self._linears()]

    def _linears(self) -> list[nn.Linear]:
        return list(self.linears)  # type: ignore[arg-type]
