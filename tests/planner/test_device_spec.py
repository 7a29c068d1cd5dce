from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from copying_device import Copying
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.planner import Accelerator, Cpu, Cuda, Emulated, Fpga
from gnnscale.planner.device_spec import Efficiency, process_group_backend, shared_collective
from gnnscale.planner.registry import parse_devices

RATES = {"macs_per_s": 1e9, "memory_bandwidth": 1e9, "memory_bytes": 1000}
ACCELERATOR = {"kind": "emulated", "link_bandwidth": 1e8, **RATES}


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in ACCELERATOR.items() if key not in keys}


def test_kinds_and_names() -> None:
    entries = ["cpu", {"kind": "cpu", "name": "left"}, ACCELERATOR, ACCELERATOR]
    devices = parse_devices(entries, option="devices")
    assert [device.name for device in devices] == ["cpu:0", "left", "emulated:2", "emulated:3"]
    assert [device.kind for device in devices] == ["cpu", "cpu", "emulated", "emulated"]
    assert isinstance(devices[0], Cpu)
    accelerator = devices[2]
    assert isinstance(accelerator, Emulated)
    assert (accelerator.macs_per_s, accelerator.memory_bytes) == (1e9, 1000)
    assert (accelerator.link_latency_s, accelerator.pipelined) == (0.0, False)
    devices = parse_devices(["cpu", ACCELERATOR, without("link_bandwidth")], option="devices")
    assert [device.on_host for device in devices] == [True, False, True]


def test_devices_that_are_refused() -> None:
    for entries, message in (
        ([], "x=[]: expected at least one device"),
        (["gpu"], "x.0.kind=gpu: allowed are"),
        ([7], "x.0=7: expected a kind, or options with a kind"),
        ([{"name": "a"}], "expected a kind, or options with a kind"),
        ([{"kind": "cpu", "macs_per_s": 1.0}], "x.0.macs_per_s: unknown option"),
        ([without("memory_bytes")], "x.0.memory_bytes: required"),
        ([ACCELERATOR | {"memory_bytes": "much"}], "x.0.memory_bytes: Value 'much'"),
        ([ACCELERATOR | {"macs_per_s": 0}], "x.0.macs_per_s=0.0: expected a number above 0"),
        ([ACCELERATOR | {"link_bandwidth": 0}], "link_bandwidth=0.0: expected a number above 0"),
        ([ACCELERATOR | {"host_bandwidth": -2}], "x.0.host_bandwidth=-2.0: expected a number"),
        ([ACCELERATOR | {"link_overhead_bytes": -1}], "x.0.link_overhead_bytes=-1: must be at"),
        (
            [without("link_bandwidth") | {"reads_host_memory": True}],
            "link_bandwidth=null: expected a rate; the device reads host memory",
        ),
        ([ACCELERATOR | {"link_request_bytes": 0}], "x.0.link_request_bytes=0: must be at least 1"),
        ([ACCELERATOR | {"launch_s": -1}], "x.0.launch_s=-1.0: expected a number from 0 on"),
    ):
        with one_line(message):
            parse_devices(entries, option="x")


@dataclass(frozen=True, kw_only=True)
class Board(Accelerator):
    collective: ClassVar[str | None] = "cuda:nccl"


CPU, BOARD, COPYING = Cpu(), Board(**RATES), Copying(**RATES)


def test_gradients_are_summed_on_devices_that_all_can() -> None:
    for devices, collective, backend in (
        ([CPU, CPU], None, "cpu:gloo"),
        ([BOARD], "cuda:nccl", "cpu:gloo,cuda:nccl"),
        ([COPYING, COPYING], "cpu:gloo", "cpu:gloo"),
        ([CPU, BOARD], None, "cpu:gloo"),
        ([BOARD, COPYING], None, "cpu:gloo"),
        ([Cuda(), Cuda(index=1)], "cuda:nccl", "cpu:gloo,cuda:nccl"),
        # NCCL refuses two workers on one card.
        ([Cuda(), Cuda()], None, "cpu:gloo"),
        ([Cuda(host_driven=True), Cuda(host_driven=True)], None, "cpu:gloo"),
        ([CPU, Cuda()], None, "cpu:gloo"),
    ):
        assert shared_collective(devices) == collective
        assert process_group_backend(devices) == backend


def test_what_only_some_devices_may() -> None:
    for options in ({}, {"host_aggregates": False}, {"reads_host_memory": True}):
        (device,) = parse_devices([ACCELERATOR | options], option="x")
        assert device.takes_aggregated == (options == {})
    for value in (0.0, 1.01):
        with pytest.raises(ConfigError, match=rf"efficiency\.memory={value}: expected a number"):
            Efficiency(processor=1.0, memory=value, accelerator=1.0, link=1.0)
    Fpga(name="a").check()
    Fpga(name="a", index=7, bitstream="file.xclbin").check()
    with pytest.raises(ConfigError, match="a: index=7: expected 0 in C simulation"):
        Fpga(name="a", index=7).check()
