from dataclasses import replace
from typing import Any

import pytest
from one_line import one_line

from gnnscale.core import gpu as nvml
from gnnscale.planner import Cuda
from gnnscale.planner import cuda_spec as module
from gnnscale.planner.device_plan import AllGpusConfig
from gnnscale.planner.device_spec import owns_steps
from gnnscale.planner.registry import parse_devices

FREE = 7 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"index": 0, "memory": 8 << 30, "free": FREE, "capability": (9, 0), "is_busy": False}
    found = nvml.Gpu(name="Card", uuid="GPU-1", **numbers)
    gpus = nvml.Gpus(driver="600.1", cuda=(13, 0), devices=(found,))
    monkeypatch.setattr(nvml, "find_gpus", lambda: gpus)
    module._free_bytes.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise nvml.NvmlError("there is no NVIDIA driver (libnvidia-ml.so.1)")

    monkeypatch.setattr(nvml, "find_gpus", refuse)
    module._free_bytes.cache_clear()


def test_a_gpu_does_everything_by_itself() -> None:
    device = Cuda()
    does = (device.samples, device.loads, device.infers, device.takes_links, owns_steps([device]))
    assert all((*does, device.holds_cache, device.holds_rows, device.reads_lists))
    assert not Cuda(features="device").holds_cache
    assert not Cuda(topology="device").reads_lists
    assert not device.computes_on_host
    assert device.figures == "measured"
    # The host in its place is marked.
    driven = Cuda(host_driven=True)
    assert (driven.figures, driven.computes_on_host) == ("emulated", True)
    driven.check()


def test_options_that_are_refused() -> None:
    for options, message in (
        ({"features": "disk"}, "features=disk: allowed are auto, device, host"),
        ({"topology": "gpu"}, "topology=gpu: allowed are auto, device, host"),
        ({"index": -1}, "index=-1: must be at least 0"),
        ({"memory_bytes": 0}, "memory_bytes=0: expected a number above 0"),
        ({"link_bandwidth": None}, "link_bandwidth=null"),
    ):
        with one_line(begins=f"device_plan.devices.0.{message}"):
            parse_devices([{"kind": "cuda", **options}], option="device_plan.devices")


@pytest.mark.usefixtures("gpu")
def test_gpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cuda().budget_bytes == FREE
    assert Cuda(memory_bytes=1000).budget_bytes == 1000
    Cuda().check()
    with one_line("GPU 1: expected 0 to 0", "device_plan=cpu"):
        Cuda(index=1).check()
    with one_line(f"memory_bytes={FREE + 1}", "null for all free bytes"):
        Cuda(memory_bytes=FREE + 1).check()
    for option in ("kind", "index", "name"):
        with one_line(f"device_plan.options.{option}", "lists single GPUs"):
            AllGpusConfig(options={option: 0})
    with one_line("device_plan.devices: expected none with cuda_all"):
        AllGpusConfig(devices=["cuda"])
    (one,) = nvml.find_gpus().devices
    two = nvml.Gpus(driver="600.1", cuda=(13, 0), devices=(one, replace(one, index=1)))
    monkeypatch.setattr(nvml, "find_gpus", lambda: two)
    plan = AllGpusConfig(options={"features": "host", "tf32": True}, split=[40, 24])
    assert plan.parsed() == (
        Cuda(name="cuda:0", index=0, features="host", tf32=True),
        Cuda(name="cuda:1", index=1, features="host", tf32=True),
    )
    with one_line("device_plan.split=[64]", "2 devices"):
        AllGpusConfig(split=[64])


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_there_is_another_way() -> None:
    with one_line("no GPU here", "libnvidia-ml", "device_plan=cpu trains on the processor"):
        Cuda().check()
    with one_line("device_plan: no GPU here", "device_plan=cpu"):
        AllGpusConfig()
    # A run is evaluated on machines without its GPU, and its plan is read there.
    assert Cuda().budget_bytes > 0
