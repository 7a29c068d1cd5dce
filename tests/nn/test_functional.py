from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.features import Aggregation
from gnnscale.nn.functional import Activation, activation, aggregate, relu_dropout, sum_scale
from gnnscale.sampling import Block, MiniBatch


def act(p: float, num_rows: int, seed: int = 0, step: int = 0, layer: int = 0) -> Activation:
    return Activation(p=p, seed=seed, step=step, layer=layer, vertices=np.arange(num_rows))


def mask(seed: int, step: int, layer: int) -> torch.Tensor:
    return relu_dropout(torch.ones(300, 50), act(0.5, 300, seed, step, layer)) > 0


def test_no_dropout_is_relu_and_not_a_number_stays_one() -> None:
    x = torch.randn(50, 7)
    assert torch.equal(relu_dropout(x.clone(), act(0.0, 50)), x.relu())
    for p in (0.0, 0.5):
        out = relu_dropout(torch.full((3, 100), float("nan")), act(p, 3))
        assert bool(out.isnan().any())
        assert bool((out.isnan() | (out == 0)).all())


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


def test_the_mask_is_fixed_by_seed_step_and_layer() -> None:
    for other in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (2**63 - 1, 1 << 40, 3)):
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


BLOCK = Block(indptr=np.array([0, 2, 2, 3]), indices=np.array([1, 3, 0], np.int32), num_src=4)
ROWS = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])


def test_a_block_without_destinations() -> None:
    block = Block(indptr=np.zeros(1, np.int64), indices=np.empty(0, np.int32), num_src=4)
    for own, width in (("add", 2), ("concat", 4)):
        out = aggregate(ROWS, block, Aggregation(self_term=own))
        assert out.shape == (0, width)


def test_sum_scale_is_degree_over_sampled() -> None:
    degrees = np.float32([10, 0, 3, 7])
    assert sum_scale(BLOCK, degrees).tolist() == [5, 0, 3]
    assert sum_scale(replace(BLOCK, importance=np.float32([1, 2, 3])), degrees) is None


@st.composite
def aggregations(draw: st.DrawFn) -> tuple[Block, Aggregation, int]:
    num_dst = draw(st.integers(1, 8))
    num_src = num_dst + draw(st.integers(0, 8))
    source = st.integers(0, num_src - 1)
    lists = draw(st.lists(st.lists(source, max_size=6), min_size=num_dst, max_size=num_dst))
    indptr = np.cumsum([0, *map(len, lists)])
    indices = np.array([u for each in lists for u in each], np.int32)
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))

    def floats(size: int) -> Any:
        given = draw(st.booleans())
        return generator.standard_normal(size).astype(np.float32) if given else None

    own: Literal["add", "concat"] = draw(st.sampled_from(["add", "concat"]))
    scales = {"weights": floats(len(indices)), "dst_scale": floats(num_dst)}
    scales["self_scale"] = floats(num_dst) if own == "add" else None
    how = Aggregation(self_term=own, **scales)
    return Block(indptr=indptr, indices=indices, num_src=num_src), how, draw(st.integers(1, 40))


def reference(h: torch.Tensor, block: Block, how: Aggregation) -> torch.Tensor:
    dst = torch.from_numpy(np.repeat(np.arange(block.num_dst), np.diff(block.indptr)))
    messages = h[torch.from_numpy(block.indices.astype(np.int64))]
    if how.weights is not None:
        messages = messages * torch.from_numpy(how.weights)[:, None]
    sums = torch.zeros(block.num_dst, h.shape[1], dtype=h.dtype).index_add(0, dst, messages)
    if how.dst_scale is not None:
        sums = sums * torch.from_numpy(how.dst_scale)[:, None]
    own = h[: block.num_dst]
    if how.self_term == "concat":
        return torch.cat([own, sums], 1)
    scale = 1 if how.self_scale is None else torch.from_numpy(how.self_scale)[:, None]
    return sums + own * scale


@pytest.mark.long
@settings(max_examples=20)
@given(aggregations(), st.booleans())
def test_forward_and_backward(drawn: tuple[Block, Aggregation, int], low: bool) -> None:
    block, how, width = drawn
    h = torch.randn(block.num_src, width)
    if low:
        h = h.bfloat16()
    left, right = h.clone().requires_grad_(), h.double().requires_grad_()
    out, expected = aggregate(left, block, how), reference(right, block, how)
    assert out.dtype == h.dtype
    tolerance = {"rtol": 2e-2, "atol": 5e-2} if low else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(out.double(), expected, **tolerance)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad.double())
    torch.testing.assert_close(left.grad.double(), right.grad, **tolerance)


def test_backward_takes_gradients_that_are_not_contiguous() -> None:
    h = torch.randn(4, 2, requires_grad=True)
    aggregate(h, BLOCK, Aggregation(self_term="concat")).sum().backward()  # an expanded scalar
    assert h.grad.tolist() == [[2, 2], [2, 2], [1, 1], [1, 1]]


@pytest.mark.parametrize(("own", "p"), [("add", 0.25), ("concat", 0.25), ("add", 0.0)])
def test_activation_within_aggregation_is_activation_before_it(own, p):
    block = Block(indptr=np.array([0, 2, 5]), indices=np.int32([1, 2, 0, 2, 3]), num_src=4)
    how = Aggregation(self_term=own, dst_scale=np.float32([0.5, 2]))
    act = Activation(p=p, seed=7, step=0, layer=0, vertices=np.arange(4))
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    together = aggregate(one * 1, block, how, act)
    apart = aggregate(relu_dropout(two * 1, act), block, how)
    torch.testing.assert_close(together, apart, rtol=0, atol=0)
    weights = torch.randn(together.shape, generator=torch.Generator().manual_seed(1))
    (together * weights).sum().backward()
    (apart * weights).sum().backward()
    torch.testing.assert_close(one.grad, two.grad)
