"""Group ``features``: where workers read features from. Read without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnnscale.graph import Graph

if TYPE_CHECKING:
    from gnnscale.feature.store import FeatureStore


@dataclass(frozen=True, kw_only=True)
class FeatureStoreConfig(ABC):
    """Base of the configuration group ``features``."""

    #: Whether the first layer's aggregation is computed before training, and its rows are read.
    preaggregates: ClassVar[bool] = False

    @abstractmethod
    def open(self, graph: Graph) -> FeatureStore:
        """Return the store of one worker, over the features of ``graph``."""


@dataclass(frozen=True, kw_only=True)
class HostFeaturesConfig(FeatureStoreConfig):
    """Every worker reads the graph's features from host memory."""

    def open(self, graph: Graph) -> FeatureStore:
        """Return the store."""
        from gnnscale.feature.host import HostFeatures

        return HostFeatures.of(graph)


@dataclass(frozen=True, kw_only=True)
class PreaggregatedFeaturesConfig(HostFeaturesConfig):
    """The first layer's aggregation is computed before training, if it takes all neighbours."""

    preaggregates: ClassVar[bool] = True
