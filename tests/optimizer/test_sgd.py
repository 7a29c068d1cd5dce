from __future__ import annotations

import pytest
import torch
from torch import nn

from gnnscale.config import ConfigError
from gnnscale.optimizer import Sgd


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
