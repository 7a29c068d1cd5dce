from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.optimizer.plain import PlainAdam, PlainSgd

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
