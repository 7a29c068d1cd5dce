from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.plan.perf.correction import correct
from gnnscale.plan.perf.predict import predict
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform

Build = Callable[..., Workload]
Machine = Callable[..., Platform]
Accelerator = Callable[..., Emulated]


def plan_of(device: Cpu | Emulated, *, seeds: int = 100, prefetch: str = "none") -> DevicePlan:
    threads = Threads(sample=1, load=1, propagate=0 if isinstance(device, Emulated) else 1)
    share = DeviceShare(device=device, num_seeds=seeds, threads=threads, prefetch=prefetch)
    return DevicePlan(shares=(share,))


def slower(stages: StageTimes, **times: float) -> StageTimes:
    return replace(stages, **{name: getattr(stages, name) * by for name, by in times.items()})


def test_a_rehearsal_as_predicted_corrects_nothing(workload: Build, platform: Machine) -> None:
    plan = plan_of(Cpu())
    expected = predict(plan, [workload()] * len(plan.shares), platform(1))
    found = correct(
        plan, [workload()] * len(plan.shares), platform(1), expected.devices, expected.step_s
    )
    assert found.step == pytest.approx(1)
    assert found.host[0] == pytest.approx({"sample": 1, "load": 1, "propagate": 1})


def test_each_stage_is_as_slow_as_in_the_rehearsal(workload: Build, platform: Machine) -> None:
    plan = plan_of(Cpu())
    expected = predict(plan, [workload()] * len(plan.shares), platform(1))
    measured = slower(expected.devices[0], sample=2, load=3, propagate=0.5)
    step_s = 1.25 * (measured.sample + measured.load + measured.propagate)
    found = correct(plan, [workload()] * len(plan.shares), platform(1), [measured], step_s)
    assert found.host[0] == pytest.approx({"sample": 2, "load": 3, "propagate": 0.5})
    assert found.step == pytest.approx(1.25, rel=1e-2)
    corrected = predict(plan, [workload()] * len(plan.shares), platform(1), correction=found)
    assert corrected.step_s == pytest.approx(step_s)
    assert corrected.devices[0].load == pytest.approx(measured.load)
    # What it taught holds for another split too: times and seeds are in proportion here.
    smaller = predict(plan_of(Cpu(), seeds=50), [workload()], platform(1), correction=found)
    assert smaller.step_s == pytest.approx(step_s / 2, rel=0.01)


def test_stages_that_overlap_take_what_they_took(workload: Build, platform: Machine) -> None:
    shares = [plan_of(Cpu(name=str(i)), prefetch="two_stage").shares[0] for i in range(2)]
    plan = DevicePlan(shares=tuple(shares))
    machine = platform(2, compute_contention=1.2, memory_contention=1.3)
    expected = predict(plan, [workload()] * len(plan.shares), machine)
    measured = [slower(expected.devices[i], load=2, propagate=1.5 + i) for i in range(2)]
    step_s = 1.1 * max(each.propagate for each in measured)
    found = correct(plan, [workload()] * len(plan.shares), machine, measured, step_s)
    corrected = predict(plan, [workload()] * len(plan.shares), machine, correction=found)
    assert corrected.step_s == pytest.approx(step_s)
    for was, now in zip(measured, corrected.devices, strict=True):
        assert now.sample == pytest.approx(was.sample, rel=0.02)
        assert now.load == pytest.approx(was.load, rel=0.02)
        assert now.propagate == pytest.approx(was.propagate, rel=0.02)


def test_what_a_device_makes_last_says_nothing_of_the_host(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    plan = plan_of(accelerator(macs_per_s=1e6, memory_bandwidth=1e6), prefetch="one_stage")
    expected = predict(plan, [workload()] * len(plan.shares), platform(2))
    found = correct(
        plan, [workload()] * len(plan.shares), platform(2), expected.devices, expected.step_s
    )
    assert found.host[0]["propagate"] == 1
    assert predict(
        plan, [workload()] * len(plan.shares), platform(2), correction=found
    ).step_s == pytest.approx(expected.step_s)


def test_a_device_that_the_host_is_too_slow_for(
    workload: Build, platform: Machine, accelerator: Accelerator
) -> None:
    plan = plan_of(accelerator(), prefetch="one_stage")
    expected = predict(plan, [workload()] * len(plan.shares), platform(2))
    late = slower(expected.devices[0], propagate=3)
    found = correct(plan, [workload()] * len(plan.shares), platform(2), [late], expected.step_s)
    corrected = predict(plan, [workload()] * len(plan.shares), platform(2), correction=found)
    assert corrected.devices[0].propagate == pytest.approx(late.propagate)


def test_a_device_without_seeds_teaches_nothing(workload: Build, platform: Machine) -> None:
    shares = (plan_of(Cpu(name="a")).shares[0], plan_of(Cpu(name="b"), seeds=0).shares[0])
    plan = DevicePlan(shares=shares)
    expected = predict(plan, [workload()] * len(plan.shares), platform(2))
    found = correct(
        plan, [workload()] * len(plan.shares), platform(2), expected.devices, 2 * expected.step_s
    )
    assert found.host[1] == {}
    assert found.step == pytest.approx(2)
