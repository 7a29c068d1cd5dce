"""Group ``optimizer``: update rules and learning rates.

Options are read before torch is imported, which only ``build`` needs.
"""

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
    """What every update rule has.

    Attributes:
        lr: learning rate of the first epoch.
        weight_decay: coefficient of the L2 penalty, added to the gradient; AdamW takes it off the
            weights instead, separately from the gradient.
        decay_first_layer_only: leave the weights after the first layer undecayed, as Kipf and
            Welling do for GCN (section 5.2).
        schedule: ``constant``; ``cosine``, down to 0 over ``epochs``; ``step``, times
            ``schedule_factor`` every ``schedule_epochs``; ``plateau``, times ``schedule_factor``
            whenever ``schedule_epochs`` validations in a row bring nothing better.
        schedule_epochs: see ``schedule``.
        schedule_factor: see ``schedule``; above 0, below 1.
        warmup_epochs: epochs over which the rate grows, step by step and in a straight line, up to
            ``lr``; ``schedule`` begins after them.
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
            raise ConfigError(f"optimizer.lr={self.lr}: must be above 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ConfigError(f"optimizer.weight_decay={self.weight_decay}: must be at least 0")
        check_choice("optimizer.schedule", self.schedule, SCHEDULES)
        check_range("optimizer.schedule_epochs", self.schedule_epochs, 1)
        check_range("optimizer.warmup_epochs", self.warmup_epochs, 0)
        if not 0 < self.schedule_factor < 1:
            raise ConfigError(
                f"optimizer.schedule_factor={self.schedule_factor}: must be above 0 and below 1"
            )

    @property
    @abstractmethod
    def state_names(self) -> frozenset[str]:
        """What the optimizer keeps of every parameter: ``step``, and tensors of its shape."""

    @abstractmethod
    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer of the model's parameters."""

    @property
    def follows_metrics(self) -> bool:
        """Whether ``learning_rate`` uses ``metrics``, which all workers need then."""
        return self.schedule == "plateau"

    def learning_rate(
        self, epoch: int, *, epochs: int, metrics: Sequence[float], metric: str
    ) -> float:
        """Return the learning rate of ``epoch``, but for ``warm_up``."""
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
        """Return the part of the learning rate that ``step``, from 0, is taken with."""
        steps = self.warmup_epochs * steps_per_epoch
        return 1.0 if step >= steps else (step + 1) / steps

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups: those with weight decay, then those without."""
        parameters = list(model.parameters())
        if not self.decay_first_layer_only:
            return [{"params": parameters, "weight_decay": self.weight_decay}]
        first = {id(parameter) for parameter in _first_layer(model).parameters()}
        inside = [each for each in parameters if id(each) in first]
        others = [each for each in parameters if id(each) not in first]
        return [
            {"params": inside, "weight_decay": self.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]


def _first_layer(model: nn.Module) -> nn.Module:
    """The first module of the model's first list of layers."""
    from torch import nn

    for module in model.children():
        if isinstance(module, nn.ModuleList) and len(module):
            return module[0]
    raise ConfigError(
        f"optimizer.decay_first_layer_only=true: {type(model).__name__} has no list of layers"
    )


def _plateaus(metrics: Sequence[float], metric: str, patience: int) -> int:
    """How often ``patience`` metrics in a row were no better than the best before them."""
    best, waited, plateaus = None, 0, 0
    for value in metrics:
        if best is None or better(metric, value, best):
            best, waited = value, 0
        else:
            waited += 1
            if waited == patience:
                plateaus, waited = plateaus + 1, 0
    return plateaus


@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerConfig):
    """Adam (Kingma and Ba, 2015)."""

    @property
    def state_names(self) -> frozenset[str]:
        """Steps taken, and both moments of the gradient."""
        return frozenset({"step", "exp_avg", "exp_avg_sq"})

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.Adam`` over the model's parameters."""
        from gnnscale.nn.optim.dense import PlainAdam

        return PlainAdam(self.parameter_groups(model), lr=self.lr, fused=True)


@dataclass(frozen=True, kw_only=True)
class AdamW(OptimizerConfig):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    @property
    def state_names(self) -> frozenset[str]:
        """Steps taken, and both moments of the gradient."""
        return frozenset({"step", "exp_avg", "exp_avg_sq"})

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.AdamW`` over the model's parameters."""
        from gnnscale.nn.optim.dense import PlainAdamW

        return PlainAdamW(self.parameter_groups(model), lr=self.lr, fused=True)


@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerConfig):
    """Stochastic gradient descent with momentum.

    Attributes:
        momentum: part of the last step that goes into the next.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"optimizer.momentum={self.momentum}: must be in [0, 1)")

    @property
    def state_names(self) -> frozenset[str]:
        """The velocity, if there is momentum."""
        return frozenset({"momentum_buffer"} if self.momentum else ())

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.SGD`` over the model's parameters."""
        from gnnscale.nn.optim.dense import PlainSgd

        return PlainSgd(
            self.parameter_groups(model), lr=self.lr, momentum=self.momentum, fused=True
        )
