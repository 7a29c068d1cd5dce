from dataclasses import replace
from typing import Any

import pytest
import torch

from gnnscale.planner import Cpu, Cuda
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.predict import Host, accelerator_seconds
from gnnscale.planner.cost_model.workload import CacheEffect, measure_workload, unmeasured_workload
from gnnscale.run.inputs import checked_order
from gnnscale.sampling.seed_order import labeled_vertices
from gnnscale.training.open_device import plan_options
from gnnscale.training.planning.cost_estimates import (
    device_workloads,
    this_machine,
    with_measured_step,
)


def test_the_host_takes_what_was_measured(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings("model=custom", "model.module=own_modules:OwnBlocks", "model.hidden=8")
    graph = config.dataset.open()
    order = checked_order(config, labeled_vertices(graph, "train"), None)
    torch.manual_seed(0)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    workload = measure_workload(graph, model, config.sampler, order, seed=0, cores=1, num_steps=1)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    numbers = torch.get_rng_state()
    platform = this_machine()
    # A clock on which every step takes two seconds.
    name = "gnnscale.training.planning.cost_estimates.time.perf_counter"
    monkeypatch.setattr(name, iter(range(0, 100, 2)).__next__)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = with_measured_step(
        workload, plan_options(config), graph, model, order, platform, num_devices=1
    )
    assert found.counted.host_factor > 1
    assert replace(found, counted=workload.counted) == workload
    host = Host(processor=platform.processor, num_workers=1, emulates=False)
    size = found.size(config.batch_size)
    seconds = host.propagate(found, size, threads, threads)
    assert seconds == pytest.approx(2, rel=0.2)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(each.grad is None for each in model.parameters())


def test_data_in_a_gpus_memory_cross_no_link(settings: Any) -> None:
    config = settings("model=sage")
    options = plan_options(config)
    graph = config.dataset.open()
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    workload = unmeasured_workload(graph, model)
    devices = [
        Cuda(host_driven=True, memory_bytes=1 << 30, features=features, topology=topology)
        for features, topology in (("auto", "auto"), ("host", "auto"), ("host", "host"))
    ]
    cached = CacheEffect(num_bytes=10, row_misses=0.5)
    effects = [CacheEffect()] * 3 + [cached]
    found = [
        each.cache
        for each in device_workloads(options, workload, [*devices, devices[1]], effects, graph)
    ]
    sizes = (graph.topology_bytes + graph.feature_bytes, graph.topology_bytes, 0)
    assert [each.num_bytes for each in found[:3]] == list(sizes)
    assert [each.row_misses for each in found] == [0.0, 1.0, 1.0, 0.5]
    assert [each.list_misses for each in found[:3]] == [0.0, 0.0, 1.0]
    assert found[3] == cached
    assert (
        device_workloads(options, workload, [Cpu()], [CacheEffect()], graph)[0].cache
        == CacheEffect()
    )
    # The model reads the rows at the rate of the device's memory, and nothing over the link.
    slow = replace(devices[0], link_bandwidth=1.0)
    (on_device,) = device_workloads(options, workload, [slow], [CacheEffect()], graph)
    size = BatchSize(vertices=(500, 100, 20), edges=(1000, 200))
    times = accelerator_seconds(slow, on_device, size)
    assert times.load == pytest.approx(500 * workload.row_bytes / slow.memory_bandwidth)
    assert times.sample == pytest.approx(1200 / slow.sampled_edges_per_s)
