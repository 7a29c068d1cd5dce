from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.backend.chunks import ChunkLoader
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.model.projection import ProjectedLayer
from gnnscale.runtime.evaluation.memory_rows import MemoryRows


def test_products_by_hand() -> None:
    layer = GraphSAGE(hidden=4).layer(40, 1, last=True)
    assert isinstance(layer.linear, nn.Linear)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.arange(80.0)[None])
    projected = ProjectedLayer.of(layer, 40)
    assert projected is not None
    rows = projected.project(torch.eye(40)[[3, 0]])
    # Columns of the mean come after a vertex's own; each part is filled up to 16.
    expected = torch.zeros(2, 32)
    expected[:, 0] = torch.tensor([43.0, 40.0])
    expected[:, 16] = torch.tensor([3.0, 0.0])
    assert torch.equal(rows, expected)


@pytest.mark.parametrize("config", [GCN, GraphSAGE])
@pytest.mark.parametrize("num_out", [3, 16, 47])
def test_the_order_of_product_and_aggregation_does_not_matter(
    random_graph: Callable[..., Graph], config: type[ModelConfig], num_out: int
) -> None:
    graph = random_graph(300, 4000)
    layer = config(hidden=4).layer(128, num_out, last=True)
    assert isinstance(layer, LinearAggregationLayer)
    assert isinstance(layer.linear, nn.Linear)
    nn.init.normal_(layer.linear.bias)
    projected = ProjectedLayer.of(layer, 128)
    assert projected is not None
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
            error = (found - expected).norm() / expected.norm()
            assert error < 1e-6


def test_only_layers_whose_product_is_linear_and_narrows_are_projected() -> None:
    for config in (GIN, GAT):
        assert ProjectedLayer.of(config(hidden=8).layer(128, 3, last=True), 128) is None
    gcn, sage = (config(hidden=4) for config in (GCN, GraphSAGE))
    assert ProjectedLayer.of(gcn.layer(128, 112, last=True), 128) is not None
    assert ProjectedLayer.of(gcn.layer(128, 113, last=True), 128) is None
    # Two rows in place of one.
    assert ProjectedLayer.of(sage.layer(128, 48, last=True), 128) is not None
    assert ProjectedLayer.of(sage.layer(128, 49, last=True), 128) is None
