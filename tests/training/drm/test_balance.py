"""Sampling, threads and seeds move until all devices are done at the same time."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import CPU, accelerator, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.planner import Device, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.training.drm.balance import (
    BalanceInput,
    balance_sampling,
    balance_thread,
    balance_work,
    expected_seconds,
    sample_times,
    steps_to_see,
)
from gnnscale.training.drm.damping import Damping
from gnnscale.training.drm.rebalancer import medians, rebalance
from gnnscale.training.drm.task_times import HostTask, SampleTimes, TaskTimes, ThreadMove

#: An accelerator for which the host samples, and one that samples by itself.
OTHER = accelerator("other:1")
ABLE: Device = replace(accelerator("able:1"), sampled_edges_per_s=1.0)


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
def test_moves_by_hand(host_samples, known, expected) -> None:
    found = moved(hybrid(host_samples=host_samples), known)
    assert found == (None if expected is None else pytest.approx(expected))


def test_what_cannot_sample_beside_the_host_is_left_alone() -> None:
    for plan in (hybrid(OTHER), hybrid(prefetch="one_stage")):
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


def test_a_decision_sees_a_whole_turn() -> None:
    assert [steps_to_see(hybrid(host_samples=each), 3) for each in (0, 1, 7, 8)] == [3, 8, 8, 3]


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
def test_decisions_settle_where_the_step_is_shortest(on_host, expected) -> None:
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


ALL = ("T_SC", "T_Load", "T_TC")
EMULATED_CPU = Emulated(macs_per_s=1, memory_bandwidth=1, memory_bytes=1)


def trade(
    shares: list[DeviceShare],
    stages: list[StageTimes],
    bottleneck: str = "T_TC",
    givers: tuple[str, ...] = ALL,
    tabu_trades: tuple[ThreadMove, ...] = (),
) -> tuple[ThreadMove, float] | None:
    plan = plan_of(*shares)
    pairs = zip(shares, stages, strict=True)
    tasks = [TaskTimes.for_device(each, times).tasks() for each, times in pairs]
    move = balance_thread(
        plan, tasks, givers=givers, bottleneck=bottleneck, tabu_trades=tabu_trades
    )
    if move is None:
        return None
    assert move.trade is not None
    assert move.plan == move.trade.apply(plan)
    return move.trade, move.promise


def lanes(giver: tuple[int, str], receiver: tuple[int, str]) -> ThreadMove:
    giving, receiving = (HostTask(device=each[0], task=each[1]) for each in (giver, receiver))
    return ThreadMove(giver=giving, receiver=receiving)


def test_a_thread_goes_from_the_fastest_task_to_the_slowest_device() -> None:
    shares = [
        share(threads=2, prefetch="two_stage"),
        share(accelerator(), threads=(3, 2, 0), prefetch="two_stage"),
    ]
    stages = [StageTimes(sample=1, load=2, propagate=9), StageTimes(sample=1, load=12)]
    found = trade(shares, stages, "T_Load", ("T_SC", "T_TC", "T_Load"))
    # The accelerator's sampler has most threads; 12 s with two threads are 8 s with three.
    assert found == (lanes((1, "T_SC"), (1, "T_Load")), pytest.approx(1 / 3))
    after = found[0].apply(plan_of(*shares))
    assert after.shares[1].threads == Threads(sample=2, load=3, propagate=0)
    assert after.shares[0] == shares[0]
    # The next task gives where the fastest has one thread.
    shares = [share(threads=(1, 2, 2), prefetch="two_stage")]
    found = trade(shares, [StageTimes(sample=1, load=2, propagate=9)])
    assert found == (lanes((0, "T_Load"), (0, "T_TC")), pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("of", "stages"),
    [
        # With one thread, sampling or loading would take 10 s.
        (share(threads=2, prefetch="two_stage"), StageTimes(sample=5, load=5, propagate=9)),
        # There is none to spare.
        (share(prefetch="two_stage"), StageTimes(sample=1, load=1, propagate=9)),
        # Stages take turns.
        (share(threads=4), StageTimes(sample=1, propagate=9)),
        # The device computes itself.
        (share(EMULATED_CPU, 8, (4, 4, 0), "two_stage"), StageTimes(sample=1, load=1, propagate=9)),
    ],
    ids=["missed more", "none to spare", "in turn", "computes itself"],
)
def test_no_thread_moves_where_it_is_of_no_use(of, stages) -> None:
    assert trade([of], [stages]) is None


def test_sampling_and_loading_in_turn_share_the_thread_they_get() -> None:
    shares = [share(threads=(2, 2, 3), prefetch="one_stage")]
    stages = [StageTimes(sample=5, load=5, propagate=3)]
    found = trade(shares, stages, "T_Load", ("T_TC", "T_Load"))
    assert found == (lanes((0, "T_TC"), (0, "T_Load")), pytest.approx(1 / 3))
    after = found[0].apply(plan_of(*shares))
    assert after.shares[0].threads == Threads(sample=3, load=3, propagate=2)
    assert after.host_threads == 5


def test_barred_trades_are_not_made() -> None:
    shares = [share(threads=(3, 1, 2), prefetch="two_stage")]
    stages = [StageTimes(sample=1, load=2, propagate=9)]
    there = lanes((0, "T_SC"), (0, "T_TC"))
    assert trade(shares, stages) is not None
    assert trade(shares, stages, tabu_trades=(there,)) is None
    assert there.reverse.apply(there.apply(plan_of(*shares))) == plan_of(*shares)


@pytest.mark.parametrize(
    ("split", "seconds", "options", "expected"),
    [
        # 10 and 30 seeds a second.
        ([200, 200], [20.0, 20 / 3], {}, (100, 300)),
        # The CPU does 10 seeds a second, the accelerators 10 and 20.
        ([40, 40, 40], [4.0, 4.0, 2.0], {}, (30, 30, 60)),
        # 2 s + n / 10 and n / 30: equal after 12.5 s.
        ([200, 280], [22.0, 28 / 3], {"fixed": [2.0, 0.0]}, (105, 375)),
        # A device that needs longer for nothing gets none.
        ([10, 90], [11.0, 3.0], {"fixed": [10.0, 0.0]}, (0, 100)),
        # A part of the way.
        ([200, 200], [20.0, 20 / 3], {"gain": 0.5}, (150, 250)),
        # An idle device gets a few seeds, unless it was given up.
        ([160, 0], [1.0, 0.0], {}, (150, 10)),
        ([0, 0, 240], [0.0, 0.0, 1.0], {}, (10, 10, 220)),
        ([160, 0], [1.0, 0.0], {"excluded_devices": [1]}, (160, 0)),
        # Too few for everyone.
        ([1, 0], [1.0, 0.0], {}, (1, 0)),
    ],
)
def test_seeds_go_where_they_take_equally_long(split, seconds, options, expected) -> None:
    assert balance_work(split, seconds, **options) == expected


@settings(max_examples=30)
@given(st.data())
def test_the_mini_batch_stays_whole(data) -> None:
    num = data.draw(st.integers(1, 6))
    split = data.draw(st.lists(st.integers(0, 2000), min_size=num, max_size=num).filter(any))
    times = st.floats(0, 10, allow_subnormal=False)
    seconds = data.draw(st.lists(times, min_size=num, max_size=num))
    parts = data.draw(st.lists(st.floats(0, 0.9), min_size=num, max_size=num))
    fixed = [part * each for part, each in zip(parts, seconds, strict=True)]
    gain = data.draw(st.floats(0.1, 1))
    excluded_devices = data.draw(st.sets(st.integers(0, num - 1)))
    result = balance_work(split, seconds, fixed=fixed, gain=gain, excluded_devices=excluded_devices)
    assert sum(result) == sum(split)
    assert min(result) >= 0
    assert all(result[i] == 0 for i in excluded_devices if split[i] == 0)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(1e-3, 10)), min_size=1, max_size=5))
def test_no_move_is_expected_to_make_it_slower(devices) -> None:
    split, seconds = zip(*devices, strict=True)
    result = balance_work(split, seconds)
    # A seed more than the exact share, from rounding.
    rounding = max(each / count for count, each in devices)
    assert expected_seconds(split, seconds, result) <= max(seconds) + rounding
