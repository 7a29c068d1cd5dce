from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.optimizer import Adam, Sgd
from gnnscale.optimizer.state import optimizer_state, restore_optimizer


def trained(config: Any) -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_state_is_what_follows_from_no_option() -> None:
    _, optimizer = trained(Sgd(lr=0.5, momentum=0.5))
    # The first step's momentum is the gradient: ones.
    state = optimizer_state(optimizer)
    assert {number: list(kept) for number, kept in state.items()} == {
        0: ["momentum_buffer"],
        1: ["momentum_buffer"],
    }
    assert state[0]["momentum_buffer"].tolist() == [[1.0, 1.0]]


def test_what_is_not_kept_is_left_out() -> None:
    _, optimizer = trained(Sgd(lr=0.5))
    assert not any(optimizer_state(optimizer).values())


@pytest.mark.parametrize("config", [Adam(lr=0.1), Sgd(lr=0.1, momentum=0.9)])
def test_a_restored_optimizer_goes_on_alike(config: Any) -> None:
    torch.manual_seed(0)
    model, optimizer = trained(config)
    other = nn.Linear(2, 1)
    other.load_state_dict(model.state_dict())
    fresh = config.build(other)
    restore_optimizer(fresh, copy.deepcopy(optimizer_state(optimizer)))
    for each, update in ((model, optimizer), (other, fresh)):
        update.zero_grad()
        each(torch.ones(1, 2)).square().sum().backward()
        update.step()
    assert torch.equal(model.weight, other.weight)
