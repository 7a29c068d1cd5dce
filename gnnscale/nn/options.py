"""Options of each architecture; they are checked without torch, which only ``build`` imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gnnscale.core import ConfigError, brief, check_choice, check_range
from gnnscale.core.config import names, user_code
from gnnscale.graph import GraphSchema, InputTypes
from gnnscale.nn.model_config import (
    MAX_HIDDEN,
    TIME_ENCODINGS,
    WITHOUT_FEATURES,
    LayeredModel,
    ModelConfig,
    check_dropout,
    check_heads,
)

if TYPE_CHECKING:
    from gnnscale.nn.base import TrainableModel
    from gnnscale.nn.conv.linear import GraphLayer
    from gnnscale.nn.gnn import GNN

#: Call conventions of a user's module; ``auto`` tries all of them.
FORMS = ("auto", "pyg", "pyg_bipartite", "pyg_trimmed", "pyg_hetero", "dgl", "blocks")

#: Aggregation of neighbors in GraphSAGE.
AGGREGATORS = ("mean", "pool")


@dataclass(frozen=True, kw_only=True)
class GCN(LayeredModel):
    """Graph convolutional network."""

    aggregates_linearly: ClassVar[bool] = True
    multiplies_once: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a GCN layer from ``num_in`` to ``num_out`` features."""
        from gnnscale.nn.conv.linear import GCNLayer

        return GCNLayer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GraphSAGE(LayeredModel):
    """GraphSAGE.

    Attributes:
        aggregator: one of ``AGGREGATORS``: ``mean`` of the neighbors' rows; ``pool``, the maximum
            of the neighbors' rows after a linear layer with ReLU (GraphSAGE, eq. 3).
        time_encoding: one of ``TIME_ENCODINGS``: encoding of the days from a vertex's time to the
            cut-off, which is added to its features. None: sinusoidal, if task rows have cut-offs.
    """

    multiplies_once: ClassVar[bool] = True

    aggregator: str = "mean"
    time_encoding: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_encoding is not None:
            check_choice("model.time_encoding", self.time_encoding, TIME_ENCODINGS)
        check_choice("model.aggregator", self.aggregator, AGGREGATORS)

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer aggregates input rows linearly: by ``mean``, without dropout."""
        return self.aggregator == "mean" and not self.drops_inputs

    def add_time_encoders(self, model: TrainableModel, timed: Sequence[bool]) -> None:
        """Let ``model`` add the encoded relative time of vertices, if they are ``timed``."""
        from gnnscale.nn.time_encoding import add_encoder

        add_encoder(model, self.time_encoding, self.hidden, timed)

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a GraphSAGE layer from ``num_in`` to ``num_out`` features."""
        from gnnscale.nn.conv.linear import SAGELayer
        from gnnscale.nn.conv.pooling import PoolingLayer

        layer = SAGELayer if self.aggregator == "mean" else PoolingLayer
        return layer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GAT(LayeredModel):
    """Graph attention network; ``hidden`` counts the features of all heads together.

    Attributes:
        num_heads: attention heads, a divisor of ``hidden``.
    """

    num_heads: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.num_heads, self.hidden)

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a layer without edge features; ``last``: heads are averaged, else concatenated."""
        return self.edge_layer(num_in, num_out, last=last, edge_dim=0)

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build a GAT layer whose attention reads ``edge_dim`` features of each edge, 0: none.

        ``last``: its heads are averaged, else concatenated.
        """
        from gnnscale.nn.conv.gat import GATLayer

        return GATLayer(num_in, num_out, self.num_heads, average=last, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class GATv2(GAT):
    """Graph attention network whose scores rank neighbors differently for each vertex.

    Attributes:
        share_weights: whether one matrix projects both ends of an edge.
    """

    share_weights: bool = False

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build a GATv2 layer whose attention reads ``edge_dim`` features of each edge, 0: none.

        ``last``: its heads are averaged, else concatenated.
        """
        from gnnscale.nn.conv.gat import GATv2Layer

        return GATv2Layer(
            num_in,
            num_out,
            self.num_heads,
            average=last,
            share_weights=self.share_weights,
            edge_dim=edge_dim,
        )


@dataclass(frozen=True, kw_only=True)
class GIN(LayeredModel):
    """Graph isomorphism network; with edge features GINE, whose messages read them."""

    aggregates_linearly: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build a GIN layer from ``num_in`` to ``num_out`` features."""
        from gnnscale.nn.conv.linear import GINLayer

        return GINLayer(num_in, self.hidden, num_out)

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build a GINE layer, whose messages read ``edge_dim`` features of each edge."""
        from gnnscale.nn.conv.gine import GINELayer

        return GINELayer(num_in, self.hidden, num_out, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class SGC(ModelConfig):
    """Simple graph convolution: GCN with one matrix and nothing between its layers.

    A layer is one hop. The matrix is applied after the first hop, so that later hops aggregate rows
    of ``num_classes`` features. Hops are linear: the logits are those of a matrix after all hops.

    Attributes:
        hidden: features of output rows from which edges are predicted. Output rows for the
            prediction of vertices have a feature for each class.
    """

    aggregates_linearly: ClassVar[bool] = True
    multiplies_once: ClassVar[bool] = True

    hidden: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, MAX_HIDDEN)

    @property
    def row_width(self) -> int:
        """Number of features of an output row from which edges are predicted: ``hidden``."""
        return self.hidden

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; initial weights come from torch's global generator."""
        from gnnscale.nn.conv.linear import GCNLayer, HopLayer
        from gnnscale.nn.gnn import GNN, Connections

        # The bias comes last: hops would change it.
        layers: list[GraphLayer] = [GCNLayer(num_features, num_classes, bias=self.num_layers == 1)]
        for index in range(1, self.num_layers):
            layers.append(HopLayer(num_classes if index + 1 == self.num_layers else None))
        widths = [num_features, *[num_classes] * self.num_layers]
        return GNN(layers, [], 0.0, widths, connections=Connections(activates=False))


@dataclass(frozen=True, kw_only=True)
class APPNP(ModelConfig):
    """Approximate personalized propagation of neural predictions (Gasteiger et al. 2019).

    A perceptron with one hidden layer predicts ``h`` from the features, and a layer is one step of
    propagation: ``z = (1 - alpha) A z + alpha h``.

    Attributes:
        hidden: features of the hidden layer, and of output rows from which edges are predicted.
        dropout: probability of dropping a hidden feature.
        input_dropout: probability of dropping an input feature.
        alpha: probability of a teleport to the vertex itself; above 0, at most 1.
    """

    hidden: int = 64
    dropout: float = 0.5
    input_dropout: float = 0.0
    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, MAX_HIDDEN)
        check_dropout(self.dropout)
        check_dropout(self.input_dropout, "model.input_dropout")
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"model.alpha={self.alpha}: expected above 0 and at most 1")

    @property
    def row_width(self) -> int:
        """Number of features of an output row from which edges are predicted: ``hidden``."""
        return self.hidden

    @property
    def drops_inputs(self) -> bool:
        """Whether ``input_dropout`` is above 0."""
        return self.input_dropout > 0

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; initial weights come from torch's global generator."""
        from gnnscale.nn.conv.linear import HopLayer
        from gnnscale.nn.gnn import GNN, Connections, Perceptron

        return GNN(
            [HopLayer() for _ in range(self.num_layers)],
            [],
            self.dropout,
            [num_features, *[num_classes] * self.num_layers],
            connections=Connections(activates=False, teleport=self.alpha),
            encoder=Perceptron(num_features, self.hidden, num_classes),
            input_dropout=self.input_dropout,
        )


@dataclass(frozen=True, kw_only=True)
class CustomModel(ModelConfig):
    """Your ``torch.nn.Module``; see docs/your-model.md.

    Attributes:
        module: ``MODULE:NAME`` or ``FILE.py:NAME`` of a class of ``torch.nn.Module``, or of a
            function that returns a module. A program may pass the class, or a built module.
        arguments: keyword arguments of the constructor.
        form: call convention of ``forward``, one of ``FORMS``.
        hidden: value of the constructor's argument for hidden features (``hidden_channels``,
            ``hidden``, ...); null: the constructor's default.
        dropout: value of the constructor's argument ``dropout``; null: the constructor's default.
        without_features: what vertices of a type without features get in a graph with types, one of
            ``WITHOUT_FEATURES``: ``learned``, a row of ``hidden`` weights, or of 128; ``degrees``,
            logarithms of their degrees by edge type; or ``constant``, a one. None: learned rows,
            but degrees for a type of more than 10 million vertices.
    """

    module: Any = field(metadata=names("code"))
    arguments: dict[str, Any] = field(default_factory=dict, metadata=names("arguments"))
    form: str = "auto"
    hidden: int | None = None
    dropout: float | None = None
    without_features: str | None = None

    takes_bfloat16: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.module):
            user_code.check_name(self.module, option="model.module")
        check_choice("model.form", self.form, FORMS)
        if self.hidden is not None:
            check_range("model.hidden", self.hidden, 1, MAX_HIDDEN)
        if self.dropout is not None:
            check_dropout(self.dropout)
        if self.without_features is not None:
            check_choice("model.without_features", self.without_features, WITHOUT_FEATURES)
        for name in self.arguments:
            if not name.isidentifier():
                raise ConfigError(
                    f"model.arguments.{brief(name)}: expected the name of an argument"
                )

    @property
    def name(self) -> str:
        """Name of the class or function, as reports show it."""
        return user_code.short_name(self.named)

    @property
    def named(self) -> str:
        """``MODULE:NAME`` or ``FILE.py:NAME`` of the user's code, as in a run's ``config.yaml``."""
        return self.module if isinstance(self.module, str) else user_code.name_of_code(self.module)

    @property
    def takes_edge_features(self) -> bool:
        """Whether the module takes edge features, by argument names of ``forward`` and constructor.

        The user's code is imported.
        """
        code = self.module
        if isinstance(code, str):
            code = user_code.load_named(code, option="model.module")
        parameters = {*user_code.arguments_of(getattr(code, "forward", None)), *self.arguments}
        if isinstance(code, type) or not hasattr(code, "forward"):
            parameters.update(user_code.arguments_of(code))
        return not parameters.isdisjoint((*user_code.EDGE_ATTR, *user_code.EDGE_WIDTH))

    @property
    def _may_take_edge_features(self) -> bool:
        return True

    def build(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build the user's module as a trainable model, tried on a tiny mini-batch.

        ConfigError: importing, building or calling it fails.
        """
        from gnnscale.nn.user_module import build_user_model

        for name, value in (("form", "pyg_hetero"), ("without_features", self.without_features)):
            if value is not None and getattr(self, name) == value:
                raise ConfigError(
                    f"model.{name}={value}: expected a graph with types, got one without"
                )
        settings = self._run_settings(num_features, num_classes, num_edge_features)
        return build_user_model(
            self.module, self.arguments, settings, form=self.form, module_name=self.named
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
        """Build the user's module for a graph with types, as ``build`` does without.

        It is tried on seeds of the types ``targets``; empty: of the first type. Features of edges
        are not read.
        """
        from gnnscale.nn.typed_user_module import build_typed_user_model
        from gnnscale.nn.user_constructor import type_settings

        return build_typed_user_model(
            self.module,
            self.arguments,
            self._run_settings(0, num_classes, 0) | type_settings(schema, widths),
            form=self.form,
            module_name=self.named,
            schema=schema,
            targets=targets,
        )

    def warn_unless_built_again(
        self, *, num_features: int, num_classes: int, types: InputTypes | None = None
    ) -> None:
        """Warn if ``module`` is a built module that its class cannot build again.

        It can if constructing the class from the run's options gives weights of the same shapes.
        ``types`` are those of the graph; None: it has none.
        """
        from torch import nn

        from gnnscale.nn.user_constructor import type_settings, warn_unless_built_again

        if isinstance(self.module, nn.Module):
            settings = self._run_settings(num_features, num_classes, 0)
            if types is not None:
                settings |= type_settings(types.schema, tuple(types.widths.values()))
            warn_unless_built_again(self.module, settings, self.named)

    def _run_settings(
        self, num_features: int, num_classes: int, num_edge_features: int
    ) -> dict[str, Any]:
        """Return the run's values that may fill arguments of the constructor; None: not set.

        Keys are meanings, such as ``hidden``, whatever the name of the argument.
        """
        return {
            "num_features": num_features,
            "num_classes": num_classes,
            "hidden": self.hidden,
            "num_layers": self.num_layers,
            "dropout": self.dropout,
            "num_edge_features": self.edge_width(num_edge_features) or None,
        }
