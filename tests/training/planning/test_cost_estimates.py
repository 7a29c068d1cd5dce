import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from one_line import one_line
from round_figures import platform

from gnnscale.planner import Cpu, Cuda
from gnnscale.planner.calibration import calibrate
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.predict import Host, accelerator_seconds
from gnnscale.planner.cost_model.workload import CacheEffect, measure_workload, unmeasured_workload
from gnnscale.planner.platform import (
    MachineIdentity,
    Platform,
    ThisMachine,
    estimate_file,
    platform_file,
    read_platform,
)
from gnnscale.run.inputs import checked_order
from gnnscale.sampling.seed_order import labeled_vertices
from gnnscale.training.open_device import plan_options
from gnnscale.training.planning import cost_estimates as kept
from gnnscale.training.planning.cost_estimates import (
    device_workloads,
    this_machine,
    with_measured_step,
)


def test_the_host_takes_what_was_measured(settings, monkeypatch) -> None:
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
        *(workload, plan_options(config), graph, model, order, config.sampler, platform),
        num_devices=1,
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


def test_data_in_a_gpus_memory_cross_no_link(settings) -> None:
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


FIGURES = platform()


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Platform]:
    """What has been measured; each time the machine is a little faster."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    found: list[Platform] = []

    def estimate() -> Platform:
        faster = replace(FIGURES.processor, update_s=1 / (2 + len(found)))
        here = MachineIdentity.current()
        found.append(replace(FIGURES, name="estimated", processor=faster, measured_on=here))
        return found[-1]

    monkeypatch.setattr(calibrate, "estimate", estimate)
    # Whatever else this machine does meanwhile is nobody's business here.
    monkeypatch.setattr(kept, "busy_seconds", time.process_time)
    return found


def elsewhere() -> Platform:
    here = MachineIdentity.current()
    return replace(FIGURES, measured_on=replace(here, torch="0.1", cores=here.cores + 1))


def test_an_estimate_is_measured_once(measured) -> None:
    assert this_machine() == this_machine() == measured[0]
    assert len(measured) == 1
    assert read_platform(estimate_file()) == measured[0]
    # A damaged one is measured again.
    estimate_file().write_text("name: [")
    assert this_machine() == measured[1] == read_platform(estimate_file())


def test_a_disturbed_estimate_is_not_kept(measured, monkeypatch) -> None:
    clock = iter([0.0, 1000.0, 1000.0, 1000.0])  # seconds that others have had
    with monkeypatch.context() as others:
        others.setattr(kept, "busy_seconds", lambda: time.process_time() + next(clock))
        assert this_machine() == measured[0]
        assert not estimate_file().exists()
        assert this_machine() == measured[1]
    assert this_machine() == read_platform(estimate_file()) == measured[1]


def test_a_machine_that_has_changed_is_measured_again(measured) -> None:
    changes = ({"processor": "another"}, {"cores": 99}, {"memory_gib": 7}, {"torch": "0.1"})
    for number, change in enumerate(changes, 1):
        other = replace(MachineIdentity.current(), **change)
        replace(this_machine(), measured_on=other).write(estimate_file())
        assert this_machine() == this_machine() == measured[number]
        assert len(measured) == number + 1


def test_calibration_comes_first_but_not_that_of_another_machine(measured, caplog) -> None:
    mine = replace(FIGURES, measured_on=MachineIdentity.current())
    mine.write(platform_file())
    assert this_machine() == mine == ThisMachine().open()
    assert not measured
    elsewhere().write(platform_file())
    assert this_machine() == measured[0]
    cores = MachineIdentity.current().cores
    told = f"rates of another machine (cores {cores + 1}, here {cores}; torch 0.1, here "
    assert told in caplog.text
    with one_line(f"{platform_file()}: {told}"):
        ThisMachine().open()


def test_a_file_of_ones_own_is_used_and_told_of(tmp_path, caplog) -> None:
    file = tmp_path / "mine.yaml"
    FIGURES.write(file)
    assert ThisMachine(file=file).open() == FIGURES
    assert not caplog.text
    elsewhere().write(file)
    with caplog.at_level(logging.WARNING):
        assert ThisMachine(file=file).open() == elsewhere()
    assert f"{file}: rates of another machine (cores" in caplog.text


def test_a_home_that_cannot_be_written_to(measured, caplog) -> None:
    # A folder in the file's place stops root as well.
    estimate_file().mkdir(parents=True)
    assert this_machine() == measured[0]
    assert "the next run measures this machine again" in caplog.text
