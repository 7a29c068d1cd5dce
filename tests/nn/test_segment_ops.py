from dataclasses import replace

import numpy as np
import pytest
import torch
from model_runs import with_threads

from gnnscale.nn.segment_ops import REDUCTIONS, Segments, neighbor_max, take
from gnnscale.sampling import Block

#: 0 <- two edges, 1 <- nobody, 2 <- three edges.
BLOCK = Block(indptr=np.array([0, 2, 2, 5]), indices=np.int32([1, 2, 0, 1, 1]), num_src=3)
MESSAGES = [[1.0, -4.0], [3.0, -2.0], [5.0, 7.0], [5.0, 2.0], [1.0, 6.0]]


def reduced(how, block=BLOCK, degrees=None):
    """The reduction, and the gradient where destinations weigh 1, 10 and 100."""
    messages = torch.tensor(MESSAGES, requires_grad=True)
    out = getattr(Segments(block, degrees), how)(messages)
    (out * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
    return out.tolist(), messages.grad.tolist()


def test_by_hand():
    assert Segments(BLOCK, None).dst.tolist() == [0, 0, 2, 2, 2]
    assert reduced("sum") == ([[4, -6], [0, 0], [11, 15]], [[1, 1]] * 2 + [[100, 100]] * 3)
    rows, grad = reduced("mean")
    assert rows == [[2, -3], [0, 0], [pytest.approx(11 / 3), 5]]
    assert grad[0] == [0.5, 0.5]
    assert grad[2] == [pytest.approx(100 / 3)] * 2
    # A maximum below zero counts; two that are largest share.
    shares = [[0, 0], [1, 1], [50, 100], [50, 0], [0, 0]]
    assert reduced("max") == ([[3, -2], [0, 0], [5, 7]], shares)


def test_sampled_edges_stand_for_all_neighbours_by_hand():
    degrees = np.float32([4, 0, 3, 9])
    rows, grad = reduced("sum", degrees=degrees)
    assert rows == [[8, -12], [0, 0], [11, 15]]
    assert grad[0] == [2, 2]
    assert reduced("mean", degrees=degrees) == reduced("mean")
    kept = replace(BLOCK, importance=np.float32([2, 1, 1, 1, 3]))
    rows, grad = reduced("sum", kept, degrees)
    assert rows == [[5, -10], [0, 0], [13, 27]]
    assert (grad[0], grad[4]) == ([2, 2], [300, 300])
    rows, grad = reduced("mean", kept, degrees)
    assert rows[0] == [1.25, -2.5]
    assert grad[4] == [pytest.approx(100)] * 2
    assert reduced("max", kept, degrees) == reduced("max")


def test_rows_that_are_taken_twice_add_their_gradients():
    x = torch.arange(6.0).view(3, 2).requires_grad_()
    out = take(x, np.int32([2, 0, 2]))
    assert out.tolist() == [[4, 5], [0, 1], [4, 5]]
    out.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert x.grad.tolist() == [[3, 4], [0, 0], [6, 8]]


def test_maxima_of_neighbours_by_hand():
    # Source 1 is twice a neighbor of 2, and its 5 is shared by both edges; 2 has another 5.
    block = Block(indptr=np.array([0, 2, 2, 5]), indices=np.int32([0, 2, 1, 1, 2]), num_src=3)
    x = torch.tensor([[-3.0, 2.0], [5.0, 0.0], [5.0, 7.0]], requires_grad=True)
    out = neighbor_max(x, block)
    assert out.tolist() == [[5, 7], [0, 0], [5, 7]]
    (out * torch.tensor([[1.0], [10.0], [90.0]])).sum().backward()
    assert x.grad.tolist() == [[0, 0], [60, 0], [31, 91]]


@pytest.mark.parametrize(
    ("width", "dtype"),
    [(1, torch.float32), (7, torch.bfloat16), (33, torch.float32), (530, torch.bfloat16)],
)
def test_maxima_of_neighbours_are_those_of_their_messages(width, dtype):
    generator = np.random.default_rng(width)
    indptr = np.cumsum([0, *generator.integers(0, 60, 200)])
    indices = generator.integers(0, 300, indptr[-1], np.int32)
    block = Block(indptr=indptr, indices=indices, num_src=300)
    # Few values, so that many edges share a maximum, and as many zeros as ReLU leaves.
    values = torch.from_numpy(generator.integers(-3, 4, (300, width))).to(dtype).relu()
    grad = torch.from_numpy(generator.standard_normal((200, width), np.float32)).to(dtype)

    def gradient():
        x = values.clone().requires_grad_()
        neighbor_max(x, block).backward(grad)
        return x.grad

    x = values.clone().requires_grad_()
    expected = Segments(block, None).max(take(x.float(), indices))
    assert torch.equal(neighbor_max(values, block).float(), expected)
    expected.backward(grad.float())
    assert all(torch.equal(with_threads(count, gradient), x.grad) for count in (1, 3))


def test_maxima_that_are_no_numbers_or_infinite():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[nan], [1.0], [-inf]], requires_grad=True)
    block = Block(indptr=np.array([0, 2, 4, 5]), indices=np.int32([1, 0, 0, 1, 2]), num_src=3)
    out = neighbor_max(x, block)
    assert out.isnan().flatten().tolist() == [True, True, False]
    assert out[2] == -inf
    out.backward(torch.ones(3, 1))
    assert x.grad.tolist() == [[0], [0], [1]]


def test_no_edges_at_all():
    block = Block(indptr=np.zeros(3, np.int64), indices=np.zeros(0, np.int32), num_src=2)
    for how in REDUCTIONS:
        messages = torch.zeros(0, 4, requires_grad=True)
        out = getattr(Segments(block, np.float32([2, 0])), how)(messages)
        assert out.tolist() == [[0] * 4] * 2
        out.sum().backward()


@pytest.mark.parametrize("how", REDUCTIONS)
def test_against_torch_with_several_axes_and_any_number_of_threads(random_graph, sample, how):
    block = sample(random_graph()).blocks[0]
    degrees = np.full(block.num_src, 7, np.float32)
    messages = torch.randn(block.num_edges, 2, 5, requires_grad=True)
    weight = torch.randn(block.num_dst, 2, 5)

    def run():
        out = getattr(Segments(block, degrees), how)(messages)
        return out, *torch.autograd.grad((out * weight).sum(), [messages])

    found = [with_threads(count, run) for count in (1, 3)]
    assert all(torch.equal(left, right) for left, right in zip(*found, strict=True))
    counts, importance = np.diff(block.indptr).tolist(), block.importance
    weights = torch.ones(block.num_edges) if importance is None else torch.from_numpy(importance)
    parts = torch.split(messages.double(), counts)
    rows = []
    for part, each in zip(parts, torch.split(weights.double()[:, None, None], counts), strict=True):
        total, count = (part * each).sum(0), max(len(part), 1)
        scale, terms = (7 / count, count) if importance is None else (1, 7)
        largest = part.amax(0) if len(part) else total
        rows.append({"sum": total * scale, "mean": total / terms, "max": largest}[how])
    expected = torch.stack(rows)
    (grad,) = torch.autograd.grad((expected * weight).sum(), [messages])
    torch.testing.assert_close(found[0], (expected.float(), grad), rtol=1e-5, atol=1e-5)
