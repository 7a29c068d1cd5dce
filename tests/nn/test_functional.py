import numpy as np
import pytest
import torch

from gnnscale.nn.functional import Activation, activation, relu_dropout
from gnnscale.sampling import Block, MiniBatch


def act(p: float, num_rows: int, seed: int = 0, step: int = 0, layer: int = 0) -> Activation:
    return Activation(p=p, seed=seed, step=step, layer=layer, vertices=np.arange(num_rows))


def mask(seed: int, step: int, layer: int) -> torch.Tensor:
    return relu_dropout(torch.ones(300, 50), act(0.5, 300, seed, step, layer)) > 0


def test_without_dropout_it_is_relu() -> None:
    x = torch.randn(50, 7)
    assert torch.equal(relu_dropout(x.clone(), act(0.0, 50)), x.relu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_passes_where_the_output_is_positive(dtype: torch.dtype) -> None:
    leaf = torch.randn(200, 16).to(dtype).requires_grad_()
    out = relu_dropout(leaf * 1, act(0.25, 200, 3, 4, 1))
    grad = torch.randn(200, 16).to(dtype)
    out.backward(grad)
    kept = out > 0
    assert 0.2 < float((~kept[leaf > 0]).float().mean()) < 0.3
    assert not kept[leaf <= 0].any()
    expected = torch.where(kept, grad.float() * 4 / 3, torch.zeros(())).to(dtype)
    torch.testing.assert_close(leaf.grad, expected)
    torch.testing.assert_close(out[kept], (leaf[kept].float() * 4 / 3).to(dtype))


@pytest.mark.parametrize("other", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2**63 - 1, 1 << 40, 3)])
def test_the_mask_is_fixed_by_seed_step_and_layer(other: tuple[int, int, int]) -> None:
    assert torch.equal(mask(*other), mask(*other))
    agreement = float((mask(0, 0, 0) == mask(*other)).double().mean())
    assert abs(agreement - 0.5) < 0.02


def test_rows_are_those_of_the_destinations_of_the_layers_block() -> None:
    def block(num_dst: int, num_src: int) -> Block:
        indptr = np.zeros(num_dst + 1, np.int64)
        return Block(indptr=indptr, indices=np.empty(0, np.int32), num_src=num_src)

    blocks, vertices = (block(3, 4), block(2, 3), block(1, 2)), np.array([8, 3, 9, 1])
    batch = MiniBatch(seed=5, step=6, num_seeds=1, input_vertices=vertices, blocks=blocks)
    for layer, vertices in enumerate([[8, 3, 9], [8, 3]]):
        made = activation(0.5, batch, layer)
        assert (made.p, made.seed, made.step, made.layer) == (0.5, 5, 6, layer)
        assert made.vertices.tolist() == vertices


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_not_a_number_stays_not_a_number(p: float) -> None:
    x = torch.full((3, 100), float("nan"))
    out = relu_dropout(x, act(p, 3))
    assert bool(out.isnan().any())
    assert bool((out.isnan() | (out == 0)).all())
