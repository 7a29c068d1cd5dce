"""torch's optimizers without its wrappers, and the state that a checkpoint keeps of them."""

from collections.abc import Mapping
from inspect import unwrap

import torch
from torch import Tensor, optim
from torch.optim import Optimizer


class _Plain(Optimizer):
    """The methods of an optimizer as they are inside torch's wrappers."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class PlainAdam(_Plain, optim.Adam):
    """``torch.optim.Adam``."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class PlainAdamW(_Plain, optim.AdamW):
    """``torch.optim.AdamW``."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class PlainSgd(_Plain, optim.SGD):
    """``torch.optim.SGD``."""

    step = torch.no_grad()(unwrap(optim.SGD.step))


def optimizer_state(optimizer: Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return what the optimizer keeps of each parameter, by the parameter's number."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {
        number: {name: each for name, each in kept.items() if each is not None}
        for number, kept in state.items()
    }


def restore_optimizer(optimizer: Optimizer, state: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Give the optimizer a state of its parameters that fits them."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
