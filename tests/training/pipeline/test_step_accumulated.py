from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.training.pipeline.step import GradientAccumulator


def fed(
    accumulated: GradientAccumulator,
    model: nn.Linear,
    step: int,
    gradient: torch.Tensor,
    seeds: int = 1,
) -> bool:
    """Give a mini-batch with a gradient; tell whether an update is due."""
    model.weight.grad = gradient
    batch: Any = SimpleNamespace(step=step, num_seeds=seeds)
    return accumulated.complete(batch)


def test_an_update_is_of_the_mean_over_all_seeds() -> None:
    """Epochs of five mini-batches, three to an update: of three, then two."""
    model = nn.Linear(1, 1, bias=False)
    accumulated = GradientAccumulator(model, 3, steps_per_epoch=5)
    sizes, values = [8, 8, 8, 8, 2], [1.0, 2.0, 6.0, 4.0, 9.0]
    for epoch in range(2):
        found = []
        for place, (size, value) in enumerate(zip(sizes, values, strict=True)):
            if fed(accumulated, model, 5 * epoch + place, torch.full((1, 1), value), size):
                assert model.weight.grad is not None
                found.append((place, model.weight.grad.item()))
        assert found == [(2, pytest.approx(3.0)), (4, pytest.approx((8 * 4 + 2 * 9) / 10))]


def test_one_mini_batch_is_left_as_it_is() -> None:
    model = nn.Linear(1, 1, bias=False)
    gradient = torch.ones(1, 1)
    assert fed(GradientAccumulator(model, 1, steps_per_epoch=3), model, 1, gradient)
    assert model.weight.grad is gradient


def test_sums_do_not_share_memory_with_the_gradients() -> None:
    """Those lie in a bucket that the next mini-batch overwrites."""
    model = nn.Linear(1, 1)
    accumulated = GradientAccumulator(model, 2, steps_per_epoch=2)
    bucket = torch.ones(1, 1)
    assert not fed(accumulated, model, 0, bucket)
    assert fed(accumulated, model, 1, bucket.fill_(3.0))
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 2.0
    # A parameter without a gradient gets no sum of them.
    assert model.bias.grad is None
