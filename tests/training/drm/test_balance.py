"""Sampling moves between an accelerator and the host until both are done at the same time."""

import itertools
import random
from dataclasses import replace

import pytest
from small_plans import CPU, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.planner import Device, DevicePlan, DeviceShare, Emulated
from gnnscale.training.drm.balance import BalanceInput, balance_sampling, sample_times, steps_to_see
from gnnscale.training.drm.damping import Damping
from gnnscale.training.drm.rebalancer import medians, rebalance
from gnnscale.training.drm.task_times import SampleTimes, TaskTimes

FIGURES = {"macs_per_s": 1, "memory_bandwidth": 1, "memory_bytes": 1, "link_bandwidth": 1}
#: An accelerator that samples by itself, and one for which the host samples.
ABLE: Device = Emulated(name="able:1", sampled_edges_per_s=1.0, **FIGURES)
OTHER: Device = Emulated(name="other:1", **FIGURES)


def hybrid(device: Device = ABLE, prefetch: str = "two_stage", **fields: int) -> DevicePlan:
    return plan_of(
        share(CPU, 60, 1, prefetch), share(device, 60, (1, 1, 0), prefetch=prefetch, **fields)
    )


def tasks_of(plan: DevicePlan, known: SampleTimes) -> list[dict[str, float]]:
    """Both devices train for 4 s; the accelerator samples as is ``known``."""
    times = StageTimes(sample=known.on_device or 0.0, propagate=4.0)
    cpu = TaskTimes.for_device(plan.shares[0], StageTimes(sample=1.0, propagate=4.0))
    return [cpu.tasks(), TaskTimes.for_device(plan.shares[1], times, known).tasks()]


def moved(plan: DevicePlan, known: SampleTimes) -> tuple[int, float] | None:
    found = balance_sampling(plan, tasks_of(plan, known), [SampleTimes(), known], gain=0.5)
    if found is None:
        return None
    assert (found.sampling_of, found.gain) == (1, 0.5)
    assert replace(found.plan.shares[1], host_samples=plan.shares[1].host_samples) == plan.shares[1]
    return found.plan.shares[1].host_samples, found.promise


@pytest.mark.parametrize(
    ("host_samples", "known", "expected"),
    [
        # Nobody knows how fast the host is: it samples one in eight.
        (0, SampleTimes(on_device=16.0), (1, 1.0)),
        # Three in eight take the device 10 s and the host 9 s, four the host 12 s.
        (1, SampleTimes(on_device=16.0, on_host=24.0), (3, 1 - 10 / 14)),
        # The host was given too many.
        (7, SampleTimes(on_device=16.0, on_host=24.0), (3, 1 - 10 / 21)),
        # As fast as training is fast enough; of equals the nearest is taken.
        (0, SampleTimes(on_device=8.0, on_host=1.0), (4, 0.5)),
        # The device was left without any, and nobody knows how fast it is.
        (8, SampleTimes(on_host=16.0), (7, 1.0)),
        # Sampling is not what takes longest.
        (0, SampleTimes(on_device=3.0, on_host=1.0), None),
    ],
)
def test_moves_by_hand(host_samples: int, known: SampleTimes, expected: object) -> None:
    found = moved(hybrid(host_samples=host_samples), known)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("plan", [hybrid(OTHER), hybrid(prefetch="one_stage")])
def test_what_cannot_sample_beside_the_host_is_left_alone(plan: DevicePlan) -> None:
    assert moved(plan, SampleTimes(on_device=16.0)) is None


def test_times_are_told_apart_by_who_has_sampled() -> None:
    plan = hybrid(host_samples=2)
    by_host = [step for step in range(16) if plan.shares[1].host_samples_at(step)]
    assert by_host == [3, 7, 11, 15]
    steps = [
        BalanceInput(
            step=step,
            stages=(StageTimes(sample=9), StageTimes(sample=5.0 if step in by_host else step)),
        )
        for step in (1, 2, 3, 6)
    ]
    assert sample_times(plan, steps) == (SampleTimes(), SampleTimes(on_device=2.0, on_host=5.0))
    assert sample_times(plan, steps[:2])[1] == SampleTimes(on_device=1.5)
    assert sample_times(hybrid(OTHER), steps) == (SampleTimes(), SampleTimes())


@pytest.mark.parametrize(("host_samples", "expected"), [(0, 3), (1, 8), (7, 8), (8, 3)])
def test_a_decision_sees_a_whole_turn(host_samples: int, expected: int) -> None:
    assert steps_to_see(hybrid(host_samples=host_samples), 3) == expected


def measured(
    plan: DevicePlan, first: int, rng: random.Random, on_host: float
) -> list[BalanceInput]:
    """Eight steps, in which both devices train for 30 ms and the accelerator samples for 80."""

    def seconds(each: DeviceShare, step: int) -> float:
        return rng.uniform(0.95, 1.05) * (on_host if each.host_samples_at(step) else 0.080)

    return [
        BalanceInput(
            step=step,
            stages=(
                StageTimes(sample=0.010, propagate=0.030),
                StageTimes(sample=seconds(plan.shares[1], step), propagate=0.030),
            ),
        )
        for step in range(first, first + 8)
    ]


@pytest.mark.parametrize(("on_host", "expected"), [(0.080, {4}), (0.160, {2, 3}), (2.0, {0})])
def test_decisions_settle_where_the_step_is_shortest(on_host: float, expected: set[int]) -> None:
    plan, damping, rng = hybrid(), Damping(), random.Random(0)
    plans, moves = [plan], []
    for turn in range(24):
        steps = measured(plan, 8 * turn, rng, on_host)
        decision = rebalance(
            plan,
            medians([each.stages for each in steps]),
            damping,
            movable=False,
            sampled=sample_times(plan, steps),
        )
        plan, damping = decision.plan, decision.damping
        plans.append(plan)
        moves.append(decision.move)
    assert str(moves[0]).startswith("T_SA ")
    assert str(moves[0]).endswith("the host samples 1 of 8 mini-batches of able:1")
    assert {each.shares[1].host_samples for each in plans[6:]} <= expected
    assert sum(old != new for old, new in itertools.pairwise(plans[6:])) <= 1
