from __future__ import annotations

import numpy as np

from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.runtime.drm.rebalancer import Rebalancer, medians
from gnnscale.runtime.pipeline.schedule import Schedule
from gnnscale.sampler import ShuffledOrder

ACCELERATOR = Emulated(
    name="emulated:1", macs_per_s=1, memory_bandwidth=1, memory_bytes=1, link_bandwidth=1
)


def share(device: Cpu | Emulated, num_seeds: int) -> DeviceShare:
    threads = Threads(sample=1, load=1, propagate=int(device.kind == "cpu"))
    return DeviceShare(device=device, num_seeds=num_seeds, threads=threads, prefetch="two_stage")


def schedule_of(plan: DevicePlan, lead_steps: int) -> Schedule:
    train_idx = np.arange(100 * plan.batch_size)
    order = ShuffledOrder(train_idx, batch_size=plan.batch_size, seed=0)
    return Schedule(order, plan, rank=0, epochs=1, first_step=0, lead_steps=lead_steps)


def test_medians_by_hand() -> None:
    steps = [
        (StageTimes(sample=1.0, load=5.0), StageTimes(sync=2.0)),
        (StageTimes(sample=9.0, load=4.0), StageTimes(sync=1.0)),
        (StageTimes(sample=2.0, load=6.0), StageTimes(sync=7.0)),
    ]
    assert medians(steps) == (StageTimes(sample=2.0, load=5.0), StageTimes(sync=2.0))


def test_a_decision_applies_to_steps_that_are_not_under_way() -> None:
    plan = DevicePlan(shares=(share(Cpu(name="cpu:0"), 60), share(ACCELERATOR, 60)))
    schedule = schedule_of(plan, lead_steps=3)
    rebalancer = Rebalancer(schedule, first_step=0, lead_steps=3)
    slow = (StageTimes(propagate=0.3), StageTimes(propagate=0.1))
    # The first steps tell nothing, the median is of three, and the last of an epoch is not full.
    full = [True, True, True, False, True, True]
    decisions = [rebalancer.observe(step, slow, full=each) for step, each in enumerate(full)]
    assert decisions[:5] == [None] * 5
    assert decisions[5] is not None
    assert [schedule.plan_of(step) for step in range(8)] == [plan] * 8
    later = schedule.plan_of(8)
    assert later.shares[0].num_seeds < 60 < later.shares[1].num_seeds
    assert later.batch_size == 120


def test_even_devices_keep_their_plan() -> None:
    plan = DevicePlan(shares=(share(Cpu(name="cpu:0"), 60), share(ACCELERATOR, 60)))
    schedule = schedule_of(plan, lead_steps=1)
    rebalancer = Rebalancer(schedule, first_step=0, lead_steps=1)
    even = (StageTimes(propagate=0.1), StageTimes(propagate=0.1))
    assert [rebalancer.observe(step, even, full=True) for step in range(9)] == [None] * 9
    assert schedule.plan_of(10) == plan
