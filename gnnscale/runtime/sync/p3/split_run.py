"""One worker's part of a run whose first layer is split by columns of the features (P3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.exchange import ColumnExchange
from gnnscale.runtime.sync.p3.split_model import PartialTrade, SplitGNN
from gnnscale.runtime.sync.p3.weights import SplitWeights

__all__ = ["SplitRun"]


class SplitRun:
    """What stands in the place of the whole model, of all features, and of no exchange.

    Attributes:
        model: the part of the model that this device trains.
    """

    def __init__(self, whole: GNN, columns: Sequence[tuple[int, int]], group: Group) -> None:
        """Split ``whole`` among the workers of ``group``, who all do so at the same time.

        Args:
            whole: the model, with the same weights in every process.
            columns: ``(first, last + 1)`` of the features that each device has.
            group: the workers.
        """
        self._whole = whole
        self._columns = columns
        self._group = group
        mine = columns[group.rank]
        self.model = SplitGNN(whole, mine, PartialTrade(group.with_own_connections()))

    def store(self, graph: Graph) -> HostFeatures:
        """Return the device's columns of the features."""
        return HostFeatures.of(graph, columns=self._columns[self._group.rank])

    def exchange(self, loader: FeatureLoader) -> ColumnExchange:
        """Return the exchange of input blocks, over connections of its own."""
        return ColumnExchange(self._group.with_own_connections(), self.model, loader)

    def weights(self, optimizer: torch.optim.Optimizer) -> SplitWeights:
        """Return what joins the devices' weights, which ``optimizer`` updates here."""
        return SplitWeights(self._whole, self.model, optimizer, self._columns, self._group)
