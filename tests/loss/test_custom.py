from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.loss import CustomLoss

CLASSES = np.array([0, 1, 1])


def test_the_function_gets_outputs_and_targets(labelled: Callable[..., Graph]) -> None:
    loss = CustomLoss(function="own_losses:hinge").build(labelled(CLASSES, 2))
    outputs = torch.tensor([[2.0, 0.0], [0.5, 0.0]], requires_grad=True)
    value = loss(outputs, torch.tensor([0, 1]))
    assert value.item() == pytest.approx((0 + 1.5) / 2)
    value.backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.0, 0.0], [0.5, -0.5]]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_losses:each_vertex", r"returned \[2\], must return a scalar tensor"),
        ("own_losses:number", "own_losses:number: returned 1.0, must return a scalar tensor"),
        ("own_losses:nothing", "has no nothing"),
        ("no_such_module:loss", "loss.function=no_such_module:loss: no module no_such_module"),
    ],
)
def test_functions_are_refused(labelled: Callable[..., Graph], name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CustomLoss(function=name).build(labelled(CLASSES, 2))(
            torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
        )


@pytest.mark.parametrize("name", ["loss", "os.system", ":x", "a b:c", ""])
def test_what_is_no_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"loss\.function=.*: must be MODULE:NAME"):
        CustomLoss(function=name)
