"""The options of each architecture, checked before torch is imported; only ``build`` needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gnnscale.core import ConfigError, check_choice, check_range, shown
from gnnscale.graph import Graph
from gnnscale.options import found, user_code

if TYPE_CHECKING:
    from gnnscale.model.gnn import GNN
    from gnnscale.model.layer import GraphLayer
    from gnnscale.model.trainable import TrainableModel

#: How your module is called; ``auto`` tries all of them.
FORMS = ("auto", "pyg", "pyg_bipartite", "pyg_trimmed", "dgl", "blocks")

#: Normalisation between layers.
NORMS = ("none", "batch", "layer")

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

    #: Whether devices can split the first layer among them; see ``GraphLayer.splits_columns``.
    splits_columns: ClassVar[bool] = False
    #: Whether the first layer's aggregation is linear with coefficients that no weight changes, as
    #: in ``LinearAggregationLayer``: it can then be computed once for all steps.
    aggregates_on_load: ClassVar[bool] = False
    #: Whether rows may be of another type than float32; see ``runtime.compute_dtype``.
    takes_bfloat16: ClassVar[bool] = True
    #: Whether a field holds a class of a program, so that no file can name these options.
    only_in_programs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("model.num_layers", self.num_layers, 1, _MAX_LAYERS)

    @property
    def name(self) -> str:
        """What reports call the architecture."""
        return type(self).__name__

    @property
    def takes_edge_features(self) -> bool:
        """Whether layers can read features of edges."""
        return False

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
        norm: one of ``NORMS``, between layers.
    """

    hidden: int = 256
    dropout: float = 0.5
    norm: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)
        _check_dropout(self.dropout)
        check_choice("model.norm", self.norm, NORMS)
        if self.edge_features and not self.takes_edge_features:
            raise ConfigError(
                f"model.edge_features=true: layers of {self.name} read no features of edges; those "
                "of model=gat and gin do, and modules of your own"
            )

    @abstractmethod
    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer of this architecture."""

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer that reads ``edge_dim`` features of each edge, if there is such."""
        raise NotImplementedError(f"{self.name} takes no features of edges")

    def build(self, *, num_features: int, num_classes: int, num_edge_features: int = 0) -> GNN:
        """Build the model; weights come from torch's global generator."""
        from gnnscale.model.gnn import GNN, make_norm

        widths = [num_features, *[self.hidden] * (self.num_layers - 1), num_classes]
        edge_dim = self.edge_width(num_edge_features)
        layers = []
        for i in range(self.num_layers):
            sizes, last = widths[i : i + 2], i + 1 == self.num_layers
            if edge_dim:
                layers.append(self.edge_layer(*sizes, last=last, edge_dim=edge_dim))
            else:
                layers.append(self.layer(*sizes, last=last))
        norms = [make_norm(self.norm, self.hidden) for _ in range(self.num_layers - 1)]
        return GNN(layers, norms, self.dropout, widths)


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ConfigError(f"model.dropout={dropout}: must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class GCN(LayeredModel):
    """Graph convolutional network."""

    splits_columns: ClassVar[bool] = True
    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.layer import GCNLayer

        return GCNLayer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GraphSAGE(LayeredModel):
    """GraphSAGE with mean aggregation."""

    splits_columns: ClassVar[bool] = True
    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.layer import SAGELayer

        return SAGELayer(num_in, num_out)


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
        from gnnscale.model.gat import GATLayer

        return GATLayer(num_in, num_out, self.num_heads, average=last, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class GIN(LayeredModel):
    """Graph isomorphism network; if edges have features, GINE, whose messages read them."""

    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.layer import GINLayer

        return GINLayer(num_in, self.hidden, num_out)

    @property
    def takes_edge_features(self) -> bool:
        """It does."""
        return True

    def edge_layer(self, num_in: int, num_out: int, *, last: bool, edge_dim: int) -> GraphLayer:
        """Build one layer whose messages read ``edge_dim`` features of each edge."""
        from gnnscale.model.gine import GINELayer

        return GINELayer(num_in, self.hidden, num_out, edge_dim=edge_dim)


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

    def build(
        self, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Import and build the module, and try it.

        Raises:
            ConfigError: it cannot be imported or built, or what it returns is no logits.
        """
        from gnnscale.model.user_module import build_user_model

        return build_user_model(
            self.module,
            self.arguments,
            {
                "num_features": num_features,
                "num_classes": num_classes,
                "hidden": self.hidden,
                "num_layers": self.num_layers,
                "dropout": self.dropout,
                "num_edge_features": self.edge_width(num_edge_features) or None,
            },
            form=self.form,
            named=self.named,
        )
