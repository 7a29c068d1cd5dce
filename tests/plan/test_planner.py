from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import ConfigError
from gnnscale.model.cost import LayerCost
from gnnscale.plan import Cpu, Device, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.plan.perf.equations import Prediction
from gnnscale.plan.perf.predict import Host, host_seconds, predict
from gnnscale.plan.perf.work import transfer_bytes
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.planner import plan_devices
from gnnscale.plan.platform import Platform

Build = Callable[..., Workload]
Machine = Callable[..., Platform]
Accelerator = Callable[..., Emulated]


def cpus(count: int) -> list[Device]:
    return [Cpu(name=f"cpu:{i}") for i in range(count)]


def share(device: Device, seeds: int, threads: tuple[int, int, int], prefetch: str) -> DeviceShare:
    sample, load, propagate = threads
    return DeviceShare(
        device=device,
        num_seeds=seeds,
        threads=Threads(sample=sample, load=load, propagate=propagate),
        prefetch=prefetch,
    )


def planned(
    devices: list[Device],
    workload: Workload,
    platform: Platform,
    *,
    prefetch: str = "auto",
    split: list[int] | None = None,
    batch_size: int = 1000,
    emulates: bool = False,
) -> tuple[DevicePlan, Prediction]:
    return plan_devices(
        devices,
        batch_size=batch_size,
        cores=platform.processor.cores,
        prefetch=prefetch,
        split=split,
        workloads=[workload] * len(devices),
        platform=platform,
        emulates=emulates,
    )[0]


def test_step_of_a_processor(workload: Build, platform: Machine) -> None:
    plan = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),))
    stages = predict(plan, [workload()] * len(plan.shares), platform(1)).devices[0]
    # 11,000 edges at 1 M/s; 10,000 rows of 80 bytes and a line at 1 GB/s, none in the cache.
    assert stages.sample == pytest.approx(11e-3)
    assert stages.load == pytest.approx(1.44e-3, rel=1e-3)
    macs = 2 * 1000 * 20 * 8 + 3 * 100 * 8 * 4
    row_bytes = 11_000 * 80 + 2 * 1100 * 32
    assert stages.propagate == pytest.approx((macs + row_bytes) / 1e9, rel=1e-3)
    assert stages.transfer == 0


def test_products_of_bfloat16_have_a_rate_of_their_own(workload: Build, platform: Machine) -> None:
    plan = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),))

    def propagate(dtype: str, rates: list[float] | None) -> float:
        machine = platform(1, bfloat16_macs_per_s=rates)
        return predict(plan, [workload(compute_dtype=dtype)], machine).devices[0].propagate

    macs = 2 * 1000 * 20 * 8 + 3 * 100 * 8 * 4
    row_bytes = 11_000 * 80 + 2 * 1100 * 32
    assert propagate("float32", [4e9]) == pytest.approx((macs + row_bytes) / 1e9, rel=1e-3)
    assert propagate("bfloat16", [4e9]) == pytest.approx((macs / 4 + row_bytes / 2) / 1e9, rel=1e-3)
    # Rates from elsewhere, which know of none.
    assert propagate("bfloat16", None) == pytest.approx((macs + row_bytes / 2) / 1e9, rel=1e-3)


def test_workers_wait_for_the_latest(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    two = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),) * 2)
    steady, varying = platform(2), platform(2, straggler_wait=0.1)
    known = predict(two, [workload()] * 2, steady)
    found = predict(two, [workload()] * 2, varying)
    stages = known.devices[0]
    own_s = stages.sample + stages.load + stages.propagate
    assert found.step_s == pytest.approx(known.step_s + 0.1 * own_s)
    # What an accelerator does takes the same time in every step.
    slow = DevicePlan(
        shares=(share(accelerator(macs_per_s=1e6), 100, (1, 1, 1), "none"),) * 2,
    )
    known, found = (predict(slow, [workload()] * 2, machine) for machine in (steady, varying))
    busy_s = host_seconds(slow, [workload()] * 2, steady, None)[0]
    assert found.step_s == pytest.approx(known.step_s + 0.1 * sum(busy_s.values()))
    one = DevicePlan(shares=two.shares[:1])
    assert predict(one, [workload()], varying) == predict(one, [workload()], steady)


def test_a_split_first_layer_is_traded(workload: Build, platform: Machine) -> None:
    plan = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),) * 3)
    machine = platform(1, sync_latency_s=1e-3, sync_bandwidth=1e6)
    stages = predict(plan, [workload(num_sharing=3)] * 3, machine).devices[0]
    # Of each of two others a block of 10,000 vertices, 1,000 destinations and 10,000 edges, a
    # partial product of 1,000 rows of 8, and a gradient of as many; three messages.
    block = 24 + 4 * (10_000 + 1_000 + 10_000)
    assert stages.exchange == pytest.approx(2 * (3e-3 + (block + 2 * 1_000 * 8 * 4) / 1e6))
    assert predict(plan, [workload()] * 3, machine).devices[0].exchange == 0


def test_step_of_an_accelerator(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    device = accelerator(link_latency_s=1e-3, launch_s=2e-3, macs_per_s=1e9, memory_bandwidth=1e9)
    plan = DevicePlan(shares=(share(device, 100, (1, 1, 0), "two_stage"),))
    predicted = predict(plan, [workload()] * len(plan.shares), platform(2), emulates=False)
    stages = predicted.devices[0]
    topology = 8 * 1001 + 4 * 10_000 + 8 * 101 + 4 * 1000
    assert stages.transfer == pytest.approx(1e-3 + (10_000 * 80 + topology) / 1e9)
    # Rows of 80 bytes and then 32 for each edge and target; 28 and 12 features streamed a product.
    forward = 11_000 * 80 + 1000 * (112 + 160) + 1100 * 32 + 100 * (48 + 32)
    backward = 1000 * (112 + 160) + 1100 * 32 + 2 * 100 * (48 + 32)
    assert stages.propagate == pytest.approx(2e-3 + (forward + backward) / 1e9)
    # Without the processor in the plan sampling takes longest.
    assert predicted.step_s == pytest.approx(stages.sample)
    assert predicted.num_edges == 11_000


def test_what_crosses_the_link_after_aggregation_on_the_host(workload: Build) -> None:
    wide = LayerCost(width_in=20, width_out=8, products=((40, 8),))
    fused = workload(host_aggregates=True, layers=(wide, workload().layers[1]))
    rows, topology = transfer_bytes(fused, fused.size(100))
    assert rows == pytest.approx(1000 * 40 * 4)
    assert topology == pytest.approx(8 * 101 + 4 * 1000)


def test_whoever_is_early_waits_in_synchronisation(workload: Build, platform: Machine) -> None:
    devices = cpus(2)
    plan = DevicePlan(
        shares=(
            share(devices[0], 300, (1, 1, 1), "none"),
            share(devices[1], 100, (1, 1, 1), "none"),
        )
    )
    predicted = predict(plan, [workload()] * len(plan.shares), platform(2))
    sums = [sum(vars(stages).values()) for stages in predicted.devices]
    assert sums == pytest.approx([predicted.step_s] * 2)
    assert predicted.devices[1].sync > predicted.devices[0].sync


def test_threads_beyond_the_cores_take_turns(workload: Build, platform: Machine) -> None:
    machine = platform(1)
    one = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),))
    four = DevicePlan(shares=tuple(share(device, 100, (1, 1, 1), "none") for device in cpus(4)))
    alone = predict(one, [workload()] * len(one.shares), machine).step_s
    assert predict(four, [workload()] * len(four.shares), machine).step_s == pytest.approx(
        4 * alone, rel=0.02
    )


def test_overlapping_stages_share_the_cores(workload: Build, platform: Machine) -> None:
    machine = platform(1)
    serial = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "none"),))
    overlapped = DevicePlan(shares=(share(Cpu(), 100, (1, 1, 1), "two_stage"),))
    best = predict(serial, [workload()] * len(serial.shares), machine).step_s
    assert predict(overlapped, [workload()] * len(overlapped.shares), machine).step_s >= 0.97 * best


def test_emulated_devices_are_late_where_the_host_is_slow(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    plan = DevicePlan(shares=(share(accelerator(), 100, (1, 1, 0), "one_stage"),))
    slow = platform(2, macs_per_s=[1e6, 2e6])
    late = predict(plan, [workload()] * len(plan.shares), slow, emulates=True).devices[0].propagate
    assert (
        late
        > 10
        * predict(plan, [workload()] * len(plan.shares), slow, emulates=False).devices[0].propagate
    )


def test_a_device_without_seeds_only_synchronises(workload: Build, platform: Machine) -> None:
    devices = cpus(2)
    plan = DevicePlan(
        shares=(share(devices[0], 100, (1, 1, 1), "none"), share(devices[1], 0, (1, 1, 1), "none"))
    )
    idle = predict(plan, [workload()] * len(plan.shares), platform(2)).devices[1]
    assert (idle.sample, idle.load, idle.propagate) == (0, 0, 0)


def test_one_processor_takes_turns_with_all_cores(workload: Build, platform: Machine) -> None:
    plan, predicted = planned([Cpu()], workload(sampled=True), platform(2))
    assert plan.shares[0].threads == Threads(sample=2, load=2, propagate=2)
    assert plan.shares[0].prefetch == "none"
    assert predicted == predict(
        plan, [workload(sampled=True)] * len(plan.shares), platform(2), emulates=False
    )


def test_equal_processors_get_equal_shares(workload: Build, platform: Machine) -> None:
    plan, _ = planned(cpus(2), workload(), platform(2))
    assert plan.split == (500, 500)


def test_trainers_finish_together(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    fast = accelerator("fast", macs_per_s=3e6, memory_bandwidth=1e12, link_bandwidth=1e12)
    slow = accelerator("slow", macs_per_s=1e6, memory_bandwidth=1e12, link_bandwidth=1e12)
    machine = platform(8, sampled_edges_per_s=[1e9, 8e9])
    plan, predicted = planned([slow, fast], workload(), machine)
    assert plan.split == pytest.approx((250, 750), abs=5)
    times = [stages.propagate for stages in predicted.devices]
    assert times[0] == pytest.approx(times[1], rel=0.02)


def test_loading_by_bandwidth_is_hidden_behind_an_accelerator(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    plan, _ = planned([accelerator()], workload(), platform(4))
    assert plan.shares[0].prefetch in ("one_stage", "two_stage")
    assert plan.shares[0].threads.propagate == 0


def test_more_workers_than_cores_get_a_thread_each(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    devices = [*cpus(2), accelerator()]
    plan, _ = planned(devices, workload(), platform(2))
    assert [each.prefetch for each in plan.shares] == ["none", "none", "one_stage"]
    assert [each.host_threads for each in plan.shares] == [1, 1, 1]


@pytest.mark.parametrize("prefetch", ["none", "one_stage", "two_stage"])
def test_a_mode_asked_for_is_honoured(
    prefetch: str, workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    plan, _ = planned([Cpu(), accelerator()], workload(), platform(2), prefetch=prefetch)
    assert {each.prefetch for each in plan.shares} == {prefetch}
    threads = plan.shares[0].threads
    assert min(threads.sample, threads.load, threads.propagate) == 1


def test_a_split_asked_for_is_kept(workload: Build, platform: Machine) -> None:
    plan, _ = planned(cpus(2), workload(), platform(2), split=[900, 100])
    assert plan.split == (900, 100)


def test_a_split_asked_for_says_what_devices_hold(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    # 3,072 bytes of weights with their moments; a slice of n seeds takes 9,200 n + 16 bytes:
    # rows 100 n * 20 * 4, offsets 8 (10 n + 1) + 8 (n + 1), edges 4 (100 n + 10 n), and hidden
    # rows with their gradients 8 (10 n * 8 + n * 4). A tenth stays free.
    small = accelerator(memory_bytes=3072 + -(-(300 * 9200 + 16) * 10 // 9))
    devices: list[Device] = [Cpu(), small]
    plans = [
        planned(devices, workload(), platform(2), split=split)[0]
        for split in ([900, 100], [680, 320])
    ]
    assert [[each.max_seeds for each in plan.shares] for plan in plans] == [
        [None, 300],
        # As asked for, and not a seed more.
        [None, 320],
    ]
    assert plans[0].within_memory([0, 1000]) == (700, 300)
    with pytest.raises(ConfigError, match="accelerator has 400 of batch_size=1000 seeds"):
        planned(devices, workload(), platform(2), split=[600, 400])


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ([1000], "one number for each of 2 devices is needed"),
        ([600, 600], "sums to 1200, not to batch_size=1000"),
        ([1100, -100], "none may be below 0"),
    ],
)
def test_a_split_that_does_not_fit(
    split: list[int], reason: str, workload: Build, platform: Machine
) -> None:
    with pytest.raises(ConfigError) as error:
        planned(cpus(2), workload(), platform(2), split=split)
    assert str(error.value) == f"device_plan.split={split}: {reason}"


def test_an_unknown_mode(workload: Build, platform: Machine) -> None:
    with pytest.raises(ConfigError, match=r"runtime\.prefetch=much: allowed are auto, none"):
        planned(cpus(1), workload(), platform(2), prefetch="much")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    num_cpus=st.integers(0, 3),
    num_accelerators=st.integers(0, 4),
    cores=st.sampled_from([1, 2, 3, 4, 8, 16]),
    batch_size=st.integers(8, 4000),
)
def test_no_plan_uses_more_threads_than_cores(
    workload: Build,
    platform: Machine,
    accelerator: Accelerator,
    num_cpus: int,
    num_accelerators: int,
    cores: int,
    batch_size: int,
) -> None:
    devices: list[Device] = [*cpus(num_cpus)]
    devices += [accelerator(f"accelerator:{i}") for i in range(num_accelerators)]
    if not devices:
        return
    plan, predicted = planned(
        devices, workload(sampled=True), platform(cores), batch_size=batch_size, emulates=True
    )
    assert plan.batch_size == batch_size
    assert plan.host_threads <= max(cores, len(devices))
    assert min(each.host_threads for each in plan.shares) >= 1
    assert predicted.step_s > 0


def test_sampling_is_slowed_where_only_bytes_have_a_rate(
    workload: Build, platform: Machine
) -> None:
    """Calibration may find no limit of rows; others' use of the memory slows sampling still."""
    machine = platform(2, memory_rows_per_s=[math.inf] * 2, memory_bandwidth=[1e9, 1e9])
    host = Host(processor=machine.processor, num_workers=2, emulates=False)
    known = workload(sampled=True)
    alone = host.sample(known, 100, known.size(100), 1, 1)
    beside = host.sample(known, 100, known.size(100), 1, 2)
    assert beside == pytest.approx(2 * alone)
