"""When resource management decides, and how it goes on after an interruption."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from changed import put
from one_line import one_line
from small_plans import CPU, accelerator, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.planner import DevicePlan
from gnnscale.run.checkpoint.file import pack, unpack
from gnnscale.sampling import ShuffledOrder
from gnnscale.training.drm.rebalancer import Rebalancer, RebalancerState, medians
from gnnscale.training.pipeline.slices import Schedule

STEPS, LEAD = 60, 5
PLAN = plan_of(
    share(CPU, 60, 2, "two_stage"), share(accelerator(), 60, (1, 1, 0), "two_stage", max_seeds=100)
)


def times_of(plan: DevicePlan, step: int) -> list[StageTimes]:
    """Times that depend on plan and step alone, and differ from step to step by a tenth."""
    noise = random.Random(step)
    found = []
    for each, speed in zip(plan.shares, (3e-3, 1e-3), strict=True):
        seconds = speed * each.num_seeds * noise.uniform(0.95, 1.05)
        found.append(
            StageTimes(
                sample=seconds / each.threads.sample,
                load=2 * seconds / each.threads.load,
                transfer=seconds,
                propagate=4 * seconds / max(each.threads.propagate, 1),
            )
        )
    return found


def managed(
    plan: DevicePlan, first: int, state: RebalancerState | None = None, *, counted: bool = True
) -> tuple[Schedule, Rebalancer]:
    order = ShuffledOrder(np.arange(STEPS * 120), batch_size=120, seed=0)
    state = RebalancerState() if state is None else state
    from_here: dict[str, Any] = {"first_step": first, "lead_steps": LEAD}
    schedule = Schedule(order, plan, rank=0, epochs=2, pending=state.pending, **from_here)
    return schedule, Rebalancer(schedule, counted=counted, state=state, **from_here)


def observe(schedule: Schedule, rebalancer: Rebalancer, steps: Sequence[int]) -> list[DevicePlan]:
    """Observe steps, and return the plan of each."""
    plans = []
    for step in steps:
        plans.append(schedule.plan_of(step))
        rebalancer.observe(step, times_of(plans[-1], step), full=True)
    return plans


def test_an_interruption_after_any_step_changes_no_plan() -> None:
    whole = observe(*managed(PLAN, 0), range(STEPS))
    assert len(set(whole)) > 2
    pending = windows = trials = 0
    for stop in range(1, STEPS):
        schedule, rebalancer = managed(PLAN, 0)
        before = observe(schedule, rebalancer, range(stop))
        state = rebalancer.state(stop)
        pending += bool(state.pending)
        windows += bool(state.window)
        trials += state.damping.trial is not None
        plan = schedule.plan_of(stop)
        values = unpack(pack(state.to_values()))
        kept = RebalancerState.from_values(plan, values, step=stop)
        assert kept == state
        after = observe(*managed(plan, stop, kept), range(stop, STEPS))
        assert before + after == whole, stop
    # Interruptions came while plans were decided, while times were collected, and while a trade of
    # threads was on trial.
    assert min(pending, windows, trials) > 0


def test_the_first_steps_after_an_interruption_tell_nothing() -> None:
    # Memory is touched for the first time, whatever was known before.
    schedule, rebalancer = managed(PLAN, 0, counted=False)
    observe(schedule, rebalancer, range(4))
    state = rebalancer.state(4)
    assert (state.applies_from, len(state.window)) == (2, 2)
    _, rebalancer = managed(PLAN, 4, state, counted=False)
    for step in (4, 5):
        rebalancer.observe(step, times_of(PLAN, step), full=True)
    assert len(rebalancer.state(6).window) == 2


def test_plans_to_come_go_no_further_than_devices_hold() -> None:
    state = RebalancerState(pending=((9, PLAN.with_split([30, 90])),))
    smaller = plan_of(PLAN.shares[0], replace(PLAN.shares[1], max_seeds=70))
    found = RebalancerState.from_values(smaller, state.to_values(), step=5)
    ((first, later),) = found.pending
    assert first == 9
    assert later == smaller.with_split([50, 70])


#: A step, as it is kept.
SEEN: dict[str, Any] = {"step": 0, "stages": [{}, {}]}


@cache
def kept_values() -> dict[str, Any]:
    """What is kept while a plan is pending, and its trade of threads is on trial."""
    for stop in range(4, STEPS):
        schedule, rebalancer = managed(PLAN, 0)
        observe(schedule, rebalancer, range(stop))
        state = rebalancer.state(stop)
        if state.pending and state.damping.trial is not None:
            return {**state.to_values(), "window": [SEEN] * 2}
    raise AssertionError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("applies_from", "x"), "drm.applies_from: Expected `int`, got `str`"),
        (put("window", [SEEN] * 8), "drm.window: expected fewer than 8 steps of 2 devices"),
        (put("window", 0, "stages", 0, {"load": -1.0}), "expected seconds of at least 0, got -1.0"),
        (put("pending", 0, 0, 1), "ascending steps after"),
        (put("pending", 0, 1, []), "plan: expected 2 shares, got 0"),
        (put("pending", 0, 1, 0, "num_seeds", 5), "drm: expected plans of"),
        (put("pending", 0, 1, 0, "prefetch", "none"), "unchanged prefetching"),
        (put("pending", 0, 1, 0, "threads", "load", 10**6), "threads.load=1000000"),
        (put("damping", "fixed", [1.0, -1.0]), "drm.damping.fixed[1]: Expected `float` >= 0.0"),
        (put("damping", "seconds", [1.0]), "drm.damping.seconds: expected values of 2 devices"),
        (put("damping", "excluded_devices", [2]), "excluded_devices: expected positions below 2"),
        (put("damping", "trial", "trade", "giver", "device", 7), "device 7 has no"),
        (put("damping", "trial", "trade", "receiver", {"device": 1, "task": "T_SC"}), "threads"),
    ],
)
def test_values_of_something_else_are_one_line(change, message) -> None:
    values = dict(kept_values())
    step = values["pending"][0][0] - 1
    RebalancerState.from_values(PLAN, values, step=step)
    change(values)
    with one_line(message, error=ValueError, shorter_than=300):
        RebalancerState.from_values(PLAN, values, step=step)


def test_steps_as_version_0_2_kept_them_are_left_out() -> None:
    values = dict(kept_values())
    step = values["pending"][0][0] - 1
    known = RebalancerState.from_values(PLAN, values, step=step)
    damping = {name: each for name, each in values["damping"].items() if name != "sampled"}
    former = {**values, "window": [[{}, {}]] * 2, "damping": damping}
    found = RebalancerState.from_values(PLAN, former, step=step)
    assert found == replace(known, window=(), damping=replace(known.damping, sampled=()))


def test_medians_by_hand() -> None:
    steps = [
        (StageTimes(sample=1.0, load=5.0), StageTimes(sync=2.0)),
        (StageTimes(sample=9.0, load=4.0), StageTimes(sync=1.0)),
        (StageTimes(sample=2.0, load=6.0), StageTimes(sync=7.0)),
    ]
    assert medians(steps) == (StageTimes(sample=2.0, load=5.0), StageTimes(sync=2.0))


def test_a_decision_applies_to_steps_that_are_not_under_way() -> None:
    order = ShuffledOrder(np.arange(12_000), batch_size=120, seed=0)
    able = share(accelerator(), 60, (1, 1, 0), "two_stage")
    plan = plan_of(share(CPU, 60, prefetch="two_stage"), able)
    schedule = Schedule(order, plan, rank=0, epochs=1, first_step=0, lead_steps=3)
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
