from dataclasses import replace

import numpy as np
import pytest
import torch
from typed_batches import SCHEMA, SEEDS, source_rows, typed_sampler

from gnnscale.graph import GraphSchema
from gnnscale.nn.typed.relational import RGCNLayer, RSAGELayer
from gnnscale.sampling import Block, TypedBlock

#: Two edge types that end at b, from a and from b; none ends at a.
PAIR = GraphSchema.of({"a": 2, "b": 2}, [("a", "x", "b"), ("b", "y", "b")])


def lists(indptr, indices, num_src) -> Block:
    return Block(indptr=np.array(indptr), indices=np.array(indices, np.int32), num_src=num_src)


def tiny(dst_sizes=(1, 1)) -> TypedBlock:
    """One destination of each type; that of b has both vertices of a, and itself."""
    relations = (lists([0, 2], [0, 1], 2), lists([0, 1], [0], 1))
    return TypedBlock(relations=relations, src_sizes=(2, 1), dst_sizes=dst_sizes)


def numbers(layer):
    """Give a layer of one feature the weights 1, 2, ... and biases of 100."""
    with torch.no_grad():
        for parameter in layer.parameters():
            values = torch.arange(1.0, 1 + parameter.numel()).view_as(parameter)
            parameter.copy_(values + 99 if parameter.dim() == 1 else values)
    return layer


ROWS = [torch.tensor([[1.0], [5.0]]), torch.tensor([[7.0]])]


def test_rgcn_by_hand() -> None:
    a, b = numbers(RGCNLayer(PAIR, 1, 1))(ROWS, tiny())
    assert a.tolist() == [[100 + 1 * 1]]
    assert b.tolist() == [[100 + 2 * 7 + 1 * 3 + 2 * 7]]


def test_rgcn_with_bases_by_hand() -> None:
    """W_x = 1 * 1 + 2 * 2, W_y = 3 * 1 + 4 * 2."""
    _, b = numbers(RGCNLayer(PAIR, 1, 1, num_bases=2))(ROWS, tiny())
    assert b.tolist() == [[100 + 2 * 7 + 5 * 3 + 11 * 7]]


@pytest.mark.parametrize(
    ("combine", "message"),
    [("sum", 2 * 3 + 3 * 7), ("mean", (2 * 3 + 3 * 7) / 2), ("max", 3 * 7)],
)
def test_rsage_by_hand(combine, message) -> None:
    a, b = numbers(RSAGELayer(PAIR, 1, 1, combine=combine))(ROWS, tiny())
    assert a.tolist() == [[100 + 1 * 1]]
    assert b.tolist() == [[100 + 1 * 7 + message]]


@pytest.mark.parametrize(("combine", "message"), [("sum", 2 * 6 + 3 * 7), ("max", 3 * 7)])
def test_rsage_adds_rows_by_hand(combine, message) -> None:
    _, b = numbers(RSAGELayer(PAIR, 1, 1, combine=combine, aggregator="sum"))(ROWS, tiny())
    assert b.tolist() == [[100 + 1 * 7 + message]]


def test_edge_types_without_edges_count_in_the_maximum() -> None:
    block = replace(tiny(), relations=(lists([0, 2], [0, 1], 2), lists([0, 0], [], 1)))
    layer = numbers(RSAGELayer(PAIR, 1, 1, combine="max"))
    assert layer([-row for row in ROWS], block)[1].tolist() == [[100 - 1 * 7]]


def test_numbers_of_parameters() -> None:
    """SCHEMA has 4 vertex types and 5 edge types: 3 end at a, 2 at b."""

    def count(layer):
        return sum(parameter.numel() for parameter in layer.parameters())

    assert count(RGCNLayer(SCHEMA, 8, 5)) == (4 + 5) * 8 * 5 + 5
    assert count(RGCNLayer(SCHEMA, 8, 5, num_bases=2)) == (4 + 2) * 8 * 5 + 5 * 2 + 5
    assert count(RSAGELayer(SCHEMA, 8, 5)) == (4 + 5) * 8 * 5 + 4 * 5


@pytest.mark.parametrize("layer", [RGCNLayer, RSAGELayer])
def test_edge_types_without_edges_are_not_multiplied(layer, monkeypatch) -> None:
    columns = []
    monkeypatch.setattr(
        "gnnscale.nn.typed.relation_means.multiply",
        lambda x, weight, bias: columns.append(x.shape) or x @ weight.t() + bias,
    )
    block = typed_sampler(SCHEMA, [3]).sample(SEEDS[:4], 0).blocks[0]
    with torch.no_grad():
        layer(SCHEMA, 8, 5)(source_rows(block, 8), block)
    # The seeds are of type a, at which three edge types end, one of them from an empty type.
    assert columns == [(4, 3 * 8), (0, 8), (0, 8), (0, 8)]


def test_fewer_multiplications_decide_when_rows_are_encoded() -> None:
    layer = RSAGELayer(PAIR, 4, 4)
    # 3 * 4 for each of 3 sources, and 4 * 4 for own rows and means, 1 + 3; otherwise 3 * 4 for
    # these 1 + 3, and for as many products of matrices with 4 rows.
    assert not layer.encodes_means((3, 3), tiny())
    many = lists(np.arange(201), np.zeros(200), 200)
    full = TypedBlock(relations=(many, many), src_sizes=(200, 200), dst_sizes=(0, 200))
    assert layer.encodes_means((4, 4), full)
    assert not layer.encodes_means((40, 40), full)
