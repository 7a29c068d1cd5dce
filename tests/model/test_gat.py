from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.model import GAT, GNN, Inputs
from gnnscale.model.gat import with_self_edges
from gnnscale.sampler import Block, MiniBatch, NeighborSampler


def dense(
    graph: Graph, batch: MiniBatch, adjacency: Callable[[Block], torch.Tensor], model: GNN
) -> torch.Tensor:
    h = torch.from_numpy(graph.features[batch.input_vertices]).double()
    for index, block in enumerate(batch.blocks):
        layer = model.layers[index].double()
        z = layer.linear(h).view(-1, layer.num_heads, layer.width)
        src = (z * layer.attention_src).sum(-1)
        dst = (z * layer.attention_dst).sum(-1)[: block.num_dst]
        edges = adjacency(block) + torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
        scores = functional.leaky_relu(dst[:, None] + src, 0.2)
        # An edge that is there twice, or stands for several, counts so often in the softmax.
        alpha = (scores + edges.log()[..., None]).softmax(1)
        out = torch.einsum("ijk,jkf->ikf", alpha, z)
        h = (out.mean(1) if layer.average else out.flatten(1)) + layer.bias
        h = h.relu() if index + 1 < len(batch.blocks) else h
    return h


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_against_a_dense_reference(
    random_graph: Callable[..., Graph],
    sample: Callable[[Graph], MiniBatch],
    adjacency: Any,
    load: Callable[..., Inputs],
    check_against: Callable[..., None],
    num_heads: int,
    fused: bool,
) -> None:
    graph = random_graph()
    batch = sample(graph)
    config = GAT(hidden=16, dropout=0.0, num_heads=num_heads)
    model = config.build(num_features=20, num_classes=5)
    inputs = load(graph, model, batch, fused=fused)
    check_against(model, batch, inputs, lambda model: dense(graph, batch, adjacency, model))


def test_bfloat16_stays_close_and_has_gradients(
    random_graph: Callable[..., Graph], sample: Callable[[Graph], MiniBatch], load: Any
) -> None:
    graph = random_graph()
    batch = sample(graph)
    model = GAT(hidden=16, dropout=0.0, num_heads=4).build(num_features=20, num_classes=5)
    exact = model(batch, load(graph, model, batch, fused=True))
    low = model(batch, load(graph, model, batch, fused=True, dtype=torch.bfloat16))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))
    low.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_a_vertex_without_neighbours_attends_to_itself(
    tiny_graph: Graph, load: Callable[..., Inputs]
) -> None:
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([3]), 0)
    model = GAT(num_layers=1, num_heads=2, hidden=2).build(num_features=2, num_classes=3)
    layer = model.layers[0]
    z = layer.linear(torch.tensor([[3.0, 30.0]])).view(2, 3)
    logits = model(batch, load(tiny_graph, model, batch, fused=True))
    torch.testing.assert_close(logits, z.mean(0, keepdim=True))


def test_self_edges_come_first() -> None:
    block = Block(
        indptr=np.array([0, 2, 2, 3]),
        indices=np.array([1, 3, 0], np.int32),
        num_src=4,
        importance=np.float32([2, 3, 4]),
    )
    own = with_self_edges(block)
    assert own.indptr.tolist() == [0, 3, 4, 6]
    assert own.indices.tolist() == [0, 1, 3, 1, 2, 0]
    assert own.indices.dtype == np.int32
    assert own.importance.tolist() == [1, 2, 3, 1, 1, 4]
    assert own.num_src == 4


@pytest.mark.parametrize("num_heads", [0, 3, -2])
def test_heads_that_do_not_fit(num_heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"model\.num_heads={num_heads}: must divide"):
        GAT(hidden=16, num_heads=num_heads)
