"""Lazy Adam beside ``torch.optim.SparseAdam``."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.optimizer.plain import PlainAdam, PlainSgd, optimizer_state, restore_optimizer
from gnnscale.optimizer.rows import ROW_STATE, update_rows


def table(num_rows: int = 7, width: int = 5) -> torch.Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(0))


def test_one_step_by_hand() -> None:
    rows = torch.nn.Parameter(torch.ones(3, 2), requires_grad=False)
    optimizer = PlainSgd([rows], lr=1.0, fused=True)
    gradients = torch.tensor([[4.0, -0.5]])
    update_rows(optimizer, rows, np.array([1]), gradients, rate=0.25, num_threads=1)
    # The first step of Adam goes by the rate against the gradient's sign, however large it is.
    expected = torch.tensor([[1.0, 1.0], [0.75, 1.25], [1.0, 1.0]])
    torch.testing.assert_close(rows.data, expected, rtol=1e-5, atol=0)
    state = optimizer.state[rows]
    assert state.keys() == ROW_STATE
    torch.testing.assert_close(state["exp_avg"][1], 0.1 * gradients[0])
    torch.testing.assert_close(state["exp_avg_sq"][1], 0.001 * gradients[0].square())
    assert not state["exp_avg"][[0, 2]].any()


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True), min_size=1, max_size=6
    ),
    threads=st.sampled_from([1, 3]),
    wide=st.booleans(),
)
def test_steps_are_those_of_sparse_adam(steps: list[list[int]], threads: int, wide: bool) -> None:
    mine = torch.nn.Parameter(table(), requires_grad=False)
    peers = torch.nn.Parameter(table())
    optimizer, peer = PlainAdam([mine], lr=0.01), torch.optim.SparseAdam([peers], lr=0.01)
    for number, ids in enumerate(steps):
        gradients = torch.randn(len(ids), 5, generator=torch.Generator().manual_seed(number))
        vertices = np.array(ids, np.int64 if wide else np.int32)
        update_rows(optimizer, mine, vertices, gradients, rate=0.01, num_threads=threads)
        peers.grad = torch.sparse_coo_tensor([ids], gradients, size=(7, 5), check_invariants=False)
        peer.step()
    # Moments that nearly cancel have rounding errors of a step of 0.01, not of its sum.
    torch.testing.assert_close(mine.data, peers.data, rtol=1e-5, atol=2e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(optimizer.state[mine][name], peer.state[peers][name])


@pytest.mark.parametrize("width", [1, 3, 16, 130])
def test_any_number_of_threads_gives_the_same_bits(width: int) -> None:
    ids = np.random.default_rng(0).permutation(4000)[:3000]
    gradients = torch.randn(3000, width)
    found = []
    for threads in (1, 2, 5):
        rows = torch.nn.Parameter(table(4000, width), requires_grad=False)
        update_rows(PlainAdam([rows]), rows, ids, gradients, rate=0.1, num_threads=threads)
        found.append(rows.data)
    assert all(torch.equal(found[0], each) for each in found[1:])


def test_the_state_goes_through_a_checkpoint() -> None:
    def updated(optimizer: PlainAdam, rows: torch.nn.Parameter, seed: int) -> None:
        gradients = torch.randn(2, 5, generator=torch.Generator().manual_seed(seed))
        update_rows(optimizer, rows, np.array([4, 2]), gradients, rate=0.01, num_threads=1)

    rows = torch.nn.Parameter(table(), requires_grad=False)
    whole = PlainAdam([rows])
    updated(whole, rows, 1)
    state = {number: dict(each) for number, each in optimizer_state(whole).items()}
    kept = {number: {n: t.clone() for n, t in each.items()} for number, each in state.items()}
    again = torch.nn.Parameter(rows.data.clone(), requires_grad=False)
    resumed = PlainAdam([again])
    restore_optimizer(resumed, kept)
    updated(whole, rows, 2)
    updated(resumed, again, 2)
    assert torch.equal(rows, again)
