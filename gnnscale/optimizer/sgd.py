"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.config import ConfigError
from gnnscale.optimizer.base import OptimizerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Sgd"]


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
        """The velocity, where there is momentum."""
        return frozenset({"momentum_buffer"} if self.momentum else ())

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return ``torch.optim.SGD`` over the model's parameters."""
        from gnnscale.optimizer.plain import PlainSgd

        return PlainSgd(
            self.parameter_groups(model), lr=self.lr, momentum=self.momentum, fused=True
        )
