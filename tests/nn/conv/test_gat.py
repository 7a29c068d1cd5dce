from dataclasses import replace

import numpy as np
import pytest
import torch
from model_runs import with_threads
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.nn import GAT, GATv2
from gnnscale.nn.conv.gat import edge_scores, pair_scores, with_self_edges
from gnnscale.sampling import Block


def attended(layer, scores, z, edges):
    # An edge that is there twice, or stands for several, counts so often in the softmax.
    edges = edges + torch.eye(*edges.shape, dtype=torch.float64)
    out = torch.einsum("ijk,jkf->ikf", (scores + edges.log()[..., None]).softmax(1), z)
    return (out.mean(1) if layer.average else out.flatten(1)) + layer.bias


def dense(layer, h, edges, degrees, block):
    z = layer.linear(h).view(-1, layer.num_heads, layer.width)
    src = (z * layer.attention_src).sum(-1)
    dst = (z * layer.attention_dst).sum(-1)[: block.num_dst]
    return attended(layer, functional.leaky_relu(dst[:, None] + src, 0.2), z, edges)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_against_a_dense_reference(check_against, num_heads, fused):
    check_against(GAT(hidden=16, dropout=0.0, num_heads=num_heads), dense, fused=fused)


def dense_v2(layer, h, edges, degrees, block):
    z = layer.linear(h).view(-1, layer.num_heads, layer.width)
    own = z if layer.linear_dst is None else layer.linear_dst(h).view_as(z)
    pairs = functional.leaky_relu(own[: block.num_dst, None] + z, 0.2)
    return attended(layer, (pairs * layer.attention).sum(-1), z, edges)


@pytest.mark.long
@pytest.mark.parametrize("share_weights", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_the_second_version_against_a_dense_reference(check_against, num_heads, share_weights):
    options = {"num_heads": num_heads, "share_weights": share_weights}
    check_against(GATv2(hidden=16, dropout=0.0, **options), dense_v2, fused=True)


def test_scores_of_pairs_by_hand():
    # 0 <- 1, 2; 1 <- nobody; two heads of two columns, of which LeakyReLU halves what is below 0.
    block = Block(indptr=np.array([0, 2, 2]), indices=np.int32([1, 2]), num_src=3)
    own = torch.tensor([[1.0, 2, 3, 4], [9, 9, 9, 9]], requires_grad=True)
    z = torch.tensor([[7.0] * 4, [1, -4, 0, 0], [-2, 0, -5, -4]], requires_grad=True)
    attention = torch.tensor([[1.0, 10.0], [2.0, 3.0]], requires_grad=True)
    scores = pair_scores(own.view(2, 2, 2), z.view(3, 2, 2), attention, block, 0.5)
    # Sums are 2, -2 | 3, 4 and -1, 2 | -2, 0.
    assert scores.tolist() == [[2 - 10, 6 + 12], [-0.5 + 20, -2 + 0]]
    scores.backward(torch.tensor([[1.0, 1.0], [100.0, 100.0]]))
    assert attention.grad.tolist() == [[2 - 50, -1 + 200], [3 - 100, 4]]
    assert own.grad.tolist() == [[1 + 50, 5 + 1000, 2 + 100, 3 + 150], [0] * 4]
    assert z.grad.tolist() == [[0] * 4, [1, 5, 2, 3], [50, 1000, 100, 150]]


@pytest.mark.parametrize(("num_heads", "width"), [(1, 1), (4, 2), (3, 7), (4, 8), (2, 33), (1, 64)])
def test_scores_of_pairs_are_those_of_their_rows(num_heads, width):
    generator = np.random.default_rng(width)
    indptr = np.cumsum([0, *generator.integers(0, 30, 300)])
    indices = generator.integers(0, 400, indptr[-1], np.int32)
    block = Block(indptr=indptr, indices=indices, num_src=400)

    def rows(*shape):
        return torch.from_numpy(generator.standard_normal(shape, np.float32)).requires_grad_()

    operands = rows(300, num_heads, width), rows(400, num_heads, width), rows(num_heads, width)
    grad = rows(int(indptr[-1]), num_heads).detach()

    def run():
        scores = pair_scores(*operands, block, 0.2)
        return scores, *torch.autograd.grad(scores, operands, grad)

    found = [with_threads(num_threads, run) for num_threads in (1, 3)]
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))
    own, z, attention = (each.double() for each in operands)
    pairs = edge_scores(z.flatten(1), own.flatten(1), block).view(-1, num_heads, width)
    scores = (functional.leaky_relu(pairs, 0.2) * attention).sum(-1)
    expected = (scores, *torch.autograd.grad(scores, (own, z, attention), grad.double()))
    for mine, theirs in zip(found[0], expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


def test_self_edges_come_first():
    block = Block(indptr=np.array([0, 2, 2, 3]), indices=np.int32([1, 3, 0]), num_src=4)
    block = replace(block, importance=np.float32([2, 3, 4]))
    own = with_self_edges(block)
    assert own.indptr.tolist() == [0, 3, 4, 6]
    assert own.indices.tolist() == [0, 1, 3, 1, 2, 0]
    assert own.indices.dtype == np.int32
    assert own.importance.tolist() == [1, 2, 3, 1, 1, 4]
    assert own.num_src == 4


@pytest.mark.parametrize("num_heads", [0, 3, -2])
def test_heads_that_do_not_fit(num_heads):
    with pytest.raises(ConfigError, match=rf"model\.num_heads={num_heads}: expected a divisor of"):
        GAT(hidden=16, num_heads=num_heads)
