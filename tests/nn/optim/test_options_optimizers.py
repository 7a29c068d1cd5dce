import copy
from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.nn.optim import Adam, AdamW, OptimizerConfig, Sgd
from gnnscale.nn.optim.update_rules import PlainAdam, PlainSgd, optimizer_state, restore_optimizer


def moved(config: OptimizerConfig, *, steps: int = 1) -> list[float]:
    """How far two weights, 1 and -2, go with gradients of 5 and -0.1."""
    model = nn.Linear(2, 1, bias=False)
    before = torch.tensor([[1.0, -2.0]])
    with torch.no_grad():
        model.weight.copy_(before)
    optimizer = config.build(model)
    model.weight.grad = torch.tensor([[5.0, -0.1]])
    for _ in range(steps):
        optimizer.step()
    return (model.weight - before).flatten().tolist()


def test_decay_is_apart_from_the_gradient() -> None:
    """Weights shrink by lr times decay; the gradient's step is as long as without."""
    assert moved(AdamW(lr=0.01)) == pytest.approx(moved(Adam(lr=0.01)))
    decayed = moved(AdamW(lr=0.01, weight_decay=0.5))
    assert decayed == pytest.approx([-0.005 - 0.01, 0.01 + 0.01], rel=1e-4)
    assert moved(Adam(lr=0.01, weight_decay=0.5)) != pytest.approx(decayed, rel=1e-3)


@pytest.mark.parametrize(("momentum", "factor"), [(0.0, 1.0), (0.5, 1.5)])
def test_two_steps_by_hand(momentum: float, factor: float) -> None:
    # The second step goes on with a part of the first.
    found = moved(Sgd(lr=0.1, momentum=momentum), steps=2)
    assert found == pytest.approx([-0.5 * (1 + factor), 0.01 * (1 + factor)], rel=1e-4)


@pytest.mark.parametrize(
    "config", [Adam(lr=0.1), AdamW(lr=0.1), Sgd(lr=0.1), Sgd(lr=0.1, momentum=0.5)]
)
def test_optimizer_state_has_the_names_of_a_checkpoint(config: OptimizerConfig) -> None:
    _, optimizer = trained(config)
    states = list(optimizer.state_dict()["state"].values()) or [{}, {}]
    assert len(states) == 2
    for state in states:
        assert {name for name, value in state.items() if value is not None} == config.state_names


@pytest.mark.parametrize(
    ("plain", "original", "options"),
    [
        (PlainAdam, torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.01, "fused": True}),
        (PlainSgd, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    ],
)
def test_the_weights_are_those_of_torch(plain: Any, original: Any, options: dict[str, Any]) -> None:
    weights = []
    for kind in (plain, original):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        optimizer = kind(model.parameters(), **options)
        for step in range(6):
            model(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in model.parameters())
            if step == 2:
                state = optimizer.state_dict()
                optimizer = kind(model.parameters(), **options)
                optimizer.load_state_dict(state)
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert value.requires_grad is False


def trained(config: Any) -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_optimizer_state_has_no_options() -> None:
    _, optimizer = trained(Sgd(lr=0.5, momentum=0.5))
    # The first step's momentum is the gradient: ones.
    state = optimizer_state(optimizer)
    assert [list(state[number]) for number in (0, 1)] == [["momentum_buffer"]] * 2
    assert state[0]["momentum_buffer"].tolist() == [[1.0, 1.0]]
    # What is not kept is left out.
    assert not any(optimizer_state(trained(Sgd(lr=0.5))[1]).values())


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
