"""The options of each architecture, checked before torch is imported; only ``build`` needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gnnscale.core import ConfigError, check_choice, check_range, shown
from gnnscale.core.config import untrusted as found
from gnnscale.core.config import user_code
from gnnscale.graph import Graph

if TYPE_CHECKING:
    from gnnscale.nn.base import TrainableModel
    from gnnscale.nn.conv.linear import GraphLayer
    from gnnscale.nn.gnn import GNN

#: How your module is called; ``auto`` tries all of them.
FORMS = ("auto", "pyg", "pyg_bipartite", "pyg_trimmed", "dgl", "blocks")

#: Normalisation between layers.
NORMS = ("none", "batch", "layer")

#: How the outputs of all layers become the input of a last product (Xu et al. 2018); ``none`` if
#: the last layer's output is the answer.
JUMPING = ("none", "cat", "max")

#: How GraphSAGE aggregates neighbours.
AGGREGATORS = ("mean", "pool")

#: Sizes beyond which weights fit no machine, and gradients no number format.
_MAX_HIDDEN = 1 << 16
_MAX_LAYERS = 64


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """Base of the configuration group ``model``.

    Attributes:
        num_layers: number of layers, which must be the sampler's number of hops.
        edge_features: whether layers read the features of edges; null if edges have some, and the
            model can.
    """

    num_layers: int = 2
    edge_features: bool | None = None

    #: Whether rows may be of another type than float32; see ``runtime.compute_dtype``.
    takes_bfloat16: ClassVar[bool] = True
    #: Whether a field holds a class of a program, so that no file can name these options.
    only_in_programs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("model.num_layers", self.num_layers, 1, _MAX_LAYERS)
        if self.edge_features and not self._may_take_edge_features:
            raise ConfigError(
                f"model.edge_features=true: layers of {self.name} read no features of edges; those "
                "of model=gat, gatv2 and gin do, and modules of your own"
            )

    @property
    def name(self) -> str:
        """What reports call the architecture."""
        return type(self).__name__

    @property
    def takes_edge_features(self) -> bool:
        """Whether layers can read features of edges."""
        return False

    @property
    def _may_take_edge_features(self) -> bool:
        """Whether the options may say that they do."""
        return self.takes_edge_features

    def edge_width(self, num_edge_features: int) -> int:
        """Return how many features of each edge layers read, 0 if none.

        Args:
            num_edge_features: that edges have.
        """
        if self.edge_features is False or not num_edge_features:
            return 0
        return num_edge_features if self.edge_features or self.takes_edge_features else 0

    def graph_read(self, graph: Graph) -> Graph:
        """Return ``graph`` as layers read it: without features of edges that they do not read."""
        unread = graph.num_edge_features and not self.edge_width(graph.num_edge_features)
        return graph.without_edge_features() if unread else graph

    @property
    def row_width(self) -> int | None:
        """Features of the output rows by which edges are predicted; None if there are no such."""
        return None

    @property
    def drops_inputs(self) -> bool:
        """Whether features of input rows are dropped while a model is trained."""
        return False

    @property
    def splits_columns(self) -> bool:
        """Whether devices can split the first layer; see ``GraphLayer.splits_columns``."""
        return False

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer aggregates features with coefficients that no weight changes.

        It is then a ``LinearAggregationLayer``, and can be aggregated once for all steps.
        """
        return False

    @abstractmethod
    def build(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build the model; weights come from torch's global generator."""


@dataclass(frozen=True, kw_only=True)
class LayeredModel(ModelConfig):
    """A model of equal layers, with ReLU and dropout between them.

    Attributes:
        hidden: features of the hidden layers.
        dropout: probability of dropping a hidden feature.
        input_dropout: probability of dropping an input feature.
        norm: one of ``NORMS``, between layers. ``batch`` takes mean and variance over the rows of a
            device's slice of the mini-batch; a slice with one row takes the running statistics.
        residual: add a layer's input rows to its output, between layers of ``hidden`` features.
        jumping: one of ``JUMPING``: concatenate the outputs of all layers, or take their maximum,
            and multiply with a last matrix.
    """

    hidden: int = 256
    dropout: float = 0.5
    input_dropout: float = 0.0
    norm: str = "none"
    residual: bool = False
    jumping: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)
        _check_dropout(self.dropout)
        _check_dropout(self.input_dropout, "model.input_dropout")
        check_choice("model.norm", self.norm, NORMS)
        check_choice("model.jumping", self.jumping, JUMPING)
        least = 3 if self.jumping == "none" else 2
        if self.residual and self.num_layers < least:
            raise ConfigError(
                f"model.residual=true: model.num_layers={self.num_layers} has no two layers of "
                f"model.hidden features after each other, must be at least {least}"
            )

    @property
    def row_width(self) -> int:
        """As those of hidden layers."""
        return self.hidden

    @property
    def drops_inputs(self) -> bool:
        """If ``input_dropout`` is above 0."""
        return self.input_dropout > 0

    @abstractmethod
    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer of this architecture."""

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer that reads ``edge_dim`` features of each edge, if there is such."""
        raise NotImplementedError(f"{self.name} takes no features of edges")

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; weights come from torch's global generator."""
        from torch import nn

        from gnnscale.nn.gnn import GNN, Connections, make_norm

        joins = self.jumping != "none"
        hidden = [self.hidden] * (self.num_layers - 1)
        ends = [num_features, *hidden, self.hidden if joins else num_classes]
        edge_dim = self.edge_width(num_edge_features)
        layers = []
        for i in range(self.num_layers):
            sizes, last = ends[i : i + 2], i + 1 == self.num_layers and not joins
            if edge_dim:
                layers.append(self.edge_layer(*sizes, last=last, edge_dim=edge_dim))
            else:
                layers.append(self.layer(*sizes, last=last))
        norms = [make_norm(self.norm, self.hidden) for _ in range(self.num_layers - 1 + joins)]
        connections = Connections(residual=self.residual, jumping=self.jumping)
        output = None
        if joins:
            num_rows = self.num_layers if self.jumping == "cat" else 1
            output = nn.Linear(num_rows * self.hidden, num_classes)
        widths = [num_features, *hidden, num_classes]
        return GNN(
            layers,
            norms,
            self.dropout,
            widths,
            connections=connections,
            output=output,
            input_dropout=self.input_dropout,
        )


def _check_dropout(dropout: float, option: str = "model.dropout") -> None:
    if not 0 <= dropout < 1:
        raise ConfigError(f"{option}={dropout}: must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class GCN(LayeredModel):
    """Graph convolutional network."""

    @property
    def splits_columns(self) -> bool:
        """Devices can split the first layer, unless rows are changed before it."""
        return not self.drops_inputs

    @property
    def aggregates_on_load(self) -> bool:
        """The aggregation is linear, and has rows as they are without input dropout."""
        return not self.drops_inputs

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.nn.conv.linear import GCNLayer

        return GCNLayer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GraphSAGE(LayeredModel):
    """GraphSAGE.

    Attributes:
        aggregator: one of ``AGGREGATORS``: the mean of the neighbours, or the maximum of what a
            layer of a perceptron makes of each (GraphSAGE, eq. 3).
    """

    aggregator: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("model.aggregator", self.aggregator, AGGREGATORS)

    @property
    def splits_columns(self) -> bool:
        """Devices can split the first layer if it takes the mean of rows as they are."""
        return self.aggregator == "mean" and not self.drops_inputs

    @property
    def aggregates_on_load(self) -> bool:
        """The mean is linear, the maximum is not; rows are as they are without input dropout."""
        return self.aggregator == "mean" and not self.drops_inputs

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.nn.conv.linear import SAGELayer
        from gnnscale.nn.conv.pooling import PoolingLayer

        layer = SAGELayer if self.aggregator == "mean" else PoolingLayer
        return layer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GAT(LayeredModel):
    """Graph attention network: ``hidden`` features over all heads together.

    Attributes:
        num_heads: heads of attention; it divides ``hidden``.
    """

    num_heads: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads < 1 or self.hidden % self.num_heads:
            raise ConfigError(
                f"model.num_heads={self.num_heads}: must divide model.hidden={self.hidden}"
            )

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        return self.edge_layer(num_in, num_out, last=last, edge_dim=0)

    @property
    def takes_edge_features(self) -> bool:
        """It does."""
        return True

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer whose attention reads ``edge_dim`` features of each edge."""
        from gnnscale.nn.conv.gat import GATLayer

        return GATLayer(num_in, num_out, self.num_heads, average=last, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class GATv2(GAT):
    """Graph attention network whose scores rank neighbours differently for each vertex.

    Attributes:
        share_weights: whether one matrix projects both ends of an edge.
    """

    share_weights: bool = False

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer whose attention reads ``edge_dim`` features of each edge."""
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
    """Graph isomorphism network; if edges have features, GINE, whose messages read them."""

    @property
    def aggregates_on_load(self) -> bool:
        """The sum is linear, and has rows as they are without input dropout."""
        return not self.drops_inputs

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.nn.conv.linear import GINLayer

        return GINLayer(num_in, self.hidden, num_out)

    @property
    def takes_edge_features(self) -> bool:
        """It does."""
        return True

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer whose messages read ``edge_dim`` features of each edge."""
        from gnnscale.nn.conv.gine import GINELayer

        return GINELayer(num_in, self.hidden, num_out, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class SGC(ModelConfig):
    """Simple graph convolution: GCN without anything between its layers, and with one matrix.

    A layer is one hop. The product comes after the first hop: hops are linear, so that its place
    does not change the logits, and later hops have rows of ``num_classes``.

    Attributes:
        hidden: features of output rows if edges are predicted by them. Predictions of vertices have
            one for each class instead.
    """

    hidden: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)

    @property
    def row_width(self) -> int:
        """As ``hidden``."""
        return self.hidden

    @property
    def splits_columns(self) -> bool:
        """Devices can split the product."""
        return True

    @property
    def aggregates_on_load(self) -> bool:
        """The hops are linear."""
        return True

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; weights come from torch's global generator."""
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
    """Approximate personalised propagation of neural predictions (Gasteiger et al. 2019).

    A perceptron with one hidden layer makes predictions of features, and a layer is one step of
    propagation: ``z = (1 - alpha) A z + alpha h``.

    Attributes:
        hidden: features of the hidden layer; and of output rows, if edges are predicted by them.
        dropout: probability of dropping a hidden feature.
        input_dropout: probability of dropping an input feature.
        alpha: probability of a teleport to the vertex itself.
    """

    hidden: int = 64
    dropout: float = 0.5
    input_dropout: float = 0.0
    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)
        _check_dropout(self.dropout)
        _check_dropout(self.input_dropout, "model.input_dropout")
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"model.alpha={self.alpha}: must be above 0 and at most 1")

    @property
    def row_width(self) -> int:
        """As the hidden layer."""
        return self.hidden

    @property
    def drops_inputs(self) -> bool:
        """If ``input_dropout`` is above 0."""
        return self.input_dropout > 0

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; weights come from torch's global generator."""
        from gnnscale.nn.conv.linear import HopLayer
        from gnnscale.nn.gnn import GNN, Connections, Perceptron

        encoder = Perceptron(num_features, self.hidden, num_classes)
        widths = [num_features, *[num_classes] * self.num_layers]
        connections = Connections(activates=False, teleport=self.alpha)
        hops = [HopLayer() for _ in range(self.num_layers)]
        return GNN(
            hops,
            [],
            self.dropout,
            widths,
            connections=connections,
            encoder=encoder,
            input_dropout=self.input_dropout,
        )


@dataclass(frozen=True, kw_only=True)
class CustomModel(ModelConfig):
    """Your module; see docs/your-model.md.

    Attributes:
        module: ``MODULE:NAME`` or ``FILE.py:NAME`` of a class of ``torch.nn.Module``, or of a
            function that returns one. A program may pass the class, or a module that is built.
        arguments: of the constructor, by name.
        form: one of ``FORMS``, how ``forward`` is called.
        hidden: for the constructor's argument of such a name; None leaves its default.
        dropout: likewise.
    """

    module: Any = field(metadata=found.names("code"))
    arguments: dict[str, Any] = field(default_factory=dict, metadata=found.names("arguments"))
    form: str = "auto"
    hidden: int | None = None
    dropout: float | None = None

    takes_bfloat16: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.module):
            user_code.check_name(self.module, option="model.module")
        check_choice("model.form", self.form, FORMS)
        if self.hidden is not None:
            check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)
        if self.dropout is not None:
            _check_dropout(self.dropout)
        for name in self.arguments:
            if not name.isidentifier():
                raise ConfigError(f"model.arguments.{shown(name)}: no name of an argument")

    @property
    def name(self) -> str:
        """What reports call the architecture."""
        return self.named.rpartition(":")[2]

    @property
    def named(self) -> str:
        """``module`` as text, as a run's ``config.yaml`` shows it."""
        return self.module if isinstance(self.module, str) else user_code.name_of_code(self.module)

    @property
    def takes_edge_features(self) -> bool:
        """Whether arguments of ``forward`` or of the constructor are named so; imports the code."""
        code = self.module
        if isinstance(code, str):
            code = user_code.load_named(code, option="model.module")
        names = {*user_code.arguments_of(getattr(code, "forward", None)), *self.arguments}
        if isinstance(code, type) or not hasattr(code, "forward"):
            names.update(user_code.arguments_of(code))
        return not names.isdisjoint((*user_code.EDGE_ATTR, *user_code.EDGE_WIDTH))

    @property
    def _may_take_edge_features(self) -> bool:
        return True

    def build(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Import and build the module, and try it.

        Raises:
            ConfigError: it cannot be imported or built, or what it returns is no logits.
        """
        from gnnscale.nn.user_module import build_user_model

        known = self._known(num_features, num_classes, num_edge_features)
        return build_user_model(
            self.module, self.arguments, known, form=self.form, named=self.named
        )

    def warn_unless_built_again(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> None:
        """Warn if the module is built already, and its name does not build it after the run."""
        from torch import nn

        from gnnscale.nn.user_module import warn_unless_built_again

        if isinstance(self.module, nn.Module):
            known = self._known(num_features, num_classes, num_edge_features)
            warn_unless_built_again(self.module, known, self.named)

    def _known(self, num_features: int, num_classes: int, num_edge_features: int) -> dict[str, Any]:
        """Return what a run says of the model."""
        return {
            "num_features": num_features,
            "num_classes": num_classes,
            "hidden": self.hidden,
            "num_layers": self.num_layers,
            "dropout": self.dropout,
            "num_edge_features": self.edge_width(num_edge_features) or None,
        }
