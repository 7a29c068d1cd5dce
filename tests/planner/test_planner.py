import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from owning_device import Owning
from round_figures import accelerator, plan_of, platform, predicted, share, workload

from gnnscale.core.errors import ConfigError
from gnnscale.nn.cost import LayerCost
from gnnscale.planner import Cpu, Device, DevicePlan, Threads
from gnnscale.planner.cost_model.equations import Prediction
from gnnscale.planner.cost_model.predict import Host, host_seconds
from gnnscale.planner.cost_model.stage_work import transfer_bytes
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.planner import plan_devices
from gnnscale.planner.platform import Platform

#: A processor with 100 seeds, which takes its stages in turn with a thread.
ALONE = plan_of(share(Cpu()))
#: Of 100 seeds of GraphSAGE's widths: products, and bytes of rows that are aggregated.
MACS = 2 * 1000 * 20 * 8 + 3 * 100 * 8 * 4
ROW_BYTES = 11_000 * 80 + 2 * 1100 * 32


def cpus(count: int) -> list[Device]:
    return [Cpu(name=f"cpu:{i}") for i in range(count)]


def planned(
    devices: list[Device], machine: Platform, work: Workload | None = None, **options: Any
) -> tuple[DevicePlan, Prediction]:
    defaults = {"batch_size": 1000, "prefetch": "auto", "split": None, "emulates": False}
    works = [work or workload()] * len(devices)
    given = {"cores": machine.processor.cores, "workloads": works, "platform": machine}
    return plan_devices(devices, **given, **(defaults | options))[0]


def test_steps_by_hand() -> None:
    stages = predicted(ALONE, platform(1)).devices[0]
    # 11,000 edges at 1 M/s; 10,000 rows of 80 bytes and a line at 1 GB/s, none in the cache.
    assert stages.sample == pytest.approx(11e-3)
    assert stages.load == pytest.approx(1.44e-3, rel=1e-3)
    assert stages.propagate == pytest.approx((MACS + ROW_BYTES) / 1e9, rel=1e-3)
    assert stages.transfer == 0
    device = accelerator(link_latency_s=1e-3, launch_s=2e-3, macs_per_s=1e9, memory_bandwidth=1e9)
    found = predicted(plan_of(share(device, prefetch="two_stage")), platform(2), emulates=False)
    stages = found.devices[0]
    topology = 8 * 1001 + 4 * 10_000 + 8 * 101 + 4 * 1000
    assert stages.transfer == pytest.approx(1e-3 + (10_000 * 80 + topology) / 1e9)
    # Rows of 80 bytes and then 32 for each edge and target; 28 and 12 features streamed a product.
    forward = 11_000 * 80 + 1000 * (112 + 160) + 1100 * 32 + 100 * (48 + 32)
    backward = 1000 * (112 + 160) + 1100 * 32 + 2 * 100 * (48 + 32)
    assert stages.propagate == pytest.approx(2e-3 + (forward + backward) / 1e9)
    # Without the processor in the plan sampling takes longest.
    assert found.step_s == pytest.approx(stages.sample)
    assert found.num_edges == 11_000
    plan = plan_of(*ALONE.shares * 3)
    machine = platform(1, sync_latency_s=1e-3, sync_bandwidth=1e6)
    stages = predicted(plan, machine, workload(num_sharing=3)).devices[0]
    # Of each of two others a block of 10,000 vertices, 1,000 destinations and 10,000 edges, a
    # partial product of 1,000 rows of 8, and a gradient of as many; three messages.
    block = 24 + 4 * (10_000 + 1_000 + 10_000)
    assert stages.exchange == pytest.approx(2 * (3e-3 + (block + 2 * 1_000 * 8 * 4) / 1e6))
    assert predicted(plan, machine).devices[0].exchange == 0
    wide = LayerCost(width_in=20, width_out=8, products=((40, 8),))
    fused = workload(host_aggregates=True, layers=(wide, workload().layers[1]))
    rows, topology = transfer_bytes(fused, fused.size(100))
    assert rows == pytest.approx(1000 * 40 * 4)
    assert topology == pytest.approx(8 * 101 + 4 * 1000)


def test_products_of_bfloat16_have_a_rate_of_their_own() -> None:
    for dtype, rates, macs, row_bytes in (
        ("float32", [4e9], MACS, ROW_BYTES),
        ("bfloat16", [4e9], MACS / 4, ROW_BYTES / 2),
        # Rates from elsewhere, which know of none.
        ("bfloat16", None, MACS, ROW_BYTES / 2),
    ):
        machine = platform(1, bfloat16_macs_per_s=rates)
        stages = predicted(ALONE, machine, workload(compute_dtype=dtype)).devices[0]
        assert stages.propagate == pytest.approx((macs + row_bytes) / 1e9, rel=1e-3)


def test_workers_wait_for_the_latest() -> None:
    two = plan_of(*ALONE.shares * 2)
    steady, varying = platform(2), platform(2, straggler_wait=0.1)
    known, found = (predicted(two, machine) for machine in (steady, varying))
    stages = known.devices[0]
    own_s = stages.sample + stages.load + stages.propagate
    assert found.step_s == pytest.approx(known.step_s + 0.1 * own_s)
    # What an accelerator does takes the same time in every step.
    slow = plan_of(*[share(accelerator(macs_per_s=1e6), threads=(1, 1, 1))] * 2)
    known, found = (predicted(slow, machine) for machine in (steady, varying))
    busy_s = host_seconds(slow, [workload()] * 2, steady, None)[0]
    assert found.step_s == pytest.approx(known.step_s + 0.1 * sum(busy_s.values()))
    assert predicted(ALONE, varying) == predicted(ALONE, steady)
    plan = plan_of(*map(share, cpus(2), (300, 100)))
    found = predicted(plan, platform(2))
    sums = [sum(vars(stages).values()) for stages in found.devices]
    assert sums == pytest.approx([found.step_s] * 2)
    assert found.devices[1].sync > found.devices[0].sync
    idle = predicted(plan_of(*map(share, cpus(2), (100, 0))), platform(2)).devices[1]
    assert (idle.sample, idle.load, idle.propagate) == (0, 0, 0)


def test_who_takes_turns_with_the_cores() -> None:
    four = plan_of(*map(share, cpus(4)))
    alone = predicted(ALONE, platform(1)).step_s
    assert predicted(four, platform(1)).step_s == pytest.approx(4 * alone, rel=0.02)
    overlapped = plan_of(share(Cpu(), prefetch="two_stage"))
    best = predicted(ALONE, platform(1)).step_s
    assert predicted(overlapped, platform(1)).step_s >= 0.97 * best
    plan, slow = plan_of(share(accelerator(), 100, "one_stage")), platform(2, macs_per_s=[1e6, 2e6])
    late, own = (predicted(plan, slow, emulates=each).devices[0] for each in (True, False))
    assert late.propagate > 10 * own.propagate
    # Calibration may find no limit of rows; others' use of the memory slows sampling still.
    machine = platform(2, memory_rows_per_s=[math.inf] * 2, memory_bandwidth=[1e9, 1e9])
    host = Host(processor=machine.processor, num_workers=2, emulates=False)
    known = workload(sampled=True)
    alone, beside = (host.sample(known, 100, known.size(100), 1, active) for active in (1, 2))
    assert beside == pytest.approx(2 * alone)


def test_threads_and_shares_of_planned_devices() -> None:
    work = workload(sampled=True)
    plan, found = planned([Cpu()], platform(2), work)
    assert plan.shares[0].threads == Threads(sample=2, load=2, propagate=2)
    assert plan.shares[0].prefetch == "none"
    assert found == predicted(plan, platform(2), work, emulates=False)
    plan, _ = planned([accelerator()], platform(4))
    assert plan.shares[0].prefetch in ("one_stage", "two_stage")
    assert plan.shares[0].threads.propagate == 0
    plan, _ = planned([*cpus(2), accelerator()], platform(2))
    assert [each.prefetch for each in plan.shares] == ["none", "none", "one_stage"]
    assert [each.host_threads for each in plan.shares] == [1, 1, 1]
    assert planned(cpus(2), platform(2))[0].split == (500, 500)
    for prefetch in ("none", "one_stage", "two_stage"):
        plan, _ = planned([Cpu(), accelerator()], platform(2), prefetch=prefetch)
        assert {each.prefetch for each in plan.shares} == {prefetch}
        assert min(vars(plan.shares[0].threads).values()) == 1
    assert planned(cpus(2), platform(2), split=[900, 100])[0].split == (900, 100)


def test_trainers_finish_together() -> None:
    slow, fast = (accelerator(macs_per_s=rate, link_bandwidth=1e12) for rate in (1e6, 3e6))
    plan, found = planned([slow, fast], platform(8, sampled_edges_per_s=[1e9, 8e9]))
    assert plan.split == pytest.approx((250, 750), abs=5)
    times = [stages.propagate for stages in found.devices]
    assert times[0] == pytest.approx(times[1], rel=0.02)


def test_splits_that_are_asked_for() -> None:
    # 3,072 bytes of weights with their moments; a slice of n seeds takes 9,200 n + 16 bytes:
    # rows 100 n * 20 * 4, offsets 8 (10 n + 1) + 8 (n + 1), edges 4 (100 n + 10 n), and hidden
    # rows with their gradients 8 (10 n * 8 + n * 4). A tenth stays free.
    devices = [Cpu(), accelerator(memory_bytes=3072 + -(-(300 * 9200 + 16) * 10 // 9))]
    plan, most = (planned(devices, platform(2), split=[1000 - n, n])[0] for n in (100, 320))
    assert [each.max_seeds for each in plan.shares] == [None, 300]
    # As asked for, and not a seed more.
    assert [each.max_seeds for each in most.shares] == [None, 320]
    assert plan.within_memory([0, 1000]) == (700, 300)
    with pytest.raises(ConfigError, match="accelerator: 400 of batch_size=1000 seeds"):
        planned(devices, platform(2), split=[600, 400])
    for options, message in (
        ({"split": [1000]}, "device_plan.split=[1000]: expected a number for each of 2 devices"),
        ({"split": [600, 600]}, "device_plan.split=[600, 600]: expected a sum of batch_size=1000"),
        ({"split": [1100, -100]}, "device_plan.split=[1100, -100]: expected numbers from 0 to"),
        ({"prefetch": "much"}, "runtime.prefetch=much: allowed are auto, none"),
    ):
        with one_line(begins=message):
            planned(cpus(2), platform(2), **options)


@pytest.mark.long
@settings(max_examples=20)
@given(
    num_cpus=st.integers(0, 3),
    num_accelerators=st.integers(0, 4),
    cores=st.sampled_from([1, 2, 3, 4, 8, 16]),
    batch_size=st.integers(8, 4000),
)
def test_no_plan_uses_more_threads_than_cores(
    num_cpus, num_accelerators, cores, batch_size
) -> None:
    devices = cpus(num_cpus)
    devices += [accelerator(f"accelerator:{i}") for i in range(num_accelerators)]
    if not devices:
        return
    work = workload(sampled=True)
    plan, found = planned(devices, platform(cores), work, batch_size=batch_size, emulates=True)
    assert plan.batch_size == batch_size
    assert plan.host_threads <= max(cores, len(devices))
    assert min(each.host_threads for each in plan.shares) >= 1
    assert found.step_s > 0


@pytest.mark.parametrize("prefetch", ["auto", "two_stage"])
def test_a_device_that_owns_its_steps_overlaps_them_by_itself(prefetch: str) -> None:
    figures = {"macs_per_s": 1e9, "memory_bandwidth": 1e9, "memory_bytes": 1 << 40}
    owning = Owning(link_bandwidth=1e9, **figures)
    plan, predicted = planned([owning], platform(4), prefetch=prefetch)
    (found,) = plan.shares
    assert (found.prefetch, found.num_seeds, found.host_threads) == ("device", 1000, 1)
    (stages,) = predicted.devices
    slowest = max(stages.sample, stages.load, stages.transfer, stages.propagate + stages.sync)
    assert predicted.step_s == pytest.approx(slowest)
    # Beside another device the host sums the gradients, and prepares its mini-batches.
    plan, _ = planned([*cpus(1), owning], platform(4), prefetch=prefetch)
    assert "device" not in {each.prefetch for each in plan.shares}
