"""SGD, Adam and AdamW. torch is imported when they are built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.core.errors import ConfigError
from gnnscale.optimizer.base import OptimizerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerConfig):
    """Adam (Kingma and Ba, 2015)."""

    @property
    def state_names(self) -> frozenset[str]:
        """Steps taken, and both moments of the gradient."""
        return frozenset({"step", "exp_avg", "exp_avg_sq"})

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.Adam`` over the model's parameters."""
        from gnnscale.optimizer.plain import PlainAdam

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
        from gnnscale.optimizer.plain import PlainAdamW

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
        from gnnscale.optimizer.plain import PlainSgd

        return PlainSgd(
            self.parameter_groups(model), lr=self.lr, momentum=self.momentum, fused=True
        )
