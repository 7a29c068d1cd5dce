"""Base classes of the configuration group ``model``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.graph import Graph, GraphSchema, InputTypes

if TYPE_CHECKING:
    from gnnscale.nn.base import TrainableModel
    from gnnscale.nn.conv.linear import GraphLayer
    from gnnscale.nn.gnn import GNN

#: Normalization between layers.
NORMS = ("none", "batch", "layer")

#: How jumping knowledge (Xu et al. 2018) combines the outputs of all layers for a last product;
#: ``none``: the last layer's output is the model's output.
JUMPING = ("none", "cat", "max")

#: Feature rows of vertex types without features.
WITHOUT_FEATURES = ("learned", "degrees", "constant")

#: Encoders of the features of a vertex type.
ENCODERS = ("linear", "normalized")

#: Encodings of the time from a vertex's own to the cut-off, in days.
TIME_ENCODINGS = ("none", "sinusoidal", "linear")

#: Sizes beyond which weights fit no machine, and gradients no number format.
MAX_HIDDEN = 1 << 16
_MAX_LAYERS = 64


def check_dropout(dropout: float, option: str = "model.dropout") -> None:
    """Raise a ConfigError that names ``option`` unless ``0 <= dropout < 1``."""
    if not 0 <= dropout < 1:
        raise ConfigError(f"{option}={dropout}: expected at least 0 and below 1")


def check_heads(num_heads: int, hidden: int) -> None:
    """Raise a ConfigError unless ``num_heads`` divides ``hidden``."""
    if num_heads < 1 or hidden % num_heads:
        raise ConfigError(
            f"model.num_heads={num_heads}: expected a divisor of model.hidden={hidden}"
        )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """Base of the configuration group ``model``.

    Attributes:
        num_layers: number of layers, equal to the sampler's number of hops.
        edge_features: whether layers read edge features; null: they do if the graph has edge
            features and the model can read them.
    """

    num_layers: int = 2
    edge_features: bool | None = None

    #: Whether rows may be bfloat16 as well as float32; see ``runtime.compute_dtype``.
    takes_bfloat16: ClassVar[bool] = True
    #: Whether the first layer's aggregation is linear, with coefficients free of weights.
    aggregates_linearly: ClassVar[bool] = False
    #: Whether a single product follows that aggregation, so that P3 can split it by columns.
    multiplies_once: ClassVar[bool] = False
    #: Whether a field holds a Python class, so that no file can name these options.
    only_in_programs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("model.num_layers", self.num_layers, 1, _MAX_LAYERS)
        if self.edge_features and not self._may_take_edge_features:
            raise ConfigError(
                f"model.edge_features=true: expected a model whose layers read edge features, got "
                f"{self.name}; model=gat, gatv2, gin, rgat and custom can"
            )

    @property
    def name(self) -> str:
        """Name of the architecture in reports."""
        return type(self).__name__

    @property
    def takes_edge_features(self) -> bool:
        """Whether the model's layers can read edge features; False in this base class."""
        return False

    @property
    def _may_take_edge_features(self) -> bool:
        """Whether the option ``edge_features=true`` is valid; found without importing user code."""
        return self.takes_edge_features

    def edge_width(self, num_edge_features: int) -> int:
        """Return the number of features of an edge that layers read: ``num_edge_features`` or 0.

        ``edge_features`` decides or, if it is None, ``takes_edge_features``.
        """
        if self.edge_features is False or not num_edge_features:
            return 0
        return num_edge_features if self.edge_features or self.takes_edge_features else 0

    def graph_read(self, graph: Graph) -> Graph:
        """Return ``graph``, without its edge features if layers do not read them."""
        unread = graph.num_edge_features and not self.edge_width(graph.num_edge_features)
        return graph.without_edge_features() if unread else graph

    def add_time_encoders(self, model: TrainableModel, timed: Sequence[bool]) -> None:
        """Let ``model`` read the relative time of vertices, if this architecture does; here not.

        ``timed`` says for each vertex type, or for all vertices, whether they have times.
        """
        return

    @property
    def row_width(self) -> int | None:
        """Number of features of an output row from which edges are predicted.

        None, as in this base class: the model cannot predict edges.
        """
        return None

    @property
    def drops_inputs(self) -> bool:
        """Whether dropout applies to input features during training; False in this base class."""
        return False

    @property
    def splits_columns(self) -> bool:
        """Whether P3 can divide the first layer's features and product by columns among devices."""
        return self.multiplies_once and self.aggregates_on_load

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer aggregates input rows linearly, as they are (without dropout).

        It is then a ``LinearAggregationLayer``, whose aggregation can be computed once for all
        steps.
        """
        return self.aggregates_linearly and not self.drops_inputs

    @abstractmethod
    def build(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build the model; initial weights come from torch's global generator."""

    def build_for(self, types: InputTypes, *, num_classes: int) -> TrainableModel:
        """Build the model for a graph with ``types``, by ``build_typed``."""
        return self.build_typed(
            schema=types.schema,
            widths=tuple(types.widths.values()),
            num_classes=num_classes,
            targets=() if types.target is None else (types.target,),
            edge_widths=types.edge_widths,
        )

    def build_typed(
        self,
        *,
        schema: GraphSchema,
        widths: tuple[int, ...],
        num_classes: int,
        targets: Sequence[str] = (),
        edge_widths: tuple[int, ...] = (),
    ) -> TrainableModel:
        """Build the model for a graph with types, whose vertices have ``widths`` features.

        ``targets`` names the vertex types of the seeds. Edges have ``edge_widths`` features by
        type; empty: none. ConfigError, as in this base class: the model reads no types.
        """
        raise ConfigError(f"model: expected rgcn, rsage, rgat, hgt or custom, got {self.name}")


@dataclass(frozen=True, kw_only=True)
class LayeredModel(ModelConfig):
    """Stack of layers of one kind, with ReLU and dropout between layers.

    Attributes:
        hidden: features of the hidden layers.
        dropout: probability of dropping a hidden feature.
        input_dropout: probability of dropping an input feature.
        norm: normalization between layers, one of ``NORMS``. ``batch`` computes mean and variance
            over the rows of a device's slice of the mini-batch; a slice of one row is normalized
            with the running statistics.
        residual: whether a layer's input rows are added to its output, between layers of
            ``hidden`` features.
        jumping: one of ``JUMPING``: concatenate the outputs of all layers, or take their maximum,
            and multiply the result with a last matrix.
    """

    hidden: int = 256
    dropout: float = 0.5
    input_dropout: float = 0.0
    norm: str = "none"
    residual: bool = False
    jumping: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, MAX_HIDDEN)
        check_dropout(self.dropout)
        check_dropout(self.input_dropout, "model.input_dropout")
        check_choice("model.norm", self.norm, NORMS)
        check_choice("model.jumping", self.jumping, JUMPING)
        least = 3 if self.jumping == "none" else 2
        if self.residual and self.num_layers < least:
            raise ConfigError(
                f"model.residual=true: expected model.num_layers of at least {least}, got "
                f"{self.num_layers}; a residual connection needs two consecutive layers of "
                "model.hidden features"
            )

    @property
    def row_width(self) -> int:
        """Number of features of an output row from which edges are predicted: ``hidden``."""
        return self.hidden

    @property
    def drops_inputs(self) -> bool:
        """Whether ``input_dropout`` is above 0."""
        return self.input_dropout > 0

    @property
    def takes_edge_features(self) -> bool:
        """Whether layers can read edge features: the subclass overrides ``edge_layer``."""
        return type(self).edge_layer is not LayeredModel.edge_layer

    @abstractmethod
    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a layer from ``num_in`` to ``num_out`` features; ``last``: its output is logits."""

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build a layer, as ``layer`` does, that reads ``edge_dim`` features of each edge.

        The base raises NotImplementedError: only architectures that read edge features override it.
        """
        raise NotImplementedError(f"{self.name} takes no edge features")

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; initial weights come from torch's global generator."""
        from torch import nn

        from gnnscale.nn.gnn import GNN, Connections, make_norm

        jumps = self.jumping != "none"
        hidden = [self.hidden] * (self.num_layers - 1)
        layer_widths = [num_features, *hidden, self.hidden if jumps else num_classes]
        edge_dim = self.edge_width(num_edge_features)
        layers = []
        for i in range(self.num_layers):
            sizes, last = layer_widths[i : i + 2], i + 1 == self.num_layers and not jumps
            if edge_dim:
                layers.append(self.edge_layer(*sizes, last=last, edge_dim=edge_dim))
            else:
                layers.append(self.layer(*sizes, last=last))
        norms = [make_norm(self.norm, self.hidden) for _ in range(self.num_layers - 1 + jumps)]
        output = None
        if jumps:
            num_joined = self.num_layers if self.jumping == "cat" else 1
            output = nn.Linear(num_joined * self.hidden, num_classes)
        return GNN(
            layers,
            norms,
            self.dropout,
            [num_features, *hidden, num_classes],
            connections=Connections(residual=self.residual, jumping=self.jumping),
            output=output,
            input_dropout=self.input_dropout,
        )
