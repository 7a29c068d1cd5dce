"""The options of each architecture, checked before torch is imported; only ``build`` needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gnnscale.core import ConfigError, check_choice, check_range, shown
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
    """

    num_layers: int = 2

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

    @abstractmethod
    def build(self, *, num_features: int, num_classes: int) -> TrainableModel:
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

    @abstractmethod
    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer of this architecture."""

    def build(self, *, num_features: int, num_classes: int) -> GNN:
        """Build the model; weights come from torch's global generator."""
        from gnnscale.model.gnn import GNN, make_norm

        widths = [num_features, *[self.hidden] * (self.num_layers - 1), num_classes]
        layers = [
            self.layer(widths[i], widths[i + 1], last=i + 1 == self.num_layers)
            for i in range(self.num_layers)
        ]
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
        from gnnscale.model.gat import GATLayer

        return GATLayer(num_in, num_out, self.num_heads, average=last)


@dataclass(frozen=True, kw_only=True)
class GIN(LayeredModel):
    """Graph isomorphism network."""

    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.layer import GINLayer

        return GINLayer(num_in, self.hidden, num_out)


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

    def build(self, *, num_features: int, num_classes: int) -> TrainableModel:
        """Import and build the module, and try it.

        Raises:
            ConfigError: it cannot be imported or built, or what it returns is no logits.
        """
        from gnnscale.model.user_module import build_user_model

        known = self._known(num_features, num_classes)
        return build_user_model(
            self.module, self.arguments, known, form=self.form, named=self.named
        )

    def warn_unless_built_again(self, *, num_features: int, num_classes: int) -> None:
        """Warn if the module is built already, and its name does not build it after the run."""
        from torch import nn

        from gnnscale.model.user_module import warn_unless_built_again

        if isinstance(self.module, nn.Module):
            known = self._known(num_features, num_classes)
            warn_unless_built_again(self.module, known, self.named)

    def _known(self, num_features: int, num_classes: int) -> dict[str, Any]:
        """Return what a run says of the model."""
        return {
            "num_features": num_features,
            "num_classes": num_classes,
            "hidden": self.hidden,
            "num_layers": self.num_layers,
            "dropout": self.dropout,
        }
