"""What a worker learns: the model, the part of it that its device trains, and the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnscale.model import GNN, TrainableModel
from gnnscale.optimizer.plain import optimizer_state
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.state.data import Data
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.split_run import SplitRun, SplitWeights

__all__ = ["Learning"]


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The weights of a run.

    Attributes:
        model: the whole model, which is evaluated and saved.
        trained: the model that this device trains: ``model``, or a part of it (P3).
        optimizer: updates the weights of ``trained``.
        split: this worker's part of a split first layer; None if devices train the whole model.
        weights: joins ``model`` from the devices' parts; None likewise.
    """

    model: TrainableModel
    trained: TrainableModel
    optimizer: torch.optim.Optimizer
    split: SplitRun | None = None
    weights: SplitWeights | None = None

    @classmethod
    def open(cls, config: TrainConfig, data: Data, group: Group) -> Learning:
        """Build the model, whose first weights are fixed by ``seed``, and its optimizer."""
        torch.manual_seed(config.seed)
        model = data.task.build(config.model)
        if data.columns is None or group.size == 1:
            return cls(model=model, trained=model, optimizer=config.optimizer.build(model))
        assert isinstance(model, GNN)
        split = SplitRun(model, data.columns, group)
        optimizer = config.optimizer.build(split.model)
        weights = split.weights(optimizer)
        return cls(
            model=model, trained=split.model, optimizer=optimizer, split=split, weights=weights
        )

    def join(self) -> None:
        """Bring the whole model up to date. Every worker calls this at the same time."""
        if self.weights is not None:
            self.weights.join()

    @property
    def optimizer_state(self) -> dict[int, dict[str, Tensor]]:
        """What an optimizer of the whole model keeps of each parameter, as of the last ``join``."""
        return optimizer_state(self.optimizer) if self.weights is None else self.weights.state

    def whole_optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        """Return an optimizer of the whole model, to be restored: ``optimizer``, or a new one."""
        return self.optimizer if self.weights is None else config.optimizer.build(self.model)

    def take(self, whole: torch.optim.Optimizer) -> None:
        """Go on from what ``whole_optimizer`` was restored to, and from the whole model."""
        if self.weights is not None:
            self.weights.take(whole)

    @property
    def last_rate(self) -> float:
        """Learning rate of the step that was done last."""
        return float(self.optimizer.param_groups[0]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
