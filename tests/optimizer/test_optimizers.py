from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.core.errors import ConfigError
from gnnscale.optimizer import Adam, AdamW, Sgd
from gnnscale.optimizer.plain import PlainAdam, PlainSgd, optimizer_state, restore_optimizer


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


def test_its_state_is_what_a_checkpoint_expects_adamw() -> None:
    model = nn.Linear(2, 1)
    config = AdamW(lr=0.01)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    states = optimizer.state_dict()["state"].values()
    assert len(states) == 2
    assert all(each.keys() == config.state_names for each in states)


@pytest.mark.parametrize(("momentum", "factor"), [(0.0, 1.0), (0.5, 1.5)])
def test_two_steps_by_hand(momentum: float, factor: float) -> None:
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    config = Sgd(lr=0.1, momentum=momentum)
    optimizer = config.build(model)
    model.weight.grad = torch.tensor([[1.0, -2.0]])
    for _ in range(2):
        optimizer.step()
    # The second step goes on with a part of the first.
    moved = (model.weight - before).flatten().tolist()
    assert moved == pytest.approx([-0.1 * (1 + factor), 0.2 * (1 + factor)], rel=1e-5)
    (state,) = optimizer.state_dict()["state"].values() or [{}]
    kept = {name for name, value in state.items() if value is not None}
    assert kept == config.state_names


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_a_momentum_that_never_settles_is_refused(momentum: float) -> None:
    with pytest.raises(ConfigError, match=r"optimizer.momentum=.*: must be in \[0, 1\)"):
        Sgd(lr=0.1, momentum=momentum)


#: Everything that a run does with an optimizer.
PROGRAM = """
import sys, torch
from gnnscale.optimizer import Adam, Sgd
for config in (Adam(lr=0.1), Sgd(lr=0.1, momentum=0.9)):
    model = torch.nn.Linear(2, 2)
    optimizer = config.build(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


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


def test_the_compiler_is_not_imported() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    assert answer.stdout == "False\n"


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
