from __future__ import annotations

import pytest
import torch
from torch import nn

from gnnscale.optimizer import Adam, AdamW


def updated(config: Adam | AdamW) -> list[float]:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
    optimizer = config.build(model)
    model.weight.grad = torch.tensor([[5.0, -0.1]])
    optimizer.step()
    return model.weight.flatten().tolist()


def test_decay_is_apart_from_the_gradient() -> None:
    """Weights shrink by lr times decay; the gradient's step is as long as without."""
    assert updated(AdamW(lr=0.01)) == pytest.approx(updated(Adam(lr=0.01)))
    moved = updated(AdamW(lr=0.01, weight_decay=0.5))
    assert moved == pytest.approx([1 - 0.005 - 0.01, -2 + 0.01 + 0.01], rel=1e-5)
    assert updated(Adam(lr=0.01, weight_decay=0.5)) != pytest.approx(moved, rel=1e-4)


def test_its_state_is_what_a_checkpoint_expects() -> None:
    model = nn.Linear(2, 1)
    config = AdamW(lr=0.01)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    states = optimizer.state_dict()["state"].values()
    assert len(states) == 2
    assert all(each.keys() == config.state_names for each in states)
