from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model import GNN, GraphSAGE, Inputs
from gnnscale.sampler import Block, MiniBatch, NeighborSampler


def dense(
    graph: Graph, batch: MiniBatch, adjacency: Callable[[Block], torch.Tensor], model: GNN
) -> torch.Tensor:
    h = torch.from_numpy(graph.features[batch.input_vertices]).double()
    degrees = np.diff(graph.indptr)[batch.input_vertices]
    for index, block in enumerate(batch.blocks):
        sampled = np.diff(block.indptr)
        count = sampled if block.importance is None else degrees[: block.num_dst]
        mean = adjacency(block) @ h / torch.from_numpy(np.maximum(count, 1))[:, None]
        h = model.layers[index].linear.double()(torch.cat([h[: block.num_dst], mean], 1))
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
    model = GraphSAGE(hidden=16, dropout=0.0).build(num_features=20, num_classes=5)
    inputs = load(graph, model, batch, fused=fused)
    check_against(model, batch, inputs, lambda model: dense(graph, batch, adjacency, model))


def test_a_layer_by_hand(tiny_graph: Graph, load: Callable[..., Inputs]) -> None:
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([2, 3]), 0)
    model = GraphSAGE(num_layers=1).build(num_features=2, num_classes=4)
    with torch.no_grad():
        model.layers[0].linear.weight.copy_(torch.eye(4))
    logits = model(batch, load(tiny_graph, model, batch, fused=True))
    assert logits.tolist() == [[2, 20, 1.5, 15], [3, 30, 0, 0]]


def test_bfloat16_stays_close(
    random_graph: Callable[..., Graph], sample: Callable[[Graph], MiniBatch], load: Any
) -> None:
    graph = random_graph()
    batch = sample(graph)
    model = GraphSAGE(hidden=16, dropout=0.0).build(num_features=20, num_classes=5)
    exact = model(batch, load(graph, model, batch, fused=True))
    low = model(batch, load(graph, model, batch, fused=True, dtype=torch.bfloat16))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))
    low.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
