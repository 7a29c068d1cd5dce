"""The options of each architecture, checked before torch is imported; only ``build`` needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnnscale.config import ConfigError, check_choice, check_range

if TYPE_CHECKING:
    from gnnscale.model.gnn import GNN
    from gnnscale.model.layer import GraphLayer

__all__ = ["GAT", "GCN", "GIN", "NORMS", "GraphSAGE", "ModelConfig"]

#: Normalisation between layers.
NORMS = ("none", "batch", "layer")

#: Sizes beyond which weights fit no machine, and gradients no number format.
_MAX_HIDDEN = 1 << 16
_MAX_LAYERS = 64


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """Base of the configuration group ``model``.

    Attributes:
        hidden: features of the hidden layers.
        num_layers: number of layers, which must be the sampler's number of hops.
        dropout: probability of dropping a hidden feature.
        norm: one of ``NORMS``, between layers.
    """

    hidden: int = 256
    num_layers: int = 2
    dropout: float = 0.5
    norm: str = "none"

    #: Whether devices can split the first layer among them; see ``GraphLayer.splits_columns``.
    splits_columns: ClassVar[bool] = False
    #: Whether the first layer's aggregation is linear with coefficients that no weight changes, as
    #: in ``LinearAggregationLayer``: it can then be computed once for all steps.
    aggregates_on_load: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("model.hidden", self.hidden, 1, _MAX_HIDDEN)
        check_range("model.num_layers", self.num_layers, 1, _MAX_LAYERS)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout={self.dropout}: must be at least 0 and below 1")
        check_choice("model.norm", self.norm, NORMS)

    @property
    def name(self) -> str:
        """What reports call the architecture."""
        return type(self).__name__

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


@dataclass(frozen=True, kw_only=True)
class GCN(ModelConfig):
    """Graph convolutional network."""

    splits_columns: ClassVar[bool] = True
    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.gcn import GCNLayer

        return GCNLayer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GraphSAGE(ModelConfig):
    """GraphSAGE with mean aggregation."""

    splits_columns: ClassVar[bool] = True
    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.sage import SAGELayer

        return SAGELayer(num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class GAT(ModelConfig):
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
class GIN(ModelConfig):
    """Graph isomorphism network."""

    aggregates_on_load: ClassVar[bool] = True

    def layer(self, num_in: int, num_out: int, *, last: bool) -> GraphLayer:
        """Build one layer."""
        from gnnscale.model.gin import GINLayer

        return GINLayer(num_in, self.hidden, num_out)
