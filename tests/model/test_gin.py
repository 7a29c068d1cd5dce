from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model import GIN, GNN, Inputs
from gnnscale.sampler import Block, MiniBatch, NeighborSampler


def dense(
    graph: Graph, batch: MiniBatch, adjacency: Callable[[Block], torch.Tensor], model: GNN
) -> torch.Tensor:
    h = torch.from_numpy(graph.features[batch.input_vertices]).double()
    degrees = np.diff(graph.indptr)[batch.input_vertices]
    for index, block in enumerate(batch.blocks):
        sums = adjacency(block) @ h
        if block.importance is None:
            sampled = np.maximum(np.diff(block.indptr), 1)
            sums = sums * torch.from_numpy(degrees[: block.num_dst] / sampled)[:, None]
        layer = model.layers[index].double()
        h = layer.second(layer.first(h[: block.num_dst] + sums).relu())
        h = h.relu() if index + 1 < len(batch.blocks) else h
    return h


@pytest.mark.parametrize("fused", [False, True])
def test_against_a_dense_reference(
    random_graph: Callable[..., Graph],
    sample: Callable[[Graph], MiniBatch],
    adjacency: Any,
    load: Callable[..., Inputs],
    check_against: Callable[..., None],
    fused: bool,
) -> None:
    graph = random_graph()
    batch = sample(graph)
    model = GIN(hidden=16, dropout=0.0).build(num_features=20, num_classes=5)
    inputs = load(graph, model, batch, fused=fused)
    check_against(model, batch, inputs, lambda model: dense(graph, batch, adjacency, model))


def test_a_sampled_sum_is_rescaled(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    (block,) = NeighborSampler(graph, fanouts=[3]).sample(np.arange(50), 0).blocks
    degrees = np.diff(graph.indptr).astype(np.float32)[:50]
    layer = GIN(num_layers=1).build(num_features=20, num_classes=5).layers[0]
    how = layer.aggregation(block, degrees)
    assert how.self_term == "add"
    assert how.self_scale is None
    sampled = np.diff(block.indptr)
    np.testing.assert_allclose(how.dst_scale * sampled, degrees, rtol=1e-6)
