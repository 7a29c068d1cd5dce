"""Adam (Kingma and Ba, 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.optimizer.base import OptimizerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Adam"]


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
