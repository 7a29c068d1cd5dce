"""One worker's part of a run whose first layer is split by columns of the features (P3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gnnscale.backend.loading import FeatureLoader
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.optimizer.plain import optimizer_state, restore_optimizer
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.exchange import ColumnExchange
from gnnscale.runtime.sync.p3.split_model import PartialTrade, SplitGNN, column_slice


class SplitWeights:
    """Joins the columns of all devices to the whole W¹, and takes them from it.

    A checkpoint so is that of the whole model, for any number of devices that write it.
    """

    def __init__(
        self,
        whole: GNN,
        split: SplitGNN,
        optimizer: torch.optim.Optimizer,
        columns: Sequence[tuple[int, int]],
        group: Group,
    ) -> None:
        """Join what ``split`` trains.

        Args:
            split: the model that is trained; all but W¹ are parameters of ``whole``.
            group: the workers; every method that joins is called by all of them.
        """
        self._whole = whole
        self._split = split
        self._optimizer = optimizer
        self._columns = columns
        self._group = group
        #: what an optimizer of the whole model would keep of each parameter, as of the last
        #: ``join``
        self.state: dict[int, dict[str, torch.Tensor]] = {}
        (self._number,) = (
            number for number, each in enumerate(_parameters(optimizer)) if each is split.own_weight
        )

    @torch.no_grad()
    def join(self) -> None:
        """Bring the whole model's W¹ and ``state`` up to date, in every process."""
        self._weight.copy_(self._joined(self._split.own_weight))
        self.state = optimizer_state(self._optimizer)
        mine = self.state.get(self._number, {})
        for name, value in mine.items():
            if value.shape == self._split.own_weight.shape:
                mine[name] = self._joined(value)

    @torch.no_grad()
    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Take this device's columns of the whole model, and of its optimizer's state."""
        self._split.own_weight.copy_(self._mine(self._weight))
        state = optimizer_state(optimizer)
        state[self._number] = {
            name: self._mine(value) if value.shape == self._weight.shape else value
            for name, value in state.get(self._number, {}).items()
        }
        restore_optimizer(self._optimizer, state)

    @property
    def _weight(self) -> torch.Tensor:
        linear = self._whole.layer(0).linear
        assert isinstance(linear, nn.Linear)
        return linear.weight

    def _mine(self, whole: torch.Tensor) -> torch.Tensor:
        return column_slice(whole, self._columns[self._group.rank], self._whole.widths[0])

    def _joined(self, mine: torch.Tensor) -> torch.Tensor:
        """Return all devices' columns together; what is not this device's is zeros in the sum."""
        first, end = self._columns[self._group.rank]
        whole = torch.zeros_like(self._weight).reshape(len(mine), -1, self._whole.widths[0])
        whole[:, :, first:end] = mine.detach().reshape(len(mine), -1, end - first)
        joined = whole.reshape(self._weight.shape).contiguous()
        self._group.sum(joined)
        return joined


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


class SplitRun:
    """What stands in the place of the whole model, of all features, and of no exchange."""

    def __init__(self, whole: GNN, columns: Sequence[tuple[int, int]], group: Group) -> None:
        """Split ``whole`` among the workers of ``group``, who all do so at the same time.

        Args:
            columns: ``(first, last + 1)`` of the features that each device has.
        """
        self._whole = whole
        self._columns = columns
        self._group = group
        mine = columns[group.rank]
        #: the part of the model that this device trains
        self.model = SplitGNN(whole, mine, PartialTrade(group.with_own_connections()))

    def store(self, graph: Graph) -> HostFeatures:
        """Return the device's columns of the features."""
        return HostFeatures.of(graph, columns=self._columns[self._group.rank])

    def exchange(self, loader: FeatureLoader) -> ColumnExchange:
        """Return the exchange of input blocks, over separate connections."""
        return ColumnExchange(self._group.with_own_connections(), self.model, loader)

    def weights(self, optimizer: torch.optim.Optimizer) -> SplitWeights:
        """Return what joins the devices' weights, which ``optimizer`` updates here."""
        return SplitWeights(self._whole, self.model, optimizer, self._columns, self._group)
