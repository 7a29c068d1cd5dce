"""Options of the group ``optimizer``, checked without torch, which only ``build`` imports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnscale.core import ConfigError, better, check_choice, check_range

if TYPE_CHECKING:
    import torch
    from torch import nn


SCHEDULES = ("constant", "cosine", "step", "plateau")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(ABC):
    """Base of the configuration group ``optimizer``.

    Attributes:
        lr: learning rate of the first epoch after ``warmup_epochs``; above 0.
        weight_decay: coefficient of the L2 penalty, added to the gradient. AdamW subtracts it from
            the weights instead, separately from the gradient.
        decay_first_layer_only: whether only the first layer's weights decay, as in GCN by Kipf and
            Welling (section 5.2).
        schedule: ``constant``; ``cosine``, down to 0 over ``epochs``; ``step``, times
            ``schedule_factor`` every ``schedule_epochs``; ``plateau``, times ``schedule_factor``
            after ``schedule_epochs`` consecutive validations without improvement.
        schedule_epochs: see ``schedule``.
        schedule_factor: see ``schedule``; above 0, below 1.
        warmup_epochs: epochs over which the rate grows linearly, step by step, up to ``lr``;
            ``schedule`` begins after them.
    """

    lr: float
    weight_decay: float = 0.0
    decay_first_layer_only: bool = False
    schedule: str = "constant"
    schedule_epochs: int = 10
    schedule_factor: float = 0.5
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ConfigError(f"optimizer.lr={self.lr}: expected a number above 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ConfigError(
                f"optimizer.weight_decay={self.weight_decay}: expected a number of at least 0"
            )
        check_choice("optimizer.schedule", self.schedule, SCHEDULES)
        check_range("optimizer.schedule_epochs", self.schedule_epochs, 1)
        check_range("optimizer.warmup_epochs", self.warmup_epochs, 0)
        if not 0 < self.schedule_factor < 1:
            raise ConfigError(
                f"optimizer.schedule_factor={self.schedule_factor}: expected above 0 and below 1"
            )

    @property
    @abstractmethod
    def state_names(self) -> frozenset[str]:
        """Names of a parameter's state tensors; all but ``step`` have the parameter's shape."""

    @abstractmethod
    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer of the model's parameters."""

    @property
    def follows_metrics(self) -> bool:
        """Whether ``learning_rate`` depends on validation results, which all workers then need."""
        return self.schedule == "plateau"

    def learning_rate(
        self, epoch: int, *, epochs: int, metrics: Sequence[float], metric: str
    ) -> float:
        """Return the learning rate of ``epoch``, counted from 0, before the factor of ``warm_up``.

        ``metrics`` has the value of validation ``metric`` (a name) of each epoch so far, which only
        the schedule ``plateau`` reads.
        """
        # The schedule begins after the warm-up.
        epoch, epochs = max(epoch - self.warmup_epochs, 0), epochs - self.warmup_epochs
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.schedule == "step":
            return self.lr * float(self.schedule_factor ** (epoch // self.schedule_epochs))
        if self.schedule == "plateau":
            plateaus = _plateaus(metrics, metric, self.schedule_epochs)
            return self.lr * float(self.schedule_factor**plateaus)
        return self.lr

    def warm_up(self, step: int, *, steps_per_epoch: int) -> float:
        """Return the factor of the learning rate in ``step``, counted from 0.

        The factor grows linearly to 1 over ``warmup_epochs``, and is 1 afterwards.
        """
        steps = self.warmup_epochs * steps_per_epoch
        return 1.0 if step >= steps else (step + 1) / steps

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return the group of parameters with weight decay: all, or only the first layer's.

        With ``decay_first_layer_only``, a second group has the other parameters, without decay.
        """
        parameters = list(model.parameters())
        if not self.decay_first_layer_only:
            return [{"params": parameters, "weight_decay": self.weight_decay}]
        first_layer = {id(parameter) for parameter in _first_layer(model).parameters()}
        decayed = [parameter for parameter in parameters if id(parameter) in first_layer]
        remaining = [parameter for parameter in parameters if id(parameter) not in first_layer]
        return [
            {"params": decayed, "weight_decay": self.weight_decay},
            {"params": remaining, "weight_decay": 0.0},
        ]


def _first_layer(model: nn.Module) -> nn.Module:
    """Return the first module of the model's first filled ``nn.ModuleList``, else ConfigError."""
    from torch import nn

    for module in model.children():
        if isinstance(module, nn.ModuleList) and len(module):
            return module[0]
    raise ConfigError(
        "optimizer.decay_first_layer_only=true: expected a model with an nn.ModuleList of layers, "
        f"got {type(model).__name__}"
    )


def _plateaus(metrics: Sequence[float], metric: str, patience: int) -> int:
    """Return how often ``patience`` consecutive values of ``metrics`` did not improve the best.

    The count restarts after each time; ``metric`` names the values and so which are better.
    """
    best, not_better, plateaus = None, 0, 0
    for value in metrics:
        if best is None or better(metric, value, best):
            best, not_better = value, 0
        else:
            not_better += 1
            if not_better == patience:
                plateaus, not_better = plateaus + 1, 0
    return plateaus


@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerConfig):
    """Adam (Kingma and Ba, 2015)."""

    @property
    def state_names(self) -> frozenset[str]:
        """Names of a parameter's state tensors: the number of steps and both moments."""
        return frozenset({"step", "exp_avg", "exp_avg_sq"})

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.Adam`` over the model's parameters."""
        from gnnscale.nn.optim.update_rules import PlainAdam

        return PlainAdam(self.parameter_groups(model), lr=self.lr, fused=True)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.AdamW`` over the model's parameters."""
        from gnnscale.nn.optim.update_rules import PlainAdamW

        return PlainAdamW(self.parameter_groups(model), lr=self.lr, fused=True)


@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerConfig):
    """Stochastic gradient descent with momentum.

    Attributes:
        momentum: factor of the last step that is added to the next step; at least 0, below 1.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ConfigError(
                f"optimizer.momentum={self.momentum}: expected at least 0 and below 1"
            )

    @property
    def state_names(self) -> frozenset[str]:
        """Names of a parameter's state tensors: ``momentum_buffer``; none without momentum."""
        return frozenset({"momentum_buffer"} if self.momentum else ())

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.SGD`` over the model's parameters."""
        from gnnscale.nn.optim.update_rules import PlainSgd

        return PlainSgd(
            self.parameter_groups(model), lr=self.lr, momentum=self.momentum, fused=True
        )
