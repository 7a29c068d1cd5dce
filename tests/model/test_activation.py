from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnscale.model.activation import activation, relu_dropout
from gnnscale.sampler import MiniBatch


def batch(seed: int = 0, step: int = 0) -> MiniBatch:
    return MiniBatch(
        seed=seed, step=step, num_seeds=0, input_vertices=np.empty(0, np.int32), blocks=()
    )


def mask(seed: int, step: int, layer: int) -> torch.Tensor:
    return relu_dropout(torch.ones(300, 50), activation(0.5, batch(seed, step), layer)) > 0


def test_without_dropout_it_is_relu() -> None:
    x = torch.randn(50, 7)
    assert torch.equal(relu_dropout(x.clone(), activation(0.0, batch(), 0)), x.relu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_passes_where_the_output_is_positive(dtype: torch.dtype) -> None:
    leaf = torch.randn(200, 16).to(dtype).requires_grad_()
    out = relu_dropout(leaf * 1, activation(0.25, batch(3, 4), 1))
    grad = torch.randn(200, 16).to(dtype)
    out.backward(grad)
    kept = out > 0
    assert 0.2 < float((~kept[leaf > 0]).float().mean()) < 0.3
    assert not kept[leaf <= 0].any()
    expected = torch.where(kept, grad.float() * 4 / 3, torch.zeros(())).to(dtype)
    torch.testing.assert_close(leaf.grad, expected)
    torch.testing.assert_close(out[kept], (leaf[kept].float() * 4 / 3).to(dtype))


def test_the_mask_is_fixed_by_seed_step_and_layer() -> None:
    assert torch.equal(mask(1, 2, 3), mask(1, 2, 3))
    assert torch.equal(mask(2**63 - 1, 1 << 40, 3), mask(2**63 - 1, 1 << 40, 3))


@pytest.mark.parametrize("other", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (1, 1, 1)])
def test_masks_of_other_steps_are_not_related(other: tuple[int, int, int]) -> None:
    left, right = (mask(*where).flatten().double() - 0.5 for where in ((0, 0, 0), other))
    size = len(left)
    # Neither the masks nor shifted copies of them agree more often than chance has it.
    for shift in range(-130, 131):
        agreement = float((left * right.roll(shift)).sum()) * 4
        assert abs(agreement) < 5 * size**0.5


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_not_a_number_stays_not_a_number(p: float) -> None:
    x = torch.full((3, 100), float("nan"))
    out = relu_dropout(x, activation(p, batch(), 0))
    assert bool(out.isnan().any())
    assert bool((out.isnan() | (out == 0)).all())
