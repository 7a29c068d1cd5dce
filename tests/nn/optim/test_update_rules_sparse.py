"""Lazy Adam beside ``torch.optim.SparseAdam``, and row-wise Adagrad beside FBGEMM's formula."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.features import options
from gnnscale.nn.optim.update_rules import (
    ROW_OPTIMIZERS,
    LazyAdam,
    PlainAdam,
    PlainAdamW,
    PlainSgd,
    RowSums,
    RowWiseAdagrad,
    optimizer_state,
    restore_optimizer,
)


def random_rows(num_rows: int = 7, width: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def test_one_step_of_adam_by_hand() -> None:
    rows = torch.nn.Parameter(torch.ones(3, 2), requires_grad=False)
    optimizer = PlainSgd([rows], lr=1.0, fused=True)
    gradients = torch.tensor([[4.0, -0.5]])
    sums = RowSums.of(gradients)
    LazyAdam().update(optimizer, rows, np.array([1]), sums, rate=0.25, num_threads=1)
    # The first step of Adam goes by the rate against the gradient's sign, however large it is.
    expected = torch.tensor([[1.0, 1.0], [0.75, 1.25], [1.0, 1.0]])
    torch.testing.assert_close(rows.data, expected, rtol=1e-5, atol=0)
    state = optimizer.state[rows]
    assert state.keys() == {"step", "exp_avg", "exp_avg_sq"}
    torch.testing.assert_close(state["exp_avg"][1], 0.1 * gradients[0])
    torch.testing.assert_close(state["exp_avg_sq"][1], 0.001 * gradients[0].square())
    assert not state["exp_avg"][[0, 2]].any()


def test_two_steps_of_adagrad_by_hand() -> None:
    rows = torch.nn.Parameter(torch.ones(3, 2), requires_grad=False)
    optimizer = PlainSgd([rows], lr=1.0, fused=True)
    sums = RowSums.of(torch.tensor([[1.0, 7.0]]))
    for expected in ([[0.8, -0.4]], [[0.8 - 1 / 50**0.5, -0.4 - 7 / 50**0.5]]):
        RowWiseAdagrad().update(optimizer, rows, np.array([1]), sums, rate=1.0, num_threads=1)
        # The mean square is (1 + 49) / 2; the second step divides by the root of twice that.
        torch.testing.assert_close(rows.data[1:2], torch.tensor(expected))
    assert optimizer.state[rows]["sum"].tolist() == [0, 50, 0]
    assert optimizer.state[rows]["step"].item() == 2
    assert torch.equal(rows.data[[0, 2]], torch.ones(2, 2))


STEPS: Any = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, threads=st.sampled_from([1, 3]), wide=st.booleans())
def test_steps_are_those_of_sparse_adam(steps: list[list[int]], threads: int, wide: bool) -> None:
    mine = torch.nn.Parameter(random_rows(), requires_grad=False)
    peers = torch.nn.Parameter(random_rows())
    optimizer, peer = PlainAdam([mine], lr=0.01), torch.optim.SparseAdam([peers], lr=0.01)
    for number, ids in enumerate(steps):
        gradients = random_rows(len(ids), 5, number)
        vertices = np.array(ids, np.int64 if wide else np.int32)
        sums = RowSums.of(gradients)
        LazyAdam().update(optimizer, mine, vertices, sums, rate=0.01, num_threads=threads)
        peers.grad = torch.sparse_coo_tensor([ids], gradients, size=(7, 5), check_invariants=False)
        peer.step()
    # Moments that nearly cancel have rounding errors of a step of 0.01, not of its sum.
    torch.testing.assert_close(mine.data, peers.data, rtol=1e-5, atol=2e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(optimizer.state[mine][name], peer.state[peers][name])


@pytest.mark.parametrize("rule", [PlainAdam, PlainAdamW])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_decay_as_dense_weights_do(rule, threads) -> None:
    """All rows, in each step, so that lazy Adam is Adam; rows without ``decays`` have no decay."""
    ids, options = np.arange(7, dtype=np.int32), {"lr": 0.05, "weight_decay": 0.3}
    for decays in (True, False):
        rows = torch.nn.Parameter(random_rows(), requires_grad=False)
        dense = torch.nn.Parameter(random_rows())
        optimizer = rule([{"params": [torch.zeros(2)]}, {"params": [rows]}], **options)
        peer = rule([dense], lr=0.05, weight_decay=0.3 * decays)
        for number in range(5):
            dense.grad = random_rows(7, 5, number + 1)
            sums = RowSums.of(dense.grad.clone())
            with_decay = {"rate": 0.05, "decays": decays, "num_threads": threads}
            LazyAdam().update(optimizer, rows, ids, sums, **with_decay)
            peer.step()
        torch.testing.assert_close(rows.data, dense.data, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("rule", [PlainAdam, PlainAdamW, PlainSgd])
def test_rows_of_other_steps_do_not_decay(rule) -> None:
    rows = torch.nn.Parameter(random_rows(), requires_grad=False)
    optimizer = rule([rows], lr=0.05, weight_decay=0.3)
    sums, ids = RowSums.of(torch.zeros(2, 5)), np.array([5, 2])
    LazyAdam().update(optimizer, rows, ids, sums, rate=0.05, decays=True, num_threads=1)
    changed = (rows.data != random_rows()).any(1)
    assert changed.nonzero().flatten().tolist() == [2, 5]


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, threads=st.sampled_from([1, 3]), wide=st.booleans())
def test_steps_are_those_of_adagrad_with_a_sum_a_row(steps, threads, wide) -> None:
    rows = torch.nn.Parameter(random_rows(), requires_grad=False)
    optimizer = PlainAdam([rows])
    expected, squares = random_rows().double(), torch.zeros(7, 1).double()
    for number, ids in enumerate(steps):
        gradients = random_rows(len(ids), 5, number)
        vertices = np.array(ids, np.int64 if wide else np.int32)
        sums = RowSums.of(gradients)
        RowWiseAdagrad().update(optimizer, rows, vertices, sums, rate=0.1, num_threads=threads)
        squares[ids] += gradients.double().square().mean(dim=1, keepdim=True)
        expected[ids] -= 0.1 / (squares[ids].sqrt() + 1e-8) * gradients
    torch.testing.assert_close(rows.data.double(), expected, rtol=1e-5, atol=1e-6)


def edges(num_rows: int, num_edges: int, width: int, dtype: torch.dtype) -> RowSums:
    """Sums of random edges, most of them of the row in the middle."""
    rng = np.random.default_rng(0)
    in_the_middle = rng.random(num_edges) < 0.7
    ends = np.where(in_the_middle, num_rows // 2, rng.integers(num_rows, size=num_edges))
    wide = random_rows(50, 2 * width).to(dtype)
    return RowSums(
        rows=wide[:, width:],
        indptr=np.searchsorted(np.sort(ends), np.arange(num_rows + 1)),
        indices=rng.integers(50, size=num_edges, dtype=np.int32),
        weights=rng.random(num_edges, dtype=np.float32),
        self_rows=wide[:, :width],
        self_scale=rng.random(40, dtype=np.float32),
        num_self=40,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 16, 130])
@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_sums_on_the_way_and_threads_give_the_same_bits(name, width, dtype) -> None:
    """As sums that were taken before, in one thread. A row has enough edges to be shared."""
    sums = edges(700, 9000, width, dtype)
    ids = np.random.default_rng(0).permutation(1000)[:700]
    before = RowSums.of(sums.total(torch.float32, num_threads=1))
    found, update = [], ROW_OPTIMIZERS[name].update
    for gradients, threads in ((before, 1), (sums, 1), (sums, 2), (sums, 5)):
        rows = torch.nn.Parameter(random_rows(1000, width), requires_grad=False)
        optimizer = PlainAdam([rows])
        for _ in range(2):
            update(optimizer, rows, ids, gradients, rate=0.1, num_threads=threads)
        found.append([rows.data, *optimizer.state[rows].values()])
    assert not torch.equal(found[0][0], random_rows(1000, width))
    for each in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], each, strict=True))


def test_rows_without_elements_are_updated() -> None:
    empty = torch.zeros(4, 0)
    none = {"indptr": np.array([0, 1]), "indices": np.int32([0])}
    how = {"rate": 0.1, "epsilon": 1e-8, "num_threads": 1}
    ops.adagrad_rows(empty, np.zeros(4, "f4"), np.array([2]), torch.zeros(1, 0), **none, **how)


@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_the_state_goes_through_a_checkpoint(name: str) -> None:
    def updated(optimizer: PlainAdam, rows: torch.nn.Parameter, seed: int) -> None:
        sums, ids = RowSums.of(random_rows(2, 5, seed)), np.array([4, 2])
        ROW_OPTIMIZERS[name].update(optimizer, rows, ids, sums, rate=0.01, num_threads=1)

    rows = torch.nn.Parameter(random_rows(), requires_grad=False)
    whole = PlainAdam([rows])
    updated(whole, rows, 1)
    state = {number: dict(each) for number, each in optimizer_state(whole).items()}
    kept = {number: {n: t.clone() for n, t in each.items()} for number, each in state.items()}
    shapes = {n: tuple(t.shape) for n, t in kept[0].items()}
    assert shapes == ROW_OPTIMIZERS[name].state_shapes(rows)
    again = torch.nn.Parameter(rows.data.clone(), requires_grad=False)
    resumed = PlainAdam([again])
    restore_optimizer(resumed, kept)
    updated(whole, rows, 2)
    updated(resumed, again, 2)
    assert torch.equal(rows, again)


def test_the_options_know_all_of_them() -> None:
    assert ROW_OPTIMIZERS.keys() == options._ROW_TABLES.keys()
