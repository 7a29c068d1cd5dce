import numpy as np
import pytest
import torch

from gnnscale.backend import CpuBackend, open_backend
from gnnscale.core.stages import Access, Traffic
from gnnscale.nn import GraphSAGE
from gnnscale.nn.base import seed_loss
from gnnscale.planner import Cpu, Threads


def test_stages_one_after_the_other(tiny_graph, host):
    model = GraphSAGE(hidden=4, dropout=0).build(num_features=2, num_classes=2)
    parts = host(model, of=tiny_graph)
    backend = open_backend(Cpu(), parts)
    assert isinstance(backend, CpuBackend)

    batch = backend.sample(np.array([0, 3]), 7)
    assert batch.seeds.tolist() == [0, 3]
    resident = backend.transfer(batch, backend.load(batch))
    # Rows of two features.
    read = Traffic(rows=Access(host_bytes=len(batch.input_vertices) * 8))
    assert (resident.num_bytes, resident.traffic) == (0, read)
    backend.propagate(resident, 0.25)
    outcome = backend.finish(resident)
    assert (outcome.num_edges, outcome.num_vertices) == (batch.num_edges, batch.num_vertices)
    assert outcome.seconds == outcome.counters == {}

    expected = seed_loss(tiny_graph, model(batch, parts.loader.load(batch)), batch.seeds) * 0.25
    assert outcome.loss == expected.item()
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_gradients_of_slices_sum_to_those_of_the_mini_batch(backend, new_model):
    seeds = np.arange(60)
    losses, gradients = [], []
    for parts in ([seeds], [seeds[:13], seeds[13:20], seeds[20:]]):
        model = new_model()
        found = backend(Cpu(), model)
        losses.append(0.0)
        for part in parts:
            batch = found.sample(part, 4)
            resident = found.transfer(batch, found.load(batch))
            found.propagate(resident, len(part) / len(seeds))
            losses[-1] += found.finish(resident).loss
        gradients.append(gradients_of(found, model))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-7)


def gradients_of(backend, model):
    into = [torch.full_like(parameter, float("nan")) for parameter in model.parameters()]
    backend.copy_gradients(into)
    return [each.detach() for each in into]


def test_gradients_before_any_step_are_zero(backend, model):
    gradients = gradients_of(backend(Cpu(), model), model)
    assert gradients
    assert not any(gradient.any() for gradient in gradients)


def test_threads_reach_every_stage(host, model):
    before = torch.get_num_threads()
    parts = host(model)
    found = open_backend(Cpu(), parts)
    try:
        found.set_threads(Threads(sample=3, load=2, propagate=2))
        assert (parts.sampler.num_threads, parts.loader.num_threads) == (3, 2)
        assert torch.get_num_threads() == 2
        found.set_threads(Threads(sample=1, load=1, propagate=0))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
