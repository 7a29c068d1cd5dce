from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_runs import assert_near, logits_of, weighted_sum
from typed_batches import (
    SCHEMA,
    SEEDS,
    random_rows,
    schemas,
    typed_inputs,
    typed_sampler,
    weighted,
)

from gnnscale.core import Traffic
from gnnscale.features import HostFeatures
from gnnscale.features.typed import TypedStore
from gnnscale.nn import HGT, RGAT, RGCN, RSAGE, Inputs
from gnnscale.sampling import NeighborSampler, TypedSampler

WIDTHS = (5, 6, 7, 3)
MODELS = {
    "rgcn": RGCN(hidden=16, norm="layer", num_bases=3),
    "rsage": RSAGE(hidden=16, residual=True),
    "rgat": RGAT(hidden=16, num_heads=4, norm="layer", residual=True),
    "hgt": HGT(hidden=16, num_heads=4),
    "normalized": RSAGE(hidden=16, encoder="normalized"),
}
all_models = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


def build(config, num_classes=4):
    torch.manual_seed(1)
    return config.build_typed(schema=SCHEMA, widths=WIDTHS, num_classes=num_classes)


def run(model, batch, **changed):
    inputs = typed_inputs(SCHEMA, WIDTHS, batch)
    return model(batch, Inputs(**{**vars(inputs), **changed}))


def grads(model, out):
    of = list(model.parameters())
    return torch.autograd.grad(weighted_sum(out), of, materialize_grads=True)


@all_models
def test_dropout_is_that_of_the_vertex(config) -> None:
    """Seeds in any batch of a step have their logits, and the gradients of parts add up."""
    sampler, model = typed_sampler(SCHEMA, [3, 2]), build(config)
    whole = run(model, sampler.sample(SEEDS, 7))
    parts = [run(model, sampler.sample(part, 7)) for part in (SEEDS[:3], SEEDS[3:])]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)
    for one, other in zip(grads(model, torch.cat(parts)), grads(model, whole), strict=True):
        assert_near(one, other, atol=1e-4)
    evaluated = run(model.eval(), sampler.sample(SEEDS, 7))
    assert not torch.allclose(whole, evaluated)


@all_models
def test_outputs_are_in_the_order_of_the_seeds(config) -> None:
    model = build(config).eval()
    sampler = typed_sampler(SCHEMA, [-1, -1])
    batch = sampler.sample(SEEDS[::-1].copy(), 0)
    single = [run(model, sampler.sample(np.array([seed]), 0)) for seed in batch.seeds]
    assert_near(run(model, batch), torch.cat(single))


@all_models
def test_layers_of_one_type_at_a_time_give_the_logits(config) -> None:
    """Exact inference: blocks with all neighbors of the destinations of one type."""
    model = build(config).eval()
    lists, every = typed_sampler(SCHEMA, [-1]), np.arange(SCHEMA.num_vertices)
    with torch.no_grad():
        expected = run(model, typed_sampler(SCHEMA, [-1, -1]).sample(every, 0))
        rows = [model.encode(number, x) for number, x in enumerate(random_rows(SCHEMA, WIDTHS))]
        for index in range(2):
            new = []
            for number in range(len(WIDTHS)):
                batch = lists.sample(every[SCHEMA.vertices(number)], 0)
                read = [x[batch.vertices(t) - SCHEMA.vertices(t).start] for t, x in enumerate(rows)]
                out = model.infer_layer(index, read, batch.blocks[0])
                new.append(out[number])
                assert sum(map(len, out)) == len(out[number])
            rows = new
    assert_near(torch.cat(rows), expected)


@all_models
def test_batches_without_seeds_have_gradients_of_zero(config) -> None:
    model = build(config)
    out = run(model, typed_sampler(SCHEMA, [3, 2]).sample(SEEDS[:0], 0))
    assert out.shape == (0, 4)
    assert all(not gradient.any() for gradient in grads(model, out))


@all_models
def test_a_graph_without_types_has_one_type(config, random_graph, load) -> None:
    graph = random_graph()
    model = config.build(num_features=20, num_classes=5).eval()
    seeds = np.arange(0, 60, 2)
    plain = NeighborSampler(graph, fanouts=[4, 3], seed=1).sample(seeds, 2)
    typed = TypedSampler(graph, fanouts=[4, 3], seed=1).sample(seeds, 2)
    rows = (torch.from_numpy(graph.features[typed.input_vertices]),)
    expected = model(typed, Inputs(x=torch.empty(0, 0), aggregated=False, rows=rows))
    assert torch.equal(logits_of(model, graph, plain), expected)


@pytest.mark.parametrize("config", [RGCN(hidden=16), RSAGE(hidden=16, residual=True)])
def test_rows_with_gradients_are_encoded_first(config) -> None:
    batch, model = typed_sampler(SCHEMA, [1, 1]).sample(SEEDS, 0), build(config).eval()
    rows = tuple(x.requires_grad_() for x in random_rows(SCHEMA, WIDTHS, batch))
    assert model.layers[0].encodes_means(WIDTHS, batch.blocks[0]) is False
    model.layers[0].encodes_means = lambda *_: True
    one, other = run(model, batch), run(model, batch, rows=rows)
    assert_near(one, other)
    gradients = torch.autograd.grad(other.sum(), rows, materialize_grads=True)
    assert [bool(gradient.any()) for gradient in gradients] == [True, True, True, False]


@pytest.mark.parametrize("config", [RGCN(hidden=16, num_bases=2), RSAGE(hidden=16, residual=True)])
@settings(max_examples=25)
@given(schemas(), st.data())
def test_means_are_computed_while_rows_are_read(config, schema, data) -> None:
    """Logits, gradients and traffic are equal, also of types whose rows are read first."""
    tables, stores = random_rows(schema, WIDTHS[: len(schema.vertex_types)]), []
    for rows in tables:
        dtype = data.draw(st.sampled_from(["float16", "float32"]))
        from_disk = data.draw(st.booleans())
        stores.append(HostFeatures(rows.numpy().astype(dtype), dtype, from_disk=from_disk))
    store = TypedStore(schema, stores)
    seeds = np.arange(0, schema.num_vertices, 2)
    batch = typed_sampler(schema, [3, 2]).sample(seeds, 0)
    if data.draw(st.booleans()):
        batch = replace(batch, blocks=tuple(map(weighted, batch.blocks)))
    widths = [rows.shape[1] for rows in tables]
    torch.manual_seed(1)
    model = config.build_typed(schema=schema, widths=widths, num_classes=4)
    model.layers[0].encodes_means = lambda *_: True
    options = {"dtype": torch.float32, "num_threads": 2}
    fused, rows = (model.load(store, batch, None, aggregates=a, **options) for a in (True, False))
    assert (fused.aggregated, rows.aggregated) == (True, False)
    assert [len(part) for part in fused.rows] == list(batch.blocks[0].dst_sizes)
    assert (fused.traffic, fused.type_reads) == (rows.traffic, rows.type_reads)
    outputs = [model(batch, inputs) for inputs in (fused, rows)]
    assert torch.equal(*outputs)
    for one, other in zip(*(grads(model, out) for out in outputs), strict=True):
        assert torch.equal(one, other)


def test_batch_norm_has_statistics_of_each_vertex_type() -> None:
    model = build(RGCN(hidden=16, norm="batch"))
    run(model, typed_sampler(SCHEMA, [3, 2]).sample(SEEDS, 0))
    means = [norm.running_mean for norm in model.norms[0]]
    assert [bool(mean.any()) for mean in means] == [True, True, True, False]
    assert all(not torch.equal(one, other) for one, other in pairwise(means))


def test_numbers_of_parameters() -> None:
    """Encoders, then layers of 4 vertex types and 5 edge types, from 16 to 16 and to 4."""
    encoders = 16 * sum(WIDTHS) + 4 * 16
    expected = {
        RGCN(hidden=16): 9 * 16 * 20 + 20,
        RGCN(hidden=16, norm="layer"): 9 * 16 * 20 + 20 + 4 * 2 * 16,
        RSAGE(hidden=16): 9 * 16 * 20 + 4 * 20,
        # Heads are concatenated, then averaged: 4 of 4 features in both layers.
        # Own rows have weights for 5 edge types and the 2 vertex types at which none ends.
        RGAT(hidden=16, num_heads=4): 7 * 17 * 20 + 2 * 5 * (2 * 16 * 16 + 2 * 16),
        HGT(hidden=16, num_heads=4): 2 * (4 * (4 * 17 * 16 + 1) + 5 * (2 * 4 * 16 + 4))
        + 4 * 17 * 4,
    }
    for config, number in expected.items():
        model = build(config)
        assert sum(parameter.numel() for parameter in model.parameters()) == encoders + number
        assert model.widths == (16, 16, 4)


def test_rows_of_each_type_are_loaded() -> None:
    model = build(RGCN(hidden=16))
    batch = typed_sampler(SCHEMA, [3, 2]).sample(SEEDS, 0)
    rows, traffic = typed_inputs(SCHEMA, WIDTHS, batch).rows, (Traffic(),) * len(WIDTHS)
    store = SimpleNamespace(gather_types=lambda *_, dtype, num_threads: (rows, traffic))
    options = {"aggregates": True, "dtype": torch.float32, "num_threads": 1}
    inputs = model.load(store, batch, None, **options)
    assert inputs.rows is rows
    assert inputs.num_bytes == 4 * sum(x.numel() for x in rows)
