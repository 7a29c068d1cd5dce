from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model import GCN, GIN, GNN, GraphSAGE, Inputs
from gnnscale.sampler import Block, MiniBatch, NeighborSampler


def dense(
    graph: Graph, batch: MiniBatch, adjacency: Callable[[Block], torch.Tensor], model: GNN
) -> torch.Tensor:
    degrees = torch.from_numpy(np.diff(graph.indptr).astype(np.float64))
    degrees = degrees[torch.from_numpy(batch.input_vertices.astype(np.int64))]
    h = torch.from_numpy(graph.features[batch.input_vertices]).double()
    for index, block in enumerate(batch.blocks):
        a = adjacency(block)
        if block.importance is None:
            sampled = torch.from_numpy(np.maximum(np.diff(block.indptr), 1))
            a = a * (degrees[: block.num_dst] / sampled)[:, None]
        root = (degrees + 1).rsqrt()
        a = root[: block.num_dst, None] * a * root[: block.num_src]
        own = h[: block.num_dst] / (degrees[: block.num_dst] + 1)[:, None]
        h = model.layers[index].linear.double()(a @ h + own)
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
    model = GCN(hidden=16, dropout=0.0).build(num_features=20, num_classes=5)
    inputs = load(graph, model, batch, fused=fused)
    check_against(model, batch, inputs, lambda model: dense(graph, batch, adjacency, model))


def test_a_layer_by_hand(tiny_graph: Graph, load: Callable[..., Inputs]) -> None:
    # Vertex 0 (degree 2) <- 1 (degree 1), 2 (degree 2); vertex 3 has no neighbours.
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([0, 3]), 0)
    model = GCN(num_layers=1).build(num_features=2, num_classes=2)
    with torch.no_grad():
        model.layers[0].linear.weight.copy_(torch.eye(2))
    logits = model(batch, load(tiny_graph, model, batch, fused=True))
    first = 0 / 3 + 1 / (3 * 2) ** 0.5 + 2 / 3
    torch.testing.assert_close(logits, torch.tensor([[first, 10 * first], [3.0, 30.0]]))


def test_a_sampled_sum_has_the_full_sum_as_expectation(
    random_graph: Callable[..., Graph], load: Callable[..., Inputs]
) -> None:
    graph = random_graph(100, 2000)
    model = GCN(num_layers=1).build(num_features=20, num_classes=5)
    seeds = np.arange(10)
    full = NeighborSampler(graph, fanouts=[-1]).sample(seeds, 0)
    sampler = NeighborSampler(graph, fanouts=[4])
    with torch.no_grad():
        exact = model(full, load(graph, model, full, fused=True))
        batches = (sampler.sample(seeds, step) for step in range(3000))
        sampled = torch.stack(
            [model(b, load(graph, model, b, fused=True, num_threads=1)) for b in batches]
        )
    deviation = sampled.std(0) / 3000**0.5
    assert ((sampled.mean(0) - exact).abs() <= 4.5 * deviation + 1e-5).all()


def dense_sage(
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
def test_against_a_dense_reference_sage(
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
    check_against(model, batch, inputs, lambda model: dense_sage(graph, batch, adjacency, model))


def test_a_layer_by_hand_sage(tiny_graph: Graph, load: Callable[..., Inputs]) -> None:
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


def dense_gin(
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
def test_against_a_dense_reference_gin(
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
    check_against(model, batch, inputs, lambda model: dense_gin(graph, batch, adjacency, model))


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
