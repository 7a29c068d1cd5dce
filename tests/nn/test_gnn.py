from itertools import cycle

import numpy as np
import own_layers
import pytest
import torch
from model_runs import gradients

from gnnscale.core.errors import ConfigError
from gnnscale.nn import APPNP, GAT, GCN, GIN, SGC, GATv2, GraphSAGE, functional
from gnnscale.nn.options import ModelConfig
from gnnscale.nn.scatter_gather import Custom
from gnnscale.sampling import LayerSampler, NeighborSampler

ALL: tuple[type[ModelConfig], ...] = (GCN, GraphSAGE, GIN, GAT, GATv2)


def build(config, num_classes=5, **options):
    return config(**({"hidden": 16} | options)).build(num_features=20, num_classes=num_classes)


def step(model, batch, inputs):
    """Return the logits and every parameter's gradient of one training step."""
    logits = model(batch, inputs)
    return [logits.detach(), *gradients(logits, model.parameters())]


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "stored"), [(GCN, torch.float32), (GraphSAGE, torch.bfloat16), (GIN, torch.uint8)]
)
def test_fused_load_aggregate_changes_nothing(random_graph, sample, load, config, stored):
    graph = random_graph(dtype=stored)
    batch = sample(graph)
    model = build(config, dropout=0.5)
    fused = load(graph, model, batch)
    gathered = load(graph, model, batch, fused=False)
    assert fused.aggregated
    assert not gathered.aggregated
    assert len(fused.x) == batch.blocks[0].num_dst
    assert len(gathered.x) == len(batch.input_vertices)
    for left, right in zip(step(model, batch, fused), step(model, batch, gathered), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("config", "fused", "splits"),
    [
        *((GCN(), True, True), (GraphSAGE(), True, True), (GIN(), True, False)),
        *((GAT(), False, False), (GATv2(), False, False), (SGC(), True, True)),
        (GraphSAGE(aggregator="pool"), False, False),
    ],
)
def test_options_say_what_the_first_layer_does(config, fused, splits):
    layer = config.build(num_features=20, num_classes=5).layer(0)
    assert config.aggregates_on_load == layer.aggregates_on_load == fused
    assert config.splits_columns == layer.splits_columns == splits


@pytest.mark.parametrize(("config", "jumping"), [*zip(ALL, cycle(["cat", "none"]))])
def test_a_slice_of_one_row_is_normalized_by_running_statistics(tiny_graph, load, config, jumping):
    """One row has no variance, and torch refuses it. Nobody sends messages to vertex 3."""
    options = {"hidden": 8, "norm": "batch", "jumping": jumping, "dropout": 0.0}
    model = config(**options).build(num_features=2, num_classes=2)
    sampler = NeighborSampler(tiny_graph, fanouts=[3, 3])

    def trained(*seeds):
        batch = sampler.sample(np.array(seeds), 0)
        return step(model.train(), batch, load(tiny_graph, model, batch))

    def statistics():
        return {name: each.clone() for name, each in model.named_buffers()}

    trained(0, 1, 2, 4)
    before = statistics()
    logits, *grads = trained(3)
    assert all(torch.equal(each, before[name]) for name, each in statistics().items())
    batch = sampler.sample(np.array([3]), 0)
    assert torch.equal(logits, model.eval()(batch, load(tiny_graph, model, batch)))
    named = dict(zip(dict(model.named_parameters()), grads, strict=True))
    assert named["norms.0.bias"].abs().sum() > 0
    trained(0, 1)
    assert not all(torch.equal(each, before[name]) for name, each in statistics().items())


@pytest.mark.parametrize("config", [*ALL, APPNP])
def test_input_features_are_dropped_by_vertex(random_graph, load, config):
    """A slice drops what the whole mini-batch does, of rows as they are; evaluation drops none."""
    graph = random_graph()
    model = build(config, dropout=0.0, input_dropout=0.5)
    plain = build(config, dropout=0.0)
    plain.load_state_dict(model.state_dict())
    sampler = NeighborSampler(graph, fanouts=[5, 3], seed=3)
    seeds = np.arange(0, 90, 2)
    batches = [sampler.sample(part, 7) for part in (seeds, *np.array_split(seeds, 4))]
    loaded = [load(graph, model, batch) for batch in batches]
    assert not any(each.aggregated for each in loaded)
    rows = loaded[0].x.clone()
    whole, *parts = (model(batch, each) for batch, each in zip(batches, loaded, strict=True))
    torch.testing.assert_close(torch.cat(parts), whole)
    assert torch.equal(loaded[0].x, rows), "rows belong to who loaded them"
    assert not torch.allclose(whole, plain(batches[0], loaded[0]))
    later = sampler.sample(seeds, 8)
    assert not torch.allclose(whole, model(later, load(graph, model, later)))
    kept = model.eval()(batches[0], loaded[0])
    assert torch.equal(kept, plain.eval()(batches[0], loaded[0]))
    assert not model.layer_costs[0].aggregates_on_load


def test_input_dropout_scales_what_it_leaves(random_graph):
    batch = NeighborSampler(random_graph(), fanouts=[5]).sample(np.arange(40), 3)
    x = torch.full((len(batch.input_vertices), 20), -2.0, requires_grad=True)
    out = functional.input_dropout(x, 0.25, batch)
    assert out.min().item() == pytest.approx(-2 / 0.75)
    assert ((out == 0) | (out == out.min())).all()
    assert (out == 0).float().mean() == pytest.approx(0.25, abs=0.03)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach() / -2)
    # Another stream than that of hidden rows.
    act = functional.input_activation(0.25, batch)
    ones = torch.ones_like(x)
    act.apply_(ones.detach())
    assert not torch.equal(ones > 0, out < 0)


@pytest.mark.parametrize("config", ALL)
def test_a_step_repeats_bit_for_bit_and_dropout_follows_the_step(random_graph, load, config):
    graph = random_graph()
    model = build(config, dropout=0.5)
    sampler = NeighborSampler(graph, fanouts=[-1, -1])
    batches = [sampler.sample(np.arange(20), step) for step in (0, 0, 1)]
    inputs = [load(graph, model, batch) for batch in batches]
    first, again, other = (step(model, b, i) for b, i in zip(batches, inputs, strict=True))
    assert all(torch.equal(left, right) for left, right in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    model.eval()
    first, _, other = (model(b, i) for b, i in zip(batches, inputs, strict=True))
    assert torch.equal(first, other)


@pytest.mark.parametrize("config", ALL)
def test_hidden_rows_alone_are_dropped(random_graph, load, config):
    """With one layer there are none: neither inputs nor attention have dropout."""
    graph = random_graph()
    for num_layers, fused in ((1, True), (2, False), (2, True)):
        model = build(config, dropout=0.5, num_layers=num_layers)
        batch = NeighborSampler(graph, fanouts=[-1] * num_layers).sample(np.arange(20), 0)
        inputs = load(graph, model, batch, fused=fused)
        trained = model.train()(batch, inputs)
        assert torch.equal(trained, model.eval()(batch, inputs)) == (num_layers == 1)


@pytest.mark.parametrize("config", ALL)
@pytest.mark.parametrize(("norm", "num_layers"), [("none", 2), ("layer", 2), ("none", 3)])
def test_slices_of_a_batch_have_its_logits_and_its_gradients(
    check_slices, config, norm, num_layers
):
    model = build(config, dropout=0.5, norm=norm, num_layers=num_layers)
    trained, evaluated = check_slices(model, 2e-6)
    assert (trained - evaluated).abs().max() > 0.01


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        *(GraphSAGE(hidden=16, dropout=0.0), GAT(hidden=16, dropout=0.0, num_heads=4)),
        *(GATv2(hidden=16, dropout=0.0), GraphSAGE(hidden=16, dropout=0.0, aggregator="pool")),
        *(SGC(), APPNP(hidden=16, dropout=0.0), GCN(hidden=16, dropout=0.0, jumping="max")),
        Custom(functions=own_layers.MaxPooling, hidden=16, dropout=0.0),
    ],
)
def test_bfloat16_stays_close_and_has_gradients(random_graph, sample, load, config):
    graph = random_graph()
    batch = sample(graph)
    model = config.build(num_features=20, num_classes=5)
    types = torch.float32, torch.bfloat16
    exact, low = (model(batch, load(graph, model, batch, dtype=dtype)) for dtype in types)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))
    low.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("config", ALL)
def test_no_seeds_no_logits(random_graph, load, config):
    graph = random_graph()
    model = build(config)
    for sampler in NeighborSampler(graph, fanouts=[3, 3]), LayerSampler(graph, layer_sizes=[3, 3]):
        batch = sampler.sample(np.array([], np.int64), 0)
        for fused in (False, True):
            assert model(batch, load(graph, model, batch, fused=fused)).shape == (0, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, r"model\.hidden=0: must be at least 1"),
        ({"num_layers": 0}, r"model\.num_layers=0: must be at least 1"),
        ({"dropout": 1.0}, r"model\.dropout=1\.0: expected at least 0 and below 1"),
        ({"norm": "batches"}, r"model\.norm=batches: allowed are none, batch, layer"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        GraphSAGE(**options)
