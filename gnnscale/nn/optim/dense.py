"""torch's optimizers without the wrappers of their methods, and their state in checkpoints."""

from collections.abc import Mapping
from inspect import unwrap

import torch
from torch import Tensor, optim
from torch.optim import Optimizer


class _Plain(Optimizer):
    """Base of optimizers whose methods lack torch's wrappers."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class PlainAdam(_Plain, optim.Adam):
    """``torch.optim.Adam`` without torch's wrappers of its methods."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class PlainAdamW(_Plain, optim.AdamW):
    """``torch.optim.AdamW`` without torch's wrappers of its methods."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class PlainSgd(_Plain, optim.SGD):
    """``torch.optim.SGD`` without torch's wrappers of its methods."""

    step = torch.no_grad()(unwrap(optim.SGD.step))


def optimizer_state(optimizer: Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return the optimizer's tensors of each parameter, by the parameter's number."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {
        number: {name: values for name, values in tensors.items() if values is not None}
        for number, tensors in state.items()
    }


def restore_optimizer(optimizer: Optimizer, state: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Set the optimizer's state to ``state``, as ``optimizer_state`` returned it."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
