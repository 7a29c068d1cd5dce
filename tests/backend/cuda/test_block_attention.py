import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from padded import SPARE, degrees_of, padded, random_block, random_rows, rows_after, vertices_of
from torch import nn

from gnnscale.nn.conv import gat
from gnnscale.nn.conv.gat import GATLayer, GATv2Layer
from gnnscale.nn.scatter_gather import CustomLayer, ScatterGatherUpdate
from gnnscale.sampling import Block

blocks = st.builds(
    random_block,
    st.integers(0, 999),
    importance=st.booleans(),
    weights=st.just(False),
    sums=st.just(False),
)


class Gathering(ScatterGatherUpdate):
    """Messages of the source's row, gathered by name."""

    gather = "sum"

    def __init__(self, num_in, num_out):
        super().__init__()
        self.first, self.second = nn.Linear(num_in, 5), nn.Linear(num_in + 5, num_out)

    def scatter(self, source):
        return self.first(source).tanh()

    def update(self, own, gathered):
        return self.second(torch.cat([own, gathered], 1))


class OfBothEnds(Gathering):
    """Messages of the rows at both ends of an edge."""

    def scatter(self, source, destination):
        return self.first(source - destination).tanh()


class Means(Gathering):
    gather = "mean"


class Maxima(OfBothEnds):
    gather = "max"


def layer_of(kind):
    torch.manual_seed(4)
    if issubclass(kind, ScatterGatherUpdate):
        return CustomLayer(kind(6, 4), 6, 4)
    if kind is GATv2Layer:
        return GATv2Layer(6, 4, 2, average=False, share_weights=False)
    return GATLayer(6, 4, 2, average=False)


KINDS = [GATLayer, GATv2Layer, Gathering, OfBothEnds, Means, Maxima]


@pytest.mark.long
@settings(max_examples=18, deadline=None)
@given(block=blocks, kind=st.sampled_from(KINDS))
def test_a_layer_computes_what_the_host_does(block, kind):
    degrees, vertices = degrees_of(block), vertices_of(block)
    layer, twin = layer_of(kind), layer_of(kind)
    x = random_rows(block.num_src, 6)
    known, found = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = layer.update(known, block, degrees)
    got = twin.update(
        rows_after(found, 2 * SPARE),
        padded(block, vertices, spare=SPARE),
        torch.from_numpy(degrees),
    )
    torch.testing.assert_close(got[: block.num_dst], expected, rtol=1e-5, atol=1e-6)
    grad = random_rows(block.num_dst, 4)
    expected.backward(grad)
    got.backward(rows_after(grad, SPARE))
    torch.testing.assert_close(found.grad, known.grad, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(block=blocks, heads=st.sampled_from([1, 3]), width=st.sampled_from([1, 4, 7, 40]))
def test_attention_is_the_hosts_to_the_bit(block, heads, width):
    on_device = padded(block, vertices_of(block), spare=SPARE)
    scores = random_rows(block.num_edges, heads)
    z = random_rows(block.num_src, heads * width).view(-1, heads, width)
    known = [scores.clone().requires_grad_(), z.clone().requires_grad_()]
    found = [scores.clone().requires_grad_(), z.clone().requires_grad_()]
    expected = gat.attend(*known, block)
    got = gat.attend(
        rows_after(found[0], SPARE, float("nan")),
        rows_after(found[1], 2 * SPARE, float("nan")),
        on_device,
    )
    assert torch.equal(got[: block.num_dst], expected)
    grad = random_rows(block.num_dst, heads * width).view(-1, heads, width)
    expected.backward(grad)
    got.backward(rows_after(grad, SPARE, float("nan")))
    for mine, theirs in zip(found, known, strict=True):
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("spare", [0, 3])
def test_edges_by_hand(spare):
    """Self edges come first, and edges after the last one are none."""
    block = Block(indptr=np.array([0, 0, 2]), indices=np.array([2, 1], np.int32), num_src=3)
    found = padded(block, np.arange(3, dtype=np.int32), spare=spare)
    assert found.destinations().tolist() == [1, 1, *[0] * spare]
    assert found.sources().tolist() == [2, 1, *[0] * spare]
    edges = {"indptr": np.array([0, 2, 2]), "indices": np.array([1, 2], np.int32)}
    block = Block(**edges, num_src=3, importance=np.array([2, 3], np.float32))
    found = padded(block, np.arange(3, dtype=np.int32), spare=0).with_self_edges()
    assert (found.indptr.tolist(), found.indices.tolist()) == ([0, 3, 4], [0, 1, 2, 1])
    assert (found.importance.tolist(), found.num_used.tolist()) == ([1, 2, 3, 1], [4])
