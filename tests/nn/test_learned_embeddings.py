"""Learned rows: what is read, and what gradient comes back, beside a plain tensor."""

import numpy as np
import pytest
import torch
from model_runs import weighted_sum

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, Inputs
from gnnscale.nn.learned_embeddings import LearnedEmbedding, LearnedFeatureStore
from gnnscale.nn.optim.update_rules import LazyAdam, PlainAdam


def learnt(graph, config, dtype=torch.float32):
    torch.manual_seed(0)
    model = config(hidden=8, dropout=0.0).build(num_features=20, num_classes=5)
    rows = LearnedEmbedding(torch.from_numpy(np.array(graph.features)), LazyAdam())
    store = LearnedFeatureStore(rows)
    loader = FeatureLoader(graph, model, num_threads=2, store=store, compute_dtype=dtype)
    return model, rows, loader


@pytest.mark.parametrize("config", [GCN, GraphSAGE, GIN, GAT])
def test_gradients_are_those_of_a_plain_tensor(random_graph, sample, config):
    graph = random_graph()
    batch = sample(graph)
    model, rows, loader = learnt(graph, config)
    inputs = loader.load(batch)
    assert inputs.aggregated == (config is not GAT)
    out = model(batch, inputs)
    weighted_sum(out).backward()
    vertices, gradient = rows.gradient
    x = torch.from_numpy(graph.features[batch.input_vertices]).requires_grad_()
    plain = model(batch, Inputs(x=x, aggregated=False, degrees=inputs.degrees))
    weighted_sum(plain).backward()
    assert np.array_equal(vertices, batch.input_vertices)
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(gradient.total(torch.float32, num_threads=1), x.grad)
    assert rows.weight.grad is None


def test_rows_of_a_step_alone_are_updated(random_graph, sample):
    graph = random_graph()
    batch = sample(graph)
    model, rows, loader = learnt(graph, GraphSAGE)
    model.vertex_rows = rows
    before = rows.weight.clone()
    optimizer = PlainAdam(model.parameters(), lr=0.01)
    rows.update(optimizer)  # nothing was read
    assert torch.equal(rows.weight, before)
    model(batch, loader.load(batch)).square().sum().backward()
    rows.update(optimizer)
    changed = (rows.weight != before).any(dim=1).numpy()
    assert changed[batch.seeds].all()
    assert not np.delete(changed, batch.input_vertices).any()
    assert rows.gradient is None
    # Weights alone are summed over devices, and a checkpoint has both.
    assert not any(each is rows.weight for each in model.shared_parameters)
    assert "vertex_rows.weight" in model.state_dict()


def test_the_rate_is_that_of_the_optimizer_by_a_factor(random_graph, sample):
    graph, moved = random_graph(), []
    batch = sample(graph)
    for factor in (1.0, 3.0):
        model, _, loader = learnt(graph, GraphSAGE)
        table = torch.from_numpy(np.array(graph.features))
        rows = LearnedEmbedding(table, LazyAdam(), rate_factor=factor)
        loader.store = LearnedFeatureStore(rows)
        before = rows.weight.clone()
        model(batch, loader.load(batch)).square().sum().backward()
        rows.update(PlainAdam([*model.parameters(), rows.weight], lr=0.01))
        moved.append((rows.weight - before).abs().max().item())
    assert moved[1] == pytest.approx(3 * moved[0], rel=1e-3)


@pytest.mark.parametrize("config", [GCN, GAT])
def test_bfloat16_rows_have_gradients_that_are_summed_in_float32(random_graph, sample, config):
    graph, found = random_graph(), []
    batch = sample(graph)
    for dtype in (torch.bfloat16, torch.float32):
        model, rows, loader = learnt(graph, config, dtype)
        loader.dtype = dtype  # whatever this processor multiplies
        inputs = loader.load(batch)
        assert inputs.x.dtype == dtype
        weighted_sum(model(batch, inputs)).backward()
        _, gradient = rows.gradient
        assert gradient.rows.dtype == dtype
        found.append(gradient.total(torch.float32, num_threads=1))
    assert (found[0] - found[1]).norm() < 0.1 * found[1].norm()


def test_rows_that_repeat_get_the_sum_of_their_gradients():
    rows = LearnedEmbedding(torch.arange(10.0).reshape(5, 2), LazyAdam())
    store = LearnedFeatureStore(rows, repeats=True)
    vertices = np.array([3, 1, 3], np.int32)
    found, _ = store.gather(vertices, dtype=torch.float32, num_threads=1)
    assert torch.equal(found, rows.weight[[3, 1, 3]])
    (found * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
    read, gradient = rows.gradient
    assert read.tolist() == [1, 3]
    expected = torch.tensor([[10.0, 10.0], [101.0, 101.0]])
    assert torch.equal(gradient.total(torch.float32, num_threads=1), expected)
