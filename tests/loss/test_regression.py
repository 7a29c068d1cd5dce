from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.loss import MeanSquaredError


def test_by_hand_where_some_numbers_are_not_known(labelled: Callable[..., Graph]) -> None:
    targets = torch.tensor([[1.0, torch.nan], [2.0, 4.0], [torch.nan, torch.nan]])
    outputs = torch.tensor([[3.0, 9.0], [2.0, 3.0], [5.0, 5.0]], requires_grad=True)
    loss = MeanSquaredError().build(labelled(targets.numpy().astype(np.float32), 2))
    value = loss(outputs, targets)
    assert value.item() == pytest.approx((4 + 1 / 2 + 0) / 3)
    value.backward()
    assert outputs.grad is not None
    expected = torch.tensor([[4.0, 0.0], [0.0, -1.0], [0.0, 0.0]]) / 3
    torch.testing.assert_close(outputs.grad, expected)
