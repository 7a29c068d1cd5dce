"""Options of models over graphs with types, checked without torch, which only ``build`` imports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnnscale.core import check_choice, check_range
from gnnscale.graph import GraphSchema
from gnnscale.nn.model_config import (
    ENCODERS,
    MAX_HIDDEN,
    NORMS,
    TIME_ENCODINGS,
    WITHOUT_FEATURES,
    ModelConfig,
    check_dropout,
    check_heads,
)

if TYPE_CHECKING:
    from gnnscale.nn.base import TrainableModel
    from gnnscale.nn.typed.layer import TypedLayer
    from gnnscale.nn.typed.model import TypedGNN

#: How the outputs of the edge types that end at a vertex type are combined, by feature.
COMBINATIONS = ("sum", "mean", "max")
#: What a vertex gets of the rows of its in-neighbors by an edge type.
RSAGE_AGGREGATORS = ("mean", "sum")
#: Largest number of bases: the largest number of edge types.
_MAX_BASES = 1024


@dataclass(frozen=True, kw_only=True)
class TypedModel(ModelConfig):
    """Stack of layers over a graph with types of vertices and edges.

    An encoder for each vertex type comes first, from its features to ``hidden``.

    Attributes:
        hidden: features of the hidden layers.
        dropout: probability of dropping a hidden feature.
        norm: normalization between layers, by vertex type, one of ``NORMS``. ``batch`` computes
            mean and variance over the rows of a device's slice of the mini-batch.
        residual: whether a layer's input rows are added to its output, between layers of
            ``hidden`` features.
        without_features: what vertices of a type without features get, one of
            ``WITHOUT_FEATURES``: ``learned``, a row of ``hidden`` weights for each vertex, updated
            in the steps that read it, with the optimizer's weight decay; ``degrees``, logarithms
            of their degrees by edge type; or ``constant``, a one. None: learned rows, but degrees
            for a type of more than 10 million vertices.
        encoder: one of ``ENCODERS``: ``linear``, or ``normalized``: two products, with layer
            normalization and ReLU between them, for features beyond those of training.
        time_encoding: one of ``TIME_ENCODINGS``: encoding of the days from a vertex's time to the
            cut-off, which is added to the encoded features of types with times. None: sinusoidal,
            if task rows have cut-offs.
    """

    takes_bfloat16: ClassVar[bool] = False
    #: Whether a product for each vertex type follows the last layer.
    ends_with_product: ClassVar[bool] = False
    #: Whether ReLU follows the encoders, as layers have their own activation.
    activates_inputs: ClassVar[bool] = False

    hidden: int = 256
    dropout: float = 0.5
    norm: str = "none"
    residual: bool = False
    without_features: str | None = None
    encoder: str = "linear"
    time_encoding: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_encoding is not None:
            check_choice("model.time_encoding", self.time_encoding, TIME_ENCODINGS)
        if self.without_features is not None:
            check_choice("model.without_features", self.without_features, WITHOUT_FEATURES)
        check_choice("model.encoder", self.encoder, ENCODERS)
        check_range("model.hidden", self.hidden, 1, MAX_HIDDEN)
        check_dropout(self.dropout)
        check_choice("model.norm", self.norm, NORMS)

    def add_time_encoders(self, model: TrainableModel, timed: Sequence[bool]) -> None:
        """Let ``model`` add the encoded relative time of types that are ``timed``."""
        from gnnscale.nn.time_encoding import add_encoders

        add_encoders(model, self.time_encoding, self.hidden, timed)

    @property
    def row_width(self) -> int:
        """Number of features of an output row from which edges are predicted: ``hidden``."""
        return self.hidden

    @abstractmethod
    def layer(self, schema: GraphSchema, num_out: int, *, last: bool) -> TypedLayer:
        """Build a layer from ``hidden`` to ``num_out`` features; ``last``: it is the last layer."""

    def edge_layer(
        self, schema: GraphSchema, num_out: int, *, last: bool, edge_widths: Sequence[int]
    ) -> TypedLayer:
        """Build a layer, as ``layer`` does, that reads ``edge_widths[r]`` features of an edge.

        The base raises NotImplementedError: only architectures that read edge features override it.
        """
        raise NotImplementedError(f"{self.name} takes no edge features")

    @property
    def takes_edge_features(self) -> bool:
        """Whether layers can read edge features: the subclass overrides ``edge_layer``."""
        return type(self).edge_layer is not TypedModel.edge_layer

    def build_typed(
        self,
        *,
        schema: GraphSchema,
        widths: tuple[int, ...],
        num_classes: int,
        targets: Sequence[str] = (),
        edge_widths: tuple[int, ...] = (),
    ) -> TypedGNN:
        """Build the model; initial weights come from torch's global generator.

        Args:
            schema: types of the graph; numbers of vertices do not matter.
            widths: number of features of each vertex type, above 0.
            num_classes: number of features of an output row.
            targets: not used: each vertex type has output rows.
            edge_widths: number of features of each edge type, read if the layers can; empty: none.
        """
        from torch import nn

        from gnnscale.nn.typed.model import TypedGNN

        layers = []
        reads_edges = self.edge_width(max(edge_widths, default=0)) > 0
        for index in range(self.num_layers):
            last = index + 1 == self.num_layers
            num_out = num_classes if last and not self.ends_with_product else self.hidden
            if reads_edges:
                layer = self.edge_layer(schema, num_out, last=last, edge_widths=edge_widths)
            else:
                layer = self.layer(schema, num_out, last=last)
            layers.append(layer)
        num_outputs = len(widths) if self.ends_with_product else 0
        return TypedGNN(
            layers,
            widths,
            outputs=[nn.Linear(self.hidden, num_classes) for _ in range(num_outputs)],
            norm=self.norm,
            dropout=self.dropout,
            residual=self.residual,
            activates_inputs=self.activates_inputs,
            encoder=self.encoder,
        )

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> TypedGNN:
        """Build the model for a graph without types; it has one type of vertices and of edges."""
        return self.build_typed(
            schema=GraphSchema.homogeneous(0),
            widths=(num_features,),
            num_classes=num_classes,
            edge_widths=(num_edge_features,),
        )


@dataclass(frozen=True, kw_only=True)
class RGCN(TypedModel):
    """Relational graph convolutional network (Schlichtkrull et al. 2018).

    Attributes:
        num_bases: number of bases of which the weights of all edge types are sums, for graphs with
            many edge types; null: each edge type has its own weights.
    """

    num_bases: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_bases is not None:
            check_range("model.num_bases", self.num_bases, 1, _MAX_BASES)

    def layer(self, schema: GraphSchema, num_out: int, *, last: bool) -> TypedLayer:
        """Build an R-GCN layer from ``hidden`` to ``num_out`` features."""
        from gnnscale.nn.typed.relational import RGCNLayer

        return RGCNLayer(schema, self.hidden, num_out, num_bases=self.num_bases)


@dataclass(frozen=True, kw_only=True)
class RSAGE(TypedModel):
    """GraphSAGE with weights for each edge type.

    Attributes:
        combine: one of ``COMBINATIONS``: how the messages of the edge types that end at a vertex
            type are combined.
        aggregator: one of ``RSAGE_AGGREGATORS``: ``mean`` of the in-neighbors' rows by an edge
            type, or their ``sum``, which tells how many there are.
    """

    combine: str = "sum"
    aggregator: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("model.combine", self.combine, COMBINATIONS)
        check_choice("model.aggregator", self.aggregator, RSAGE_AGGREGATORS)

    def layer(self, schema: GraphSchema, num_out: int, *, last: bool) -> TypedLayer:
        """Build a relational GraphSAGE layer from ``hidden`` to ``num_out`` features."""
        from gnnscale.nn.typed.relational import RSAGELayer

        options = {"combine": self.combine, "aggregator": self.aggregator}
        return RSAGELayer(schema, self.hidden, num_out, **options)


@dataclass(frozen=True, kw_only=True)
class AttentionModel(TypedModel):
    """Base of models with attention; ``hidden`` counts the features of all heads together.

    Attributes:
        num_heads: attention heads, a divisor of ``hidden``.
    """

    num_heads: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.num_heads, self.hidden)


@dataclass(frozen=True, kw_only=True)
class RGAT(AttentionModel):
    """Graph attention network with attention, and its own softmax, for each edge type.

    Attributes:
        combine: one of ``COMBINATIONS``: how the outputs of the edge types that end at a vertex
            type are combined.
    """

    combine: str = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("model.combine", self.combine, COMBINATIONS)

    def layer(self, schema: GraphSchema, num_out: int, *, last: bool) -> TypedLayer:
        """Build a layer; ``last``: heads are averaged, else concatenated."""
        return self.edge_layer(schema, num_out, last=last, edge_widths=())

    def edge_layer(
        self, schema: GraphSchema, num_out: int, *, last: bool, edge_widths: Sequence[int]
    ) -> TypedLayer:
        """Build a layer whose attention reads ``edge_widths[r]`` features of an edge of type r."""
        from gnnscale.nn.typed.attention import RGATLayer

        return RGATLayer(
            schema,
            self.hidden,
            num_out,
            num_heads=self.num_heads,
            average=last,
            combine=self.combine,
            edge_widths=edge_widths,
        )


@dataclass(frozen=True, kw_only=True)
class HGT(AttentionModel):
    """Heterogeneous graph transformer (Hu et al. 2020): one softmax over all edge types.

    Its layers are of ``hidden`` features; a product for each vertex type follows. ReLU follows the
    encoders, and no layer, as in PyG's example.
    """

    ends_with_product: ClassVar[bool] = True
    activates_inputs: ClassVar[bool] = True

    def layer(self, schema: GraphSchema, num_out: int, *, last: bool) -> TypedLayer:
        """Build an HGT layer from ``hidden`` to ``num_out`` features."""
        from gnnscale.nn.typed.attention import HGTLayer

        return HGTLayer(schema, self.hidden, num_out, num_heads=self.num_heads)
