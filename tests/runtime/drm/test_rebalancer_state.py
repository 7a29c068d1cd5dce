"""Resource management that was interrupted goes on as if it had not been."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.runtime.checkpoint.file import pack, unpack
from gnnscale.runtime.drm.rebalancer import Rebalancer, RebalancerState
from gnnscale.runtime.pipeline.schedule import Schedule
from gnnscale.sampler import ShuffledOrder

STEPS, LEAD = 60, 5
Change = Callable[[dict[str, Any]], object]


def first_plan(threads: int = 2) -> DevicePlan:
    cpu = DeviceShare(
        device=Cpu(name="cpu:0"),
        num_seeds=60,
        threads=Threads(sample=threads, load=threads, propagate=threads),
        prefetch="two_stage",
    )
    device = Emulated(
        name="emulated:1", macs_per_s=1, memory_bandwidth=1, memory_bytes=1, link_bandwidth=1
    )
    other = replace(cpu, device=device, threads=Threads(sample=1, load=1, propagate=0))
    return DevicePlan(shares=(cpu, replace(other, max_seeds=100)))


def times_of(plan: DevicePlan, step: int) -> list[StageTimes]:
    """Times that depend on plan and step alone, and differ from step to step by a tenth."""
    noise = random.Random(step)
    found = []
    for share, speed in zip(plan.shares, (3e-3, 1e-3), strict=True):
        each = speed * share.num_seeds * noise.uniform(0.95, 1.05)
        threads = share.threads
        found.append(
            StageTimes(
                sample=each / threads.sample,
                load=2 * each / threads.load,
                transfer=each,
                propagate=4 * each / max(threads.propagate, 1),
            )
        )
    return found


def managed(
    plan: DevicePlan, first: int, state: RebalancerState | None = None, *, counted: bool = True
) -> tuple[Schedule, Rebalancer]:
    order = ShuffledOrder(np.arange(STEPS * 120), batch_size=120, seed=0)
    state = RebalancerState() if state is None else state
    schedule = Schedule(
        order,
        plan,
        rank=0,
        epochs=2,
        first_step=first,
        lead_steps=LEAD,
        pending=state.pending,
    )
    return schedule, Rebalancer(
        schedule, first_step=first, lead_steps=LEAD, counted=counted, state=state
    )


def observe(schedule: Schedule, rebalancer: Rebalancer, steps: Sequence[int]) -> list[DevicePlan]:
    """Observe steps, and return the plan of each."""
    plans = []
    for step in steps:
        plans.append(schedule.plan_of(step))
        rebalancer.observe(step, times_of(plans[-1], step), full=True)
    return plans


def test_an_interruption_after_any_step_changes_no_plan() -> None:
    whole = observe(*managed(first_plan(), 0), range(STEPS))
    assert len(set(whole)) > 2
    pending = windows = trials = 0
    for stop in range(1, STEPS):
        schedule, rebalancer = managed(first_plan(), 0)
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
    schedule, rebalancer = managed(first_plan(), 0, counted=False)
    observe(schedule, rebalancer, range(4))
    state = rebalancer.state(4)
    assert (state.applies_from, len(state.window)) == (2, 2)
    _, rebalancer = managed(first_plan(), 4, state, counted=False)
    rebalancer.observe(4, times_of(first_plan(), 4), full=True)
    rebalancer.observe(5, times_of(first_plan(), 5), full=True)
    assert len(rebalancer.state(6).window) == 2


def test_plans_to_come_go_no_further_than_devices_hold() -> None:
    plan = first_plan()
    state = RebalancerState(pending=((9, plan.with_split([30, 90])),))
    smaller = DevicePlan(shares=(plan.shares[0], replace(plan.shares[1], max_seeds=70)))
    found = RebalancerState.from_values(smaller, state.to_values(), step=5)
    ((first, later),) = found.pending
    assert first == 9
    assert later == smaller.with_split([50, 70])


@cache
def kept_values() -> dict[str, Any]:
    """What is kept while a plan is pending, and its trade of threads is on trial."""
    for stop in range(4, STEPS):
        schedule, rebalancer = managed(first_plan(), 0)
        observe(schedule, rebalancer, range(stop))
        state = rebalancer.state(stop)
        if state.pending and state.damping.trial is not None:
            return {**state.to_values(), "window": [[{}] * 2] * 2}
    raise AssertionError


def put(*path: Any) -> Change:
    """Set an entry: all arguments but the last are its keys."""
    *keys, last, value = path

    def change(values: dict[str, Any]) -> None:
        node: Any = values
        for key in keys:
            node = node[key]
        node[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("applies_from", "x"), "drm.applies_from: Expected `int`, got `str`"),
        (put("applies_from", -1), "drm.applies_from: Expected `int` >= 0"),
        (put("window", 5), "drm.window: Expected `array`, got `int`"),
        (put("window", [[{}]]), "drm.window: not fewer than 3 steps of all devices"),
        (put("window", [[{}, {}]] * 3), "drm.window: not fewer than 3 steps of all devices"),
        (put("window", 0, 0, {"load": -1.0}), "drm.window: -1.0 seconds"),
        (put("window", 0, 0, {"load": float("nan")}), "window[0][0].load: Expected a finite"),
        (put("pending", 5), "drm.pending: Expected `array`, got `int`"),
        (put("pending", [[1]]), "drm.pending[0]: Expected `array` of length 2"),
        (put("pending", 0, 0, 1), "plans from steps [1] on"),
        (put("pending", 0, 0, "x"), "drm.pending[0][0]: Expected `int`, got `str`"),
        (put("pending", 0, 1, 5), "plan: Expected `array`, got `int`"),
        (put("pending", 0, 1, []), "a plan for 0 devices"),
        (put("pending", 0, 1, 0, "num_seeds", 5), "a plan shares out"),
        (put("pending", 0, 1, 0, "prefetch", "none"), "prefetches in another way"),
        (put("pending", 0, 1, 0, "threads", "load", 10**6), "threads.load=1000000"),
        (put("damping", None), "drm.damping: Expected `object`, got `null`"),
        (put("damping", "plan", 5), "plan: Expected `array`, got `int`"),
        (put("damping", "plan", None), "drm.damping.seconds: not of 2 devices"),
        (put("damping", "seconds", [1.0]), "drm.damping.seconds: not of 2 devices"),
        (put("damping", "fixed", [1.0, -1.0]), "drm.damping.fixed[1]: Expected `float` >= 0.0"),
        (put("damping", "shift", [1]), "drm.damping.shift: not of 2 devices"),
        (put("damping", "count", -1), "drm.damping.count: Expected `int` >= 0"),
        (put("damping", "gain", 0.0), "drm.damping.gain: Expected `float` > 0.0"),
        (put("damping", "excluded_devices", [2]), "excluded_devices: there are 2 devices"),
        (put("damping", "tabu_trades", [5]), "drm.damping.tabu_trades[0]: Expected `array`"),
        (put("damping", "tabu_trades", [[{}, 5]]), "tabu_trades[0][0]: Object missing"),
        (put("damping", "trial", "trade", "giver", "device", 7), "of device 7"),
        (put("damping", "trial", "trade", "receiver", "task", "x"), "no x of device"),
        (put("damping", "trial", "trade", "receiver", {"device": 1, "task": "T_SC"}), "threads"),
    ],
)
def test_values_of_something_else_are_one_line(change: Change, message: str) -> None:
    values = copy.deepcopy(kept_values())
    plan, step = first_plan(), values["pending"][0][0] - 1
    RebalancerState.from_values(plan, values, step=step)
    change(values)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        RebalancerState.from_values(plan, values, step=step)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300
