from dataclasses import replace
from typing import Any

import pytest
import torch

from gnnscale.plan.calibration.kept import this_machine
from gnnscale.plan.perf.predict import Host
from gnnscale.plan.perf.workload import measure_workload
from gnnscale.runtime.order import checked_order
from gnnscale.runtime.planning.plan_model import with_measured_step
from gnnscale.sampler.seed_order import labelled_vertices


def test_the_host_takes_what_was_measured(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings("model=custom", "model.module=own_modules:OwnBlocks", "model.hidden=8")
    graph = config.dataset.open()
    order = checked_order(config, labelled_vertices(graph, "train"), None)
    torch.manual_seed(0)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    workload = measure_workload(graph, model, config.sampler, order, seed=0, cores=1, num_steps=1)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    numbers = torch.get_rng_state()
    platform = this_machine()
    # A clock on which every step takes two seconds.
    name = "gnnscale.runtime.planning.plan_model.time.perf_counter"
    monkeypatch.setattr(name, iter(range(0, 100, 2)).__next__)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = with_measured_step(workload, config, graph, model, order, platform)
    assert found.counted.host_factor > 1
    assert replace(found, counted=workload.counted) == workload
    host = Host(processor=platform.processor, num_workers=1, emulates=False)
    size = found.size(config.batch_size)
    seconds = host.propagate(found, size, threads, threads)
    assert seconds == pytest.approx(2, rel=0.2)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(each.grad is None for each in model.parameters())
