import numpy as np
import pytest
import torch
from typed_batches import SCHEMA, SEEDS, source_rows, typed_sampler, weighted

from gnnscale.graph import GraphSchema
from gnnscale.nn.conv.linear import warn_unweighted
from gnnscale.nn.typed.attention import HGTLayer, RGATLayer
from gnnscale.sampling import Block, TypedBlock

PAIR = GraphSchema.of({"a": 3, "b": 1}, [("a", "x", "b"), ("a", "y", "b")])
#: Vertex 0 of b has neighbors 0 and 1 by edge type x, 2 by y.
BLOCK = TypedBlock(
    relations=(
        Block(indptr=np.array([0, 2]), indices=np.array([0, 1], np.int32), num_src=3),
        Block(indptr=np.array([0, 1]), indices=np.array([2], np.int32), num_src=3),
    ),
    src_sizes=(3, 1),
    dst_sizes=(0, 1),
)
ROWS = [torch.tensor([[1.0, 0.0], [3.0, 2.0], [8.0, 4.0]]), torch.tensor([[5.0, 6.0]])]


def identities(layer):
    """Give all matrices the identity, and all vectors zeros."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
            if parameter.dim() > 1 and parameter.shape[-1] == 2 <= parameter.shape[-2]:
                parameter[..., -2:, :].copy_(torch.eye(2).expand_as(parameter[..., -2:, :]))
    return layer


@pytest.mark.parametrize(
    ("combine", "message"),
    [("sum", (10.5 + 2 + 8, 12.5 + 1 + 4)), ("mean", (10.25, 8.75)), ("max", (13.25, 10.25))],
)
def test_rgat_has_a_softmax_for_each_edge_type(combine, message) -> None:
    layer = identities(RGATLayer(PAIR, 2, 2, num_heads=1, average=False, combine=combine))
    for bias in layer.biases:
        bias.data.fill_(0.25)
    a, b = layer(ROWS, BLOCK)
    assert a.shape == (0, 2)
    # Its own row and a bias by each edge type, the mean by x and the only neighbor by y.
    assert b.tolist() == [list(message)]


def test_hgt_has_one_softmax_over_all_edge_types() -> None:
    layer = identities(HGTLayer(PAIR, 2, 2, num_heads=1))  # priors of 0: all scores are equal
    layer.skips.data.fill_(100.0)
    _, b = layer(ROWS, BLOCK)
    expected = torch.nn.functional.gelu(torch.tensor([[(1 + 3 + 8) / 3, (0 + 2 + 4) / 3]]))
    torch.testing.assert_close(b, expected)
    layer.skips.data.fill_(-100.0)
    torch.testing.assert_close(layer(ROWS, BLOCK)[1], ROWS[1])


def test_the_skip_needs_equal_widths() -> None:
    layer = HGTLayer(PAIR, 2, 4, num_heads=2)
    assert layer(ROWS, BLOCK)[1].shape == (1, 4)
    layer.skips.data.fill_(-100.0)
    assert layer(ROWS, BLOCK)[1].abs().max() > 0


def test_numbers_of_parameters() -> None:
    """SCHEMA has 4 vertex types and 5 edge types."""

    def count(layer):
        return sum(parameter.numel() for parameter in layer.parameters())

    # Each edge type has a matrix and a bias of own rows, and each type without any: c and d.
    relation, own = 2 * 8 * 6 + 2 * 6, 8 * 6 + 6
    layer = RGATLayer(SCHEMA, 8, 6, num_heads=2, average=False)
    assert count(layer) == (5 + 2) * own + 5 * relation
    types = 4 * (3 * (8 * 6 + 6) + (6 * 6 + 6) + 1)
    assert count(HGTLayer(SCHEMA, 8, 6, num_heads=2)) == types + 5 * (2 * 2 * 3 * 3 + 2)


@pytest.mark.parametrize(
    ("layer", "options", "name"),
    [(RGATLayer, {"average": True}, "rgat"), (HGTLayer, {}, "hgt")],
)
def test_edge_weights_are_ignored_with_a_warning(layer, options, name, caplog) -> None:
    built = layer(SCHEMA, 8, 8, num_heads=2, **options)
    warn_unweighted.cache_clear()
    block = typed_sampler(SCHEMA, [3]).sample(SEEDS, 0).blocks[0]
    rows = source_rows(block, 8)
    for one, other in zip(built(rows, weighted(block)), built(rows, block), strict=True):
        assert torch.equal(one, other)
    assert caplog.messages == [f"model={name} ignores edge weights: all edges count the same"]
