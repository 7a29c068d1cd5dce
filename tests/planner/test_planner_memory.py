from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from round_figures import accelerator, platform, workload

from gnnscale.backend import DeviceMemoryError
from gnnscale.backend.base import DeviceMemory
from gnnscale.core.errors import ConfigError
from gnnscale.planner import Cpu, Device, Emulated
from gnnscale.planner.cost_model.equations import BYTES_PER_PARAMETER
from gnnscale.planner.cost_model.stage_work import batch_bytes
from gnnscale.planner.cost_model.workload import CacheEffect, Workload
from gnnscale.planner.planner import (
    batch_memory_bytes,
    check_parts,
    in_flight_at,
    max_seeds,
    plan_devices,
    seed_limits,
)

#: Bytes of weights with their moments, of a seed's part of a slice, and about those of any slice
#: (see test_planner.py).
MODEL, EACH, ANY = 3072, 9200, 100


def holding(num_seeds: int, **fields: Any) -> Emulated:
    return accelerator(memory_bytes=MODEL + num_seeds * EACH + ANY, **fields)


def test_what_a_device_holds() -> None:
    work, device = workload(), holding(300)
    assert batch_memory_bytes(device, work) == 300 * EACH + ANY
    assert [max_seeds(device, work, count, spare=0.0) for count in (1, 2, 3)] == [300, 150, 100]
    assert [max_seeds(device, work, count) for count in (1, 2)] == [270, 135]
    assert max_seeds(Cpu(), work, 5) is None
    assert max_seeds(holding(2000), work, 1) is None
    assert max_seeds(holding(0), work, 1) == 0
    cached = replace(work, cache=CacheEffect(num_bytes=100 * EACH))
    assert max_seeds(device, cached, 1, spare=0.0) == 200
    # A cache that is larger than the memory leaves nothing, and not less.
    assert max_seeds(device, replace(work, cache=CacheEffect(num_bytes=1 << 40)), 1) == 0
    device = holding(300)
    found = [in_flight_at(device, workload(), seeds, 5) for seeds in (10, 60, 100, 200, 299, 0)]
    # One of 299 seeds fits, though nothing is left to spare.
    assert found == [5, 4, 2, 1, 1, 5]
    assert in_flight_at(Cpu(), workload(), 1000, 5) == 5


def test_fewer_are_in_flight_where_devices_could_not_hold_the_mini_batch() -> None:
    for num_seeds, limit in ((1200, 360), (800, 360), (400, 360), (301, 301)):
        devices = [holding(num_seeds, name=name) for name in ("a", "b")]
        found = seed_limits(devices, [workload()] * 2, 3, batch_size=600, split=None)
        assert found == [limit, limit]
        # A processor takes what no device holds.
        found = seed_limits([Cpu(), holding(30)], [workload()] * 2, 3, batch_size=1000, split=None)
        assert found == [None, 9]


def test_mini_batches_and_parts_that_devices_cannot_hold() -> None:
    devices = [holding(300, name=name) for name in ("a", "b")]
    with one_line(
        "batch_size=601: expected at most about 600, the seeds that fit into the devices' memory; "
        "batch_size=540, lower sampler.fanouts or smaller caches fit"
    ):
        seed_limits(devices, [workload()] * 2, 3, batch_size=601, split=None)
    seed_limits(devices, [workload()] * 2, 3, batch_size=600, split=None)
    with pytest.raises(ConfigError, match=r"at most about 0, .*; lower sampler.fanouts"):
        seed_limits([holding(0)], [workload()], 3, batch_size=9, split=None)
    # A partition fixes the parts: nothing else gives a device fewer seeds.
    cached = replace(workload(), cache=CacheEffect(num_bytes=200 * EACH))
    device = holding(450, name="emulated:1")
    devices, work = [Cpu(), device], [workload(), cached]
    assert seed_limits(devices, work, 5, batch_size=1000, split=[750, 250]) == [None, 250]
    with one_line(
        "device_plan: emulated:1: 400 of batch_size=1000 seeds need about 3.7 MB, and model and "
        "1.8 MB of cache leave 2.3 MB of memory_bytes=4143172; batch_size=562 or "
        "cache_planner.budget_bytes=51193 or lower sampler.fanouts would fit"
    ):
        seed_limits(devices, work, 5, batch_size=1000, split=[600, 400])
    # What the line says fits, does.
    seed_limits(devices, work, 5, batch_size=562, split=[337, 225])
    smaller = replace(cached, cache=CacheEffect(num_bytes=51_193))
    seed_limits(devices, [workload(), smaller], 5, batch_size=1000, split=[600, 400])
    # No cache is small enough here, and no batch.
    with pytest.raises(ConfigError, match=r"; lower sampler\.fanouts would fit$"):
        check_parts([holding(0)], [cached], [400], batch_size=1000)
    # 1,000 seeds are trained: half of them is the larger part, whatever the options say.
    devices = [Cpu(), holding(500)]
    seed_limits(devices, [workload()] * 2, 1, batch_size=8000, split=[4000, 4000])
    with pytest.raises(ConfigError, match="501 of batch_size=8000 seeds"):
        seed_limits(devices, [workload()] * 2, 1, batch_size=8000, split=[3998, 4002])


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=60)
def test_a_plan_fits_into_its_devices_memory(data: st.DataObject) -> None:
    """Whatever is planned can be reserved, as a device does; what is refused cannot."""
    batch_size = data.draw(st.integers(1, 1000), "batch_size")
    in_flight = data.draw(st.integers(1, 6), "in_flight")
    devices: list[Device] = []
    works: list[Workload] = []
    for number in range(data.draw(st.integers(1, 3), "devices")):
        held = data.draw(st.none() | st.integers(0, 3000), "held, or a processor")
        caches = [0] if held is None else [0, 10 * EACH, 500 * EACH]
        cache = data.draw(st.sampled_from(caches), "cache")
        name = f"device:{number}"
        devices.append(Cpu(name=name) if held is None else holding(held, name=name))
        works.append(replace(workload(), cache=CacheEffect(num_bytes=cache)))
    split = None
    if data.draw(st.booleans(), "fixed"):
        cuts = sorted(data.draw(st.integers(0, batch_size)) for _ in devices[1:])
        split = [b - a for a, b in zip([0, *cuts], [*cuts, batch_size], strict=True)]

    def holds(number: int, seeds: int, count: int) -> bool:
        device, work = devices[number], works[number]
        if not isinstance(device, Emulated) or not seeds:
            return True
        memory = DeviceMemory(device)
        needs = [BYTES_PER_PARAMETER * work.num_weights, work.cache.num_bytes]
        needs += [int(batch_bytes(work, work.size(seeds)))] * count
        try:
            for num_bytes in needs:
                memory.reserve(num_bytes, "the model, the cache or a mini-batch")
        except DeviceMemoryError:
            return False
        return True

    options = {"batch_size": batch_size, "cores": 2, "prefetch": "auto", "in_flight": in_flight}
    given = {"workloads": works, "platform": platform(2), "split": split}
    try:
        plans = plan_devices(devices, **options, **given)
    except ConfigError:
        if split is not None:
            assert not all(holds(i, seeds, 1) for i, seeds in enumerate(split))
        else:
            counts = range(batch_size + 1)
            most = [max(n for n in counts if holds(i, n, 1)) for i in range(len(devices))]
            assert sum(most) < batch_size
        return
    for plan, _ in plans:
        for number, share in enumerate(plan.shares):
            # What the plan says may be in flight, and as many seeds as may be moved here.
            assert holds(number, share.num_seeds, share.depth or in_flight)
            assert holds(number, min(share.max_seeds or 0, batch_size), 1)
            assert share.depth is None or share.depth < in_flight
