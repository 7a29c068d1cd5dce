import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import assert_near, edge_index, logits_of

from gnnscale.backend.feature_loading import in_degrees
from gnnscale.backend.fpga.lowering import coefficients
from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays
from gnnscale.graph import EdgeData, Graph
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.memory_plan import MemoryLimits
from gnnscale.nn import GAT, GCN, GIN, GNN, GraphSAGE, ModelConfig
from gnnscale.nn.adapters import to_dgl_blocks
from gnnscale.nn.conv.linear import warn_unweighted
from gnnscale.sampling import LayerSampler, NeighborSampler, WeightedSampler
from gnnscale.training.p3.split_run import pack, unpack

SIZE, NUM_EDGES = 200, 2500
LINEAR = (GCN, GraphSAGE, GIN)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Random edges without loops, some repeated; a fifth of them weighs nothing."""
    generator = np.random.default_rng(1)
    ends = generator.random((2, NUM_EDGES)) * generator.random((2, NUM_EDGES))
    src, dst = (ends * SIZE).astype(np.int64)
    dst[src == dst] += 1
    weights = generator.exponential(2.0, NUM_EDGES) * (generator.random(NUM_EDGES) < 0.8)
    features = generator.standard_normal((SIZE, 20), np.float32)
    labels = generator.integers(0, 5, SIZE)
    return from_arrays((src, dst % SIZE), features, labels, edge_weights=weights)


def weight_matrix(graph: Graph) -> torch.Tensor:
    """The weights as a dense float64 matrix, destination by source."""
    matrix, at = torch.zeros(SIZE, SIZE, dtype=torch.float64), tuple(edge_index(graph).flip(0))
    return matrix.index_put(at, torch.from_numpy(graph.edge_weights).double(), accumulate=True)


def by_hand(model: GNN, graph: Graph) -> torch.Tensor:
    """Logits of all vertices from dense matrices in float64; leaves the model in float64."""
    w, h = weight_matrix(graph), torch.from_numpy(graph.features).double()
    for index, each in enumerate(model.layers):
        layer: Any = each.double()
        if isinstance(model, GNN) and hasattr(layer, "first"):
            h = layer.second(layer.first(h + w @ h).relu())
        elif layer.linear.in_features == 2 * h.shape[1]:
            mean = w @ h / w.sum(1, keepdim=True).clamp(min=1e-30)
            h = layer.linear(torch.cat([h, mean], 1))
        else:
            own = w + torch.eye(SIZE)
            root = own.sum(1).rsqrt()
            h = layer.linear(root[:, None] * own * root @ h)
        h = h.relu() if index + 1 < len(model.layers) else h
    return h


def build(config: type[ModelConfig], num_classes: int = 5, **options: Any) -> GNN:
    torch.manual_seed(0)
    made = config(**({"hidden": 16, "dropout": 0.0} | options))
    return made.build(num_features=20, num_classes=num_classes)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("config", LINEAR)
def test_all_neighbours_agree_with_dense_matrices(graph, config, fused) -> None:
    model, vertices = build(config), np.random.default_rng(0).permutation(SIZE)[:90]
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(vertices, 0)
    factors, parameters = torch.randn(90, 5, dtype=torch.float64), list(model.parameters())
    found = logits_of(model, graph, batch, aggregates=fused)
    found_gradients = torch.autograd.grad((found.double() * factors).sum(), parameters)
    expected = by_hand(model, graph)[vertices]
    assert_near(found, expected)
    expected_gradients = torch.autograd.grad((expected * factors).sum(), list(model.parameters()))
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert_near(one, other, rtol=1e-4)


def test_gcn_is_that_of_pyg(graph: Graph) -> None:
    nn = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")
    model = build(GCN)
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(np.arange(SIZE), 0)
    h, weights = torch.from_numpy(graph.features), torch.from_numpy(graph.edge_weights)
    for index, layer in enumerate(model.layers):
        conv = nn.GCNConv(layer.linear.in_features, layer.linear.out_features)
        conv.lin.weight, conv.bias = layer.linear.weight, layer.linear.bias
        h = conv(h, edge_index(graph), weights)
        h = h.relu() if index == 0 else h
    assert_near(logits_of(model, graph, batch), h.double())


@pytest.mark.parametrize("config", LINEAR)
def test_exact_inference_uses_the_weights(graph: Graph, config: type[ModelConfig]) -> None:
    # Chunks of consecutive vertices, and of others; rows in memory, in a file; few classes, for
    # which the product comes before the aggregation.
    for num_classes in (5, 3):
        model = build(config, num_classes, hidden=64 if num_classes == 3 else 16)
        found = [
            LayerwiseInference(model, graph, num_threads=2, limits=limits).logits(vertices)
            for limits in (MemoryLimits(), replace(MemoryLimits(), hidden_bytes=0))
            for vertices in (None, np.arange(SIZE)[::-1].copy())
        ]
        expected = by_hand(model, graph)
        for index, logits in enumerate(found):
            assert_near(logits, expected.flip(0) if index % 2 else expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "sampler"),
    [
        *((config, NeighborSampler) for config in (GCN, GIN)),
        *((config, LayerSampler) for config in LINEAR),
        *((config, WeightedSampler) for config in LINEAR),
    ],
)
def test_a_sampled_aggregate_has_the_full_one_as_expectation(graph, config, sampler) -> None:
    model = build(config, num_layers=1)
    if config is GIN:  # its perceptron is not linear
        torch.nn.init.constant_(model.layer(0).first.bias, 1e3)
    how = {LayerSampler: {"layer_sizes": [40]}, WeightedSampler: {"fanouts": [4], "replace": True}}
    drawn = sampler(graph, **how.get(sampler, {"fanouts": [4]}), seed=2)
    with torch.no_grad():
        batches = (drawn.sample(np.arange(20), step) for step in range(300))
        found = torch.stack([logits_of(model, graph, batch) for batch in batches]).double()
    mean, deviation = found.mean(0), found.std(0) / 300**0.5
    full = NeighborSampler(graph, fanouts=[-1]).sample(np.arange(20), 0)
    exact = logits_of(model, graph, full).detach().double()
    assert ((mean - exact).abs() <= 4.5 * deviation + 1e-5 * exact.abs().max()).all()
    assert (deviation > 0).any()


def test_sampled_neighbours_are_averaged_by_weight(graph: Graph) -> None:
    layer = GraphSAGE().layer(20, 3, last=True)
    batch = NeighborSampler(graph, fanouts=[3]).sample(np.arange(50), 0)
    block, x = batch.blocks[0], torch.from_numpy(graph.features[batch.input_vertices])
    found = layer.prepare(x, block, None, None)[:, 20:]
    for dst in range(50):
        edges = slice(block.indptr[dst], block.indptr[dst + 1])
        w = torch.from_numpy(block.edge_weights[edges])
        rows = x[block.indices[edges]]
        mean = (w[:, None] * rows).sum(0) / w.sum() if w.sum() > 0 else torch.zeros(20)
        torch.testing.assert_close(found[dst], mean, rtol=1e-5, atol=1e-6)


def sampled_logits(model: GNN, graph: Graph, fanouts: list[int]) -> torch.Tensor:
    batch = NeighborSampler(graph, fanouts=fanouts).sample(np.arange(60), 1)
    return logits_of(model, graph, batch)


def test_equal_weights_are_as_none(graph: Graph) -> None:
    ones = replace(graph, edges=EdgeData(weights=np.ones(NUM_EDGES, np.float32)))
    none = replace(graph, edges=EdgeData())
    for config in LINEAR:
        model = build(config)
        for fanouts in ([-1, -1], [4, 3]):
            one, other = (sampled_logits(model, each, fanouts) for each in (ones, none))
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_attention_counts_all_alike_and_says_so_once(graph, caplog) -> None:
    warn_unweighted.cache_clear()
    model = build(GAT)
    with caplog.at_level(logging.WARNING):
        plain = sampled_logits(model, replace(graph, edges=EdgeData()), [-1, -1])
        assert torch.equal(sampled_logits(model, graph, [-1, -1]), plain)
    assert caplog.messages == ["model=gat ignores edge weights: all edges count the same"]


@pytest.mark.parametrize("make", [NeighborSampler, WeightedSampler, LayerSampler])
def test_blocks_that_devices_send_each_other_keep_weights(graph: Graph, make: Any) -> None:
    how = {"layer_sizes": [30]} if make is LayerSampler else {"fanouts": [4]}
    batch = make(graph, **how).sample(np.arange(40, dtype=np.int32), 0)
    block, found = batch.blocks[0], unpack(pack(batch), np.dtype(np.int32))
    for config in LINEAR:
        layer: Any = config().layer(20, 3, last=False)
        degrees = in_degrees(graph, batch.input_vertices)
        one, other = (layer.aggregation(each, degrees) for each in (block, found.block))
        for name in ("weights", "dst_scale", "self_scale"):
            np.testing.assert_equal(getattr(one, name), getattr(other, name))
        # An FPGA is given the same coefficients.
        given = coefficients(layer, block, degrees)
        assert given.weights is one.weights or np.array_equal(given.weights, one.weights)


def test_dgl_has_weights_as_data_of_edges(graph: Graph) -> None:
    pytest.importorskip("dgl", reason="DGL is not installed")
    batch = NeighborSampler(graph, fanouts=[3, 2]).sample(np.arange(40), 0)
    for block, made in zip(batch.blocks, to_dgl_blocks(batch), strict=True):
        assert made.edata["weight"].tolist() == block.edge_weights.tolist()


def test_weights_count_as_bytes_of_a_batch(graph: Graph) -> None:
    sampler = NeighborSampler(graph, fanouts=[3])
    block = sampler.sample(np.arange(10), 0).blocks[0]
    bare = replace(block, edge_weights=None, weight_sums=None)
    assert block.num_bytes == bare.num_bytes + 4 * (block.num_edges + block.num_src)


def test_a_part_knows_sums_of_the_lists_that_it_has(graph: Graph) -> None:
    degrees = np.diff(graph.indptr)
    (block,) = NeighborSampler(graph, fanouts=[3]).sample(np.arange(50), 0).blocks
    listed = np.arange(SIZE) < 50
    kept = np.repeat(listed, degrees)
    part = replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(np.where(listed, degrees, 0))]),
        indices=graph.indices[kept],
        degrees=degrees.astype(np.uint32),
        edges=EdgeData(weights=graph.edge_weights[kept]),
    )
    batch = NeighborSampler(part, fanouts=[3]).sample(np.arange(50), 0)
    assert np.array_equal(batch.blocks[0].weight_sums[:50], block.weight_sums[:50])
    for config in (GraphSAGE, GIN):
        model = build(config, num_layers=1)
        whole = NeighborSampler(graph, fanouts=[3]).sample(np.arange(50), 0)
        assert torch.equal(logits_of(model, part, batch), logits_of(model, graph, whole))
    with pytest.raises(GraphError, match="appnp: expected the weights of all in-edges"):
        logits_of(build(GCN, num_layers=1), part, batch)
