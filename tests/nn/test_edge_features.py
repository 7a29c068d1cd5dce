"""Models over graphs whose edges have features: GAT and GINE beside float64 and beside PyG."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import assert_near, edge_index, logits_of
from torch import nn
from torch.nn import functional

from gnnscale.backend.feature_loading import FeatureLoader, edge_attr
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import from_arrays
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.memory_plan import MemoryLimits
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE
from gnnscale.nn.conv.gat import GATv2Layer
from gnnscale.nn.conv.gine import GINELayer
from gnnscale.nn.options import GATv2
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.sampling import LayerSampler, NeighborSampler, WeightedSampler

SIZE, NUM_EDGES, WIDTH, EDGE_WIDTH = 150, 1800, 12, 5
OPTIONS: dict[Any, dict[str, Any]] = {GAT: {"num_heads": 4}, GATv2: {"num_heads": 2}, GIN: {}}
EXACT = {"fanouts": [-1, -1]}


def random_ends():
    """Random edges without loops, some repeated; some vertices have no in-edge."""
    generator = np.random.default_rng(1)
    src, dst = (generator.random((2, NUM_EDGES)) ** 2 * SIZE).astype(np.int64)
    return src[src != dst], dst[src != dst]


def make_graph(**fields):
    generator = np.random.default_rng(2)
    src, dst = random_ends()
    return from_arrays(
        (src, dst),
        generator.standard_normal((SIZE, WIDTH), np.float32),
        generator.integers(0, 3, SIZE),
        train_idx=np.arange(SIZE),
        edge_features=generator.standard_normal((len(src), EDGE_WIDTH), np.float32),
        **fields,
    )


@pytest.fixture(scope="module")
def graph():
    return make_graph()


@pytest.fixture(scope="module")
def weighted():
    return make_graph(edge_weights=np.random.default_rng(3).exponential(2.0, len(random_ends()[0])))


def build(config, **options):
    torch.manual_seed(0)
    made = config(**({"hidden": 16, "dropout": 0.0} | OPTIONS.get(config, {}) | options))
    return made.build(num_features=WIDTH, num_classes=3, num_edge_features=EDGE_WIDTH)


def attention(layer, h, block, attr):
    """GAT by the equations, edge by edge, with a loop that has the mean of the in-edges."""
    src, dst = edge_index(block)
    count = torch.zeros(block.num_dst).index_add(0, dst, torch.ones(len(dst))).clamp(min=1)
    mean = torch.zeros(block.num_dst, attr.shape[1], dtype=attr.dtype).index_add(0, dst, attr)
    own = torch.arange(block.num_dst)
    src, dst = torch.cat([src, own]), torch.cat([dst, own])
    attr = torch.cat([attr, mean / count[:, None]])
    heads = (layer.num_heads, layer.width)
    z, e = layer.linear(h).view(-1, *heads), layer.edge_linear(attr).view(-1, *heads)
    if isinstance(layer, GATv2Layer):
        pairs = layer.linear_dst(h[: block.num_dst]).view(-1, *heads)[dst] + z[src] + e
        scores = (layer.attention * functional.leaky_relu(pairs, 0.2)).sum(-1).exp()
    else:
        parts = layer.attention_src * z[src] + layer.attention_dst * z[dst]
        parts = parts + layer.attention_edge * e
        scores = functional.leaky_relu(parts.sum(-1), 0.2).exp()
    total = torch.zeros(block.num_dst, heads[0], dtype=h.dtype).index_add(0, dst, scores)
    alpha = (scores / total[dst])[..., None]
    out = torch.zeros(block.num_dst, *heads, dtype=h.dtype).index_add(0, dst, alpha * z[src])
    return (out.mean(1) if layer.average else out.flatten(1)) + layer.bias


def perceptron(layer, h, block, attr, scale):
    """GINE by the equation, edge by edge."""
    src, dst = edge_index(block)
    messages = (h[src] + layer.edge_linear(attr)).relu()
    if block.edge_weights is not None:
        messages = messages * torch.from_numpy(block.edge_weights).double()[:, None]
    sums = torch.zeros(block.num_dst, h.shape[1], dtype=h.dtype).index_add(0, dst, messages)
    return layer.second(layer.first(h[: block.num_dst] + scale[:, None] * sums).relu())


def by_hand(model, graph, batch):
    """The seeds' logits in float64; leaves the model in float64."""
    h = torch.from_numpy(graph.features[batch.input_vertices]).double()
    degrees = np.diff(graph.indptr)[batch.input_vertices]
    for index, (each, block) in enumerate(zip(model.layers, batch.blocks, strict=True)):
        attr = torch.from_numpy(graph.edge_features[block.edge_rows]).double()
        layer = each.double()
        if isinstance(layer, GINELayer):
            whole = degrees[: block.num_dst]
            if block.edge_weights is None and block.weight_sums is not None:
                whole = block.weight_sums[: block.num_dst]
            scale = torch.from_numpy(whole / np.maximum(np.diff(block.indptr), 1)).double()
            h = perceptron(layer, h, block, attr, scale)
        else:
            h = attention(layer, h, block, attr)
        h = h.relu() if index + 1 < len(model.layers) else h
    return h


@pytest.mark.parametrize(("fanouts", "num_threads"), [([-1, -1], 1), ([6, 4], 2)])
@pytest.mark.parametrize("config", OPTIONS)
def test_logits_and_gradients_are_those_of_the_equations(graph, config, fanouts, num_threads):
    model, seeds = build(config), np.random.default_rng(0).permutation(SIZE)[:40]
    batch = NeighborSampler(graph, fanouts=fanouts, seed=4).sample(seeds, 2)
    factors = torch.randn(40, 3, dtype=torch.float64)
    found = logits_of(model, graph, batch, num_threads=num_threads)
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad((found * factors.float()).sum(), list(parameters.values()))
    expected = by_hand(model, graph, batch)
    assert_near(found, expected)
    wanted = torch.autograd.grad((expected * factors).sum(), list(model.parameters()))
    assert any("edge" in name for name in parameters)
    for one, other in zip(gradients, wanted, strict=True):
        assert one.abs().max() > 0
        assert_near(one, other)


@pytest.mark.parametrize("kind", [NeighborSampler, WeightedSampler])
def test_messages_of_gine_count_by_the_weights_of_edges(weighted, kind):
    model, seeds = build(GIN), np.arange(30)
    batch = kind(weighted, fanouts=[5, 3], seed=4).sample(seeds, 2)
    assert_near(logits_of(model, weighted, batch), by_hand(model, weighted, batch))


def test_an_edge_counts_by_its_importance():
    """Over many draws of a layer the mean of a vertex's sum is the sum over all neighbors."""
    graph, layer = make_graph(), GINELayer(WIDTH, 4, 4, edge_dim=EDGE_WIDTH)
    layer.first = layer.second = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.eye_(layer.first.weight)
    seeds, sums = np.arange(6), []
    for sizes, steps in (([SIZE], 1), ([60], 150)):
        sampler, found = LayerSampler(graph, layer_sizes=sizes, seed=3), torch.zeros(6, WIDTH)
        for step in range(steps):
            batch = sampler.sample(seeds, step)
            (block,) = batch.blocks
            block = replace(block, edge_attr=edge_attr(graph, block, num_threads=1))
            rows = torch.from_numpy(graph.features[batch.input_vertices]) + 5  # no ReLU cuts off
            degrees = np.diff(graph.indptr)[batch.input_vertices].astype(np.float32)
            found += layer.update(rows, block, degrees).detach() / steps
        sums.append(found)
    torch.testing.assert_close(sums[1], sums[0], rtol=0.05, atol=1.0)


def peer_of(layer, nn_of_pyg):
    """Return PyG's layer with the weights of ours."""
    if isinstance(layer, GINELayer):
        perceptron = nn.Sequential(layer.first, nn.ReLU(), layer.second)
        conv = nn_of_pyg.GINEConv(perceptron, edge_dim=EDGE_WIDTH)
        conv.lin = layer.edge_linear
        return conv
    heads = {"heads": layer.num_heads, "concat": not layer.average, "edge_dim": EDGE_WIDTH}
    if isinstance(layer, GATv2Layer):
        conv = nn_of_pyg.GATv2Conv(layer.linear.in_features, layer.width, **heads)
        conv.lin_l, conv.lin_r = layer.linear, layer.linear_dst
        conv.lin_edge.weight, conv.bias = layer.edge_linear.weight, layer.bias
        conv.att.data = layer.attention.detach()[None]
        return conv
    conv = nn_of_pyg.GATConv(layer.linear.in_features, layer.width, **heads)
    conv.lin.weight, conv.lin_edge.weight = layer.linear.weight, layer.edge_linear.weight
    conv.bias = layer.bias
    for name in ("src", "dst", "edge"):
        value = getattr(layer, f"attention_{name}").detach()[None]
        getattr(conv, f"att_{name}").data = value
    return conv


@pytest.mark.parametrize("config", OPTIONS)
def test_they_are_those_of_pyg(graph, config):
    peers = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")
    model = build(config)
    convs = [peer_of(layer, peers) for layer in model.layers]
    attr = torch.from_numpy(graph.edge_features[graph.edge_rows])
    h = torch.from_numpy(graph.features)
    for index, conv in enumerate(convs):
        h = conv(h, edge_index(graph), attr)
        h = h.relu() if index + 1 < len(convs) else h
    batch = NeighborSampler(graph, **EXACT).sample(np.arange(SIZE), 0)
    found = logits_of(model, graph, batch)
    assert_near(found, h)
    weights = [layer.edge_linear.weight for layer in model.layers]
    gradients = [torch.autograd.grad(each.square().mean(), weights) for each in (found, h)]
    for one, other in zip(*gradients, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("config", OPTIONS)
def test_exact_inference_and_plain_tensors_give_the_same(graph, config):
    model = build(config, num_layers=3, norm="layer").eval()
    batch = NeighborSampler(graph, fanouts=[-1] * 3).sample(np.arange(SIZE), 0)
    expected = logits_of(model, graph, batch)
    small = MemoryLimits(chunk_edges=100, hidden_bytes=0, stream_bytes=1 << 12)
    for limits in (MemoryLimits(), small):
        inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
        assert_near(inference.logits(), expected)
        assert_near(inference.logits(np.array([7, 3])), expected[[7, 3]])
    attr, ends = graph.edge_features[graph.edge_rows], edge_index(graph)
    x = torch.from_numpy(graph.features)
    assert_near(model(x, ends, edge_attr=torch.from_numpy(attr)), expected)
    for wrong, message in (
        (None, r"\[edges, 5\], got None"),
        (torch.zeros(9, 5), r"\[1.*, got \[9, 5\]"),
        (torch.zeros(9, 4), r"\[edges, 5\], got shape \[9, 4\]"),
    ):
        with pytest.raises(ConfigError, match=f"edge_attr: expected shape {message}"):
            model(x, ends, edge_attr=wrong)
    plain = GCN(hidden=4).build(num_features=WIDTH, num_classes=3)
    with pytest.raises(ConfigError, match="expected None, as the layers read none"):
        plain(x, ends, edge_attr=torch.from_numpy(attr))


def test_slices_of_a_large_block_sum_as_the_whole(graph, monkeypatch):
    model, batch = build(GIN).eval(), NeighborSampler(graph, **EXACT).sample(np.arange(SIZE), 0)
    expected = logits_of(model, graph, batch)
    monkeypatch.setattr("gnnscale.nn.conv.gine._SLICE_EDGES", 50)
    with torch.no_grad():
        assert torch.equal(logits_of(model, graph, batch), expected)


def test_rows_are_gathered_for_each_block_and_counted(graph):
    model, batch = build(GIN), NeighborSampler(graph, fanouts=[4, 3]).sample(np.arange(9), 0)
    inputs = FeatureLoader(graph, model, num_threads=2).load(batch)
    assert not inputs.aggregated
    for block, rows in zip(batch.blocks, inputs.edge_attr, strict=True):
        assert np.array_equal(rows, graph.edge_features[block.edge_rows])
        assert block.edge_attr is None
    assert inputs.edge_bytes == 4 * EDGE_WIDTH * batch.num_edges
    assert inputs.num_bytes == inputs.x.nbytes + inputs.edge_bytes
    size, load = equations.BatchSize.of(batch), unmeasured_workload(graph, model)
    assert work.edge_bytes(load, size) == inputs.edge_bytes
    assert work.transfer_bytes(load, size)[0] == inputs.num_bytes
    assert not load.aggregates_on_load
    with pytest.raises(GraphError, match="graph: its edges have no features, which the model"):
        FeatureLoader(graph.without_edge_features(), model, num_threads=2).load(batch)


@pytest.mark.parametrize("config", [GCN, GraphSAGE, GAT, GATv2, GIN])
def test_a_model_that_does_not_read_them_is_as_without(graph, config):
    unread = None if config in (GCN, GraphSAGE) else False
    options = config(hidden=16, edge_features=unread)
    assert options.graph_read(graph).edge_rows is None
    model = build(config, edge_features=unread)
    plain = NeighborSampler(graph.without_edge_features(), **EXACT).sample(np.arange(9), 0)
    batch = NeighborSampler(graph, **EXACT).sample(np.arange(9), 0)
    assert not model.uses_edge_features
    assert torch.equal(logits_of(model, graph, batch), logits_of(model, graph, plain))
    assert not FeatureLoader(graph, model, num_threads=1).load(batch).edge_attr
    # Weights that have nothing to do with edges are the first that are drawn.
    torch.manual_seed(0)
    first = config(hidden=16, **OPTIONS.get(config, {})).build(num_features=WIDTH, num_classes=3)
    assert first.state_dict().keys() == model.state_dict().keys()


def test_options_read_features_of_edges(graph):
    assert GAT().edge_width(5) == GAT(edge_features=True).edge_width(5) == 5
    assert GAT(edge_features=False).edge_width(5) == GCN().edge_width(5) == GAT().edge_width(0) == 0
    assert GAT().graph_read(graph) is graph
    message = "model.edge_features=true: expected a model .* edge features, got G"
    for config in (GCN, GraphSAGE):
        with pytest.raises(ConfigError, match=message):
            config(edge_features=True)


def test_bfloat16_rows(graph):
    batch = NeighborSampler(graph, **EXACT).sample(np.arange(9), 0)
    for model in map(build, OPTIONS):
        inputs = FeatureLoader(graph, model, num_threads=2).load(batch)
        found = model(batch, replace(inputs, x=inputs.x.bfloat16()))
        expected = model(batch, inputs)
        assert (found - expected).abs().max() < 0.05 * expected.abs().max()
