"""torch's optimizers without torch's compiler, whose import takes longer than all of a short run.

torch wraps the methods of its optimizers so that a compiled program leaves them out, and imports
the compiler to do so. Nothing is compiled here: the methods inside the wrappers do all the work.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

__all__ = ["PlainAdam", "PlainAdamW", "PlainSgd"]


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
