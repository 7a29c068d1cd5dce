"""Products of own rows and means, against dense matrices and finite differences."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_runs import assert_near, edge_index, weighted_sum
from typed_batches import SCHEMA, SEEDS, schemas, typed_sampler, weighted

from gnnscale.features.typed import SourceRows
from gnnscale.nn.typed.relation_means import MeanColumns, RelationMean, multiply_means
from gnnscale.nn.typed.relational import RGCNLayer, RSAGELayer
from gnnscale.sampling import Block, TypedBlock

#: Two vertices of type 0 get means of type 1, which has three; the second has no neighbor.
BLOCK = Block(indptr=np.array([0, 2, 2]), indices=np.array([0, 2], np.int32), num_src=3)
ROWS = [
    SourceRows.of(torch.tensor(rows)) for rows in ([[1.0, 2.0], [3.0, 4.0]], [[1.0], [5.0], [7.0]])
]


def dense_mean(block: Block, *, sums: bool = False) -> torch.Tensor:
    """Return the matrix of a block's (weighted) mean or sum, destination by source."""
    weights = np.ones(block.num_edges) if block.edge_weights is None else block.edge_weights
    matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    at = tuple(edge_index(block).flip(0))
    matrix = matrix.index_put(at, torch.from_numpy(weights).double(), accumulate=True)
    return matrix if sums else matrix / matrix.sum(1, keepdim=True).clamp(min=1e-30)


def all_gradients(out: torch.Tensor, of: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Gradients, zeros of what ``out`` does not depend on."""
    return torch.autograd.grad(weighted_sum(out), of, materialize_grads=True)


def dense(layer, rows, block: TypedBlock) -> list[torch.Tensor]:
    """Return a layer's output by matrices, in float64."""
    outputs = []
    for number, own in enumerate(layer.root_weights()):
        out = rows[number][: block.dst_sizes[number]] @ own.t() + layer.biases()[number]
        incoming = layer.incoming[number]
        for edge_type in incoming:
            matrix = dense_mean(block.relations[edge_type], sums=layer.sums)
            x = matrix @ rows[layer.sources[edge_type]]
            message = x @ layer.relation_weights()[edge_type].t()
            out = out + message / (len(incoming) if layer.combine == "mean" else 1)
        outputs.append(out)
    return outputs


def test_columns_by_hand() -> None:
    mean = RelationMean.of(1, BLOCK, 0.5)
    columns = MeanColumns(vertex_type=0, num_dst=2, means=(mean,))
    assert columns.build(ROWS, num_threads=1).tolist() == [[1, 2, 2], [3, 4, 0]]
    shared = MeanColumns(vertex_type=0, num_dst=2, means=(mean,), has_shares=True)
    assert shared.build(ROWS, num_threads=1).tolist() == [[1, 2, 1, 2, 0.5], [3, 4, 1, 0, 0]]


def test_weights_of_zero_give_no_mean() -> None:
    weights = {"edge_weights": np.array([1, 3, 0], np.float32)}
    indices = np.array([0, 2, 1], np.int32)
    block = Block(indptr=np.array([0, 2, 3]), indices=indices, num_src=3, **weights)
    columns = MeanColumns(
        vertex_type=0, num_dst=2, means=(RelationMean.of(1, block, 1.0),), has_shares=True
    )
    assert columns.build(ROWS, num_threads=1).tolist() == [[1, 2, 1, 5.5, 1], [3, 4, 1, 0, 0]]
    sums = RelationMean.of(1, block, 0.5, sums=True)
    columns = MeanColumns(vertex_type=0, num_dst=2, means=(sums,), has_shares=True)
    assert columns.build(ROWS, num_threads=1).tolist() == [[1, 2, 1, 11, 2], [3, 4, 1, 0, 0]]


def test_gradients_are_finite_differences() -> None:
    columns = [
        MeanColumns(vertex_type=0, num_dst=2, means=(RelationMean.of(1, BLOCK, 1.0),)),
        MeanColumns(vertex_type=1, num_dst=0, means=()),
    ]
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 4), (3, 4), (3, 8), (3, 4), (3,), (3,))  # rows, weights and biases of both types
    tensors = [torch.randn(size, generator=generator).requires_grad_() for size in sizes]

    def product(*tensors: torch.Tensor) -> torch.Tensor:
        out, none = multiply_means(tensors[:2], columns, tensors[2:4], tensors[4:])
        assert none.shape == (0, 3)
        return out

    # The function is linear in each argument: large differences are exact.
    options = {"eps": 1.0, "atol": 1e-4, "rtol": 1e-4}
    with pytest.warns(UserWarning, match="double"):
        assert torch.autograd.gradcheck(product, tensors, nondet_tol=0.0, **options)


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (RGCNLayer, {}),
        (RGCNLayer, {"num_bases": 2}),
        (RSAGELayer, {}),
        (RSAGELayer, {"combine": "mean"}),
        (RSAGELayer, {"aggregator": "sum"}),
    ],
)
@settings(max_examples=20)
@given(schemas(), st.booleans())
def test_layers_are_products_of_matrices(layer, options, schema, weighs) -> None:
    built = layer(schema, 8, 5, **options)
    batch = typed_sampler(schema, [3, 2]).sample(np.arange(0, schema.num_vertices, 2), 0)
    for block in map(weighted, batch.blocks) if weighs else batch.blocks:
        x = torch.randn(block.num_src, 8, requires_grad=True)
        out = torch.cat(built.float()(x.split(block.src_sizes), block))
        results = [out, *all_gradients(out, [x, *built.parameters()])]
        wide = x.detach().double().requires_grad_()
        expected = torch.cat(dense(built.double(), wide.split(block.src_sizes), block))
        wanted = [expected, *all_gradients(expected, [wide, *built.parameters()])]
        for one, other in zip(results, wanted, strict=True):
            if len(one):
                assert_near(one, other)


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (RGCNLayer, {}),
        (RSAGELayer, {"combine": "mean"}),
        (RSAGELayer, {"combine": "mean", "aggregator": "sum"}),
    ],
)
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("learned_types", [(), (0, 2), (1,), (2,)])
def test_means_are_encoded_as_rows_are(layer, options, weighs, learned_types) -> None:
    """Also where vertices lack neighbors, whose mean the encoder's bias does not enter."""
    widths = (3, 4, 3, 2)
    built = layer(SCHEMA, 8, 5, **options)
    encoders = torch.nn.ModuleList(torch.nn.Linear(width, 8) for width in widths)
    block = typed_sampler(SCHEMA, [2, 2]).sample(SEEDS, 0).blocks[0]
    block = weighted(block) if weighs else block
    rows = [torch.randn(size, width) for size, width in zip(block.src_sizes, widths, strict=True)]
    learned = [rows[number].requires_grad_() for number in learned_types]
    encoded = [encoder(x) for encoder, x in zip(encoders, rows, strict=True)]
    ours = torch.cat(built.forward_encoded(rows, block, encoders))
    expected = torch.cat(built(encoded, block))
    weights = [*learned, *built.parameters(), *encoders.parameters()]
    for one, other in zip(
        (ours, *all_gradients(ours, weights)),
        (expected, *all_gradients(expected, weights)),
        strict=True,
    ):
        assert_near(one, other)
