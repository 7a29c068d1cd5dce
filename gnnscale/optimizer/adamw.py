"""Adam with weight decay that is apart from the gradient (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.optimizer.base import OptimizerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["AdamW"]


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
