from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.backend.feature_loading import ChunkLoader
from gnnscale.core import Array
from gnnscale.features import HostFeatures
from gnnscale.inference.activation_store import MemoryRows
from gnnscale.nn import APPNP, GAT, GCN, GIN, GATv2, GraphSAGE
from gnnscale.nn.transform_first import (
    ProjectedLayer,
    TransformedStore,
    TransformFirstLayer,
    transform_first_layer,
)
from gnnscale.sampling import Block

#: 0 <- 1, 2; 1 <- 2
BLOCK = Block(indptr=np.array([0, 2, 3]), indices=np.array([1, 2, 2], np.int32), num_src=3)


class Rows(TransformedStore):
    """Rows that a layer made, with sums that are added one by one."""

    def __init__(self, layer: TransformFirstLayer, h: torch.Tensor) -> None:
        self._h = h
        self._rows = layer.make(h)

    num_rows = width = row_bytes = property(lambda self: 0)

    def gather(self, vertices: Array, *, dtype: torch.dtype, num_threads: int) -> Any:
        return self._rows[vertices], None

    def own(self, vertices: Array) -> torch.Tensor:
        return self._h[vertices]

    def sums(self, vertices: Any, block: Block, degrees: Any, layer: Any) -> torch.Tensor:
        found = layer.aggregation(block, degrees)
        out = torch.zeros(block.num_dst, self._rows.shape[1])
        for dst, (begin, end) in enumerate(zip(block.indptr, block.indptr[1:], strict=False)):
            for edge in range(begin, end):
                weight = 1.0 if found.weights is None else float(found.weights[edge])
                out[dst] += weight * self._rows[block.indices[edge]]
            out[dst] *= 1.0 if found.dst_scale is None else float(found.dst_scale[dst])
            if found.self_term == "add":
                scale = 1.0 if found.self_scale is None else float(found.self_scale[dst])
                out[dst] += scale * self._rows[dst]
        return out


@pytest.mark.parametrize(
    "config",
    [
        *(GCN(), GraphSAGE(), GIN(hidden=16), GIN(hidden=40)),
        *(GraphSAGE(aggregator="pool"), GAT(num_heads=2), GATv2(num_heads=2)),
        GATv2(num_heads=2, share_weights=True),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_made_rows_give_what_the_layer_gives(config: Any, last: bool) -> None:
    whole = config.layer(40, 32, last=last)
    for parameter in whole.parameters():
        torch.nn.init.normal_(parameter)
    layer = transform_first_layer(whole, 40)
    assert list(layer.parameters()) == []
    h, vertices, degrees = torch.randn(3, 40), np.arange(3), np.float32([2, 1, 0])
    options: Any = {"dtype": torch.float32, "num_threads": 1}
    with torch.no_grad():
        expected = whole.update(whole.prepare(h, BLOCK, degrees, None), BLOCK)
        x, _ = layer.load(Rows(layer, h), vertices, BLOCK, degrees, **options)
        torch.testing.assert_close(layer.update(x, BLOCK), expected, rtol=1e-4, atol=1e-4)
        # Some columns after others sum to the same.
        begins = range(0, layer.width, layer.step)
        parts = [layer.part(first, min(first + layer.step, layer.width)) for first in begins]
        sums = [part.sums(Rows(part, h), vertices, BLOCK, degrees, 1) for part in parts]
        own = [h[:2]] if layer.reads_own else []
        found = layer.update(torch.cat([*sums, *own], dim=1), BLOCK)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_mean_by_hand() -> None:
    whole: Any = GraphSAGE().layer(20, 1, last=True)
    with torch.no_grad():
        whole.linear.weight.copy_(torch.arange(40.0)[None])
        whole.linear.bias.fill_(0.5)
    layer = transform_first_layer(whole, 20)
    assert (layer.width, layer.reads_own) == (16, True)
    h = torch.eye(20)[[3, 0, 1]]
    made = layer.make(h)
    # Columns of the mean come after a vertex's own, and the one output is filled up to 16.
    assert made[:, 0].tolist() == [23, 20, 21]
    assert not made[:, 1:].any()
    x = torch.cat([torch.tensor([[20.5], [21.0]]), torch.zeros(2, 15), h[:2]], dim=1)
    assert layer.update(x, BLOCK).tolist() == [[20.5 + 3 + 0.5], [21 + 0 + 0.5]]


def test_layers_whose_rows_are_not_made_one_by_one() -> None:
    gine = GIN(edge_features=True).edge_layer(8, 4, last=True, edge_dim=3)
    hop = APPNP().build(num_features=8, num_classes=3).layer(0)
    for layer in (gine, hop):
        assert transform_first_layer(layer, 8) is None


def test_projected_rows_by_hand() -> None:
    layer = GraphSAGE(hidden=4).layer(40, 1, last=True)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.arange(80.0)[None])
    projected = ProjectedLayer.of(layer, 40)
    rows = projected.project(torch.eye(40)[[3, 0]])
    # Columns of the mean come after a vertex's own; each part is filled up to 16.
    expected = torch.zeros(2, 32)
    expected[:, 0] = torch.tensor([43.0, 40.0])
    expected[:, 16] = torch.tensor([3.0, 0.0])
    assert torch.equal(rows, expected)


@pytest.mark.parametrize("config", [GCN, GraphSAGE])
@pytest.mark.parametrize("num_out", [3, 16, 47])
def test_the_order_of_product_and_aggregation_does_not_matter(
    random_graph, config, num_out
) -> None:
    graph = random_graph(300, 4000)
    layer = config(hidden=4).layer(128, num_out, last=True)
    nn.init.normal_(layer.linear.bias)
    projected = ProjectedLayer.of(layer, 128)
    assert list(projected.parameters()) == []
    h = torch.randn(300, 128, generator=torch.Generator().manual_seed(0))
    rows = MemoryRows(300, projected.width, num_parts=projected.num_parts)
    vertices = np.random.default_rng(0).permutation(300).astype(graph.indices.dtype)
    loader = ChunkLoader(graph, num_threads=1, uses_degrees=True)
    with torch.no_grad():
        for _ in range(2):  # with weights that change
            layer.linear.weight.mul_(1.5)
            rows.write(0, projected.project(h))
            block, x = loader.load_chunk(layer, HostFeatures(h.numpy(), "float32"), vertices)
            expected = layer.update(x, block)
            block, x = loader.load_chunk(projected, rows, vertices)
            found = projected.update(x, block)
            assert found.shape == (300, num_out)
            assert (found - expected).norm() < 1e-6 * expected.norm()


def test_only_layers_whose_product_is_linear_and_narrows_are_projected() -> None:
    for config in (GIN, GAT):
        assert ProjectedLayer.of(config(hidden=8).layer(128, 3, last=True), 128) is None
    gcn, sage = (config(hidden=4) for config in (GCN, GraphSAGE))
    assert ProjectedLayer.of(gcn.layer(128, 112, last=True), 128) is not None
    assert ProjectedLayer.of(gcn.layer(128, 113, last=True), 128) is None
    # Two rows in place of one.
    assert ProjectedLayer.of(sage.layer(128, 48, last=True), 128) is not None
    assert ProjectedLayer.of(sage.layer(128, 49, last=True), 128) is None
