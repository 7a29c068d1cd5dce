from collections.abc import Sequence
from dataclasses import replace

import pytest
from round_figures import accelerator, plan_of, platform, predicted, share, workload

from gnnscale.core.stages import StageTimes
from gnnscale.planner import Cpu, DevicePlan
from gnnscale.planner.cost_model.corrections import correct
from gnnscale.planner.cost_model.predict import Correction
from gnnscale.planner.platform import Platform


def slower(stages: StageTimes, **times: float) -> StageTimes:
    return replace(stages, **{name: getattr(stages, name) * by for name, by in times.items()})


def learnt(
    plan: DevicePlan, machine: Platform, measured: Sequence[StageTimes], step_s: float
) -> Correction:
    return correct(plan, [workload()] * len(plan.shares), machine, measured, step_s)


def test_what_a_rehearsal_teaches() -> None:
    plan, machine = plan_of(share(Cpu())), platform(1)
    measured = slower(predicted(plan, machine).devices[0], sample=2, load=3, propagate=0.5)
    step_s = 1.25 * (measured.sample + measured.load + measured.propagate)
    found = learnt(plan, machine, [measured], step_s)
    assert found.host[0] == pytest.approx({"sample": 2, "load": 3, "propagate": 0.5})
    assert found.step == pytest.approx(1.25, rel=1e-2)
    corrected = predicted(plan, machine, correction=found)
    assert corrected.step_s == pytest.approx(step_s)
    assert corrected.devices[0].load == pytest.approx(measured.load)
    # What it taught holds for another split too: times and seeds are in proportion here.
    smaller = predicted(plan_of(share(Cpu(), 50)), machine, correction=found)
    assert smaller.step_s == pytest.approx(step_s / 2, rel=0.01)
    plan = plan_of(*(share(Cpu(name=name), prefetch="two_stage") for name in "ab"))
    machine = platform(2, compute_contention=1.2, memory_contention=1.3)
    expected = predicted(plan, machine)
    measured = [slower(expected.devices[i], load=2, propagate=1.5 + i) for i in range(2)]
    step_s = 1.1 * max(each.propagate for each in measured)
    found = learnt(plan, machine, measured, step_s)
    corrected = predicted(plan, machine, correction=found)
    assert corrected.step_s == pytest.approx(step_s)
    for was, now in zip(measured, corrected.devices, strict=True):
        for stage in ("sample", "load", "propagate"):
            assert getattr(now, stage) == pytest.approx(getattr(was, stage), rel=0.02)
    slow = accelerator(macs_per_s=1e6, memory_bandwidth=1e6)
    plan, machine = plan_of(share(slow, prefetch="one_stage")), platform(2)
    expected = predicted(plan, machine)
    found = learnt(plan, machine, expected.devices, expected.step_s)
    assert found.host[0]["propagate"] == 1
    corrected = predicted(plan, machine, correction=found)
    assert corrected.step_s == pytest.approx(expected.step_s)
    # The host may be too slow for a fast one.
    plan = plan_of(share(accelerator(), prefetch="one_stage"))
    expected = predicted(plan, machine)
    late = slower(expected.devices[0], propagate=3)
    corrected = predicted(plan, machine, correction=learnt(plan, machine, [late], expected.step_s))
    assert corrected.devices[0].propagate == pytest.approx(late.propagate)
    plan, machine = plan_of(share(Cpu(name="a")), share(Cpu(name="b"), 0)), platform(2)
    expected = predicted(plan, machine)
    found = learnt(plan, machine, expected.devices, 2 * expected.step_s)
    assert found.host[1] == {}
    assert found.step == pytest.approx(2)
