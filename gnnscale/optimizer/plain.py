"""torch's optimizers without its wrappers, and the state that a checkpoint keeps of them."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class _Plain(torch.optim.Optimizer):
    """The methods of an optimizer as they are inside torch's wrappers."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        inspect.unwrap(torch.optim.Optimizer.zero_grad)(self, set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As torch's."""
        state: dict[str, Any] = inspect.unwrap(torch.optim.Optimizer.state_dict)(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's."""
        inspect.unwrap(torch.optim.Optimizer.load_state_dict)(self, state_dict)


class PlainAdam(_Plain, torch.optim.Adam):
    """``torch.optim.Adam``."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As torch's."""
        return inspect.unwrap(torch.optim.Adam.step)(self, closure)


class PlainAdamW(_Plain, torch.optim.AdamW):
    """``torch.optim.AdamW``."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As torch's."""
        return inspect.unwrap(torch.optim.AdamW.step)(self, closure)


class PlainSgd(_Plain, torch.optim.SGD):
    """``torch.optim.SGD``."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As torch's."""
        return inspect.unwrap(torch.optim.SGD.step)(self, closure)


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
