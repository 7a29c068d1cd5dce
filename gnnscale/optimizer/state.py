"""What an optimizer keeps of each parameter, apart from what its options say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["optimizer_state", "restore_optimizer"]


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return what the optimizer keeps of each parameter, by the parameter's number."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {
        number: {name: each for name, each in kept.items() if each is not None}
        for number, kept in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Tensor]]
) -> None:
    """Give the optimizer a state of its parameters that fits them."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
