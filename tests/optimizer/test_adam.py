from __future__ import annotations

import pytest
import torch
from torch import nn

from gnnscale.optimizer import Adam


def test_the_first_step_goes_as_far_as_the_rate() -> None:
    # The mean of the gradient over the root of that of its square is its sign.
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = Adam(lr=0.01).build(model)
    model.weight.grad = torch.tensor([[5.0, -0.1]])
    optimizer.step()
    moved = (model.weight - before).flatten().tolist()
    assert moved == pytest.approx([-0.01, 0.01], rel=1e-4)


def test_its_state_is_what_a_checkpoint_expects() -> None:
    model = nn.Linear(2, 1)
    config = Adam(lr=0.01)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    states = optimizer.state_dict()["state"].values()
    assert len(states) == 2
    assert all(each.keys() == config.state_names for each in states)
