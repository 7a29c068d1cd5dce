from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.backend.feature_loading import ChunkLoader
from gnnscale.features import HostFeatures
from gnnscale.inference.activation_store import MemoryRows
from gnnscale.nn import APPNP, GAT, GCN, GIN, GraphSAGE
from gnnscale.nn.transform_first import ProjectedLayer, transform_first_layer
from gnnscale.sampling import Block

#: 0 <- 1, 2; 1 <- 2
BLOCK = Block(indptr=np.array([0, 2, 3]), indices=np.array([1, 2, 2], np.int32), num_src=3)


def test_a_mean_by_hand() -> None:
    whole: Any = GraphSAGE().layer(20, 1, last=True)
    with torch.no_grad():
        whole.linear.weight.copy_(torch.arange(40.0)[None])
        whole.linear.bias.fill_(0.5)
    layer = transform_first_layer(whole, 20)
    assert (layer.width, layer.reads_own, list(layer.parameters())) == (16, True, [])
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
