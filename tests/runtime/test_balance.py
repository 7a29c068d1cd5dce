from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.metrics import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.runtime.balance import (
    Lane,
    Trade,
    balance_thread,
    balance_work,
    expected_seconds,
)
from gnnscale.runtime.task_times import TaskTimes


def test_seeds_go_where_they_take_equally_long() -> None:
    # 10 and 30 seeds a second.
    assert balance_work([200, 200], [20.0, 20 / 3]) == (100, 300)


def test_devices_of_one_side_are_balanced_among_each_other() -> None:
    # The CPU does 10 seeds a second, the accelerators 10 and 20.
    assert balance_work([40, 40, 40], [4.0, 4.0, 2.0]) == (30, 30, 60)


def test_time_that_does_not_depend_on_seeds_is_left_alone() -> None:
    # 2 s + n / 10 and n / 30: equal after 12.5 s.
    assert balance_work([200, 280], [22.0, 28 / 3], fixed=[2.0, 0.0]) == (105, 375)


def test_a_device_that_needs_longer_for_nothing_gets_none() -> None:
    assert balance_work([10, 90], [11.0, 3.0], fixed=[10.0, 0.0]) == (0, 100)


def test_gain_is_the_part_of_the_way() -> None:
    assert balance_work([200, 200], [20.0, 20 / 3], gain=0.5) == (150, 250)


def test_an_idle_device_gets_a_few_seeds_unless_it_was_given_up() -> None:
    assert balance_work([160, 0], [1.0, 0.0]) == (150, 10)
    assert balance_work([0, 0, 240], [0.0, 0.0, 1.0]) == (10, 10, 220)
    assert balance_work([160, 0], [1.0, 0.0], given_up=[1]) == (160, 0)


def test_too_few_seeds_for_everyone_are_left_where_they_are() -> None:
    assert balance_work([1, 0], [1.0, 0.0]) == (1, 0)


@given(st.data())
def test_the_mini_batch_stays_whole(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 6))
    split = data.draw(st.lists(st.integers(0, 2000), min_size=num, max_size=num).filter(any))
    times = st.floats(0, 10, allow_subnormal=False)
    seconds = data.draw(st.lists(times, min_size=num, max_size=num))
    parts = data.draw(st.lists(st.floats(0, 0.9), min_size=num, max_size=num))
    fixed = [part * each for part, each in zip(parts, seconds, strict=True)]
    gain = data.draw(st.floats(0.1, 1))
    given_up = data.draw(st.sets(st.integers(0, num - 1)))
    result = balance_work(split, seconds, fixed=fixed, gain=gain, given_up=given_up)
    assert sum(result) == sum(split)
    assert min(result) >= 0
    assert all(result[i] == 0 for i in given_up if split[i] == 0)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(1e-3, 10)), min_size=1, max_size=5))
def test_no_move_is_expected_to_make_it_slower(devices: list[tuple[int, float]]) -> None:
    split, seconds = zip(*devices, strict=True)
    result = balance_work(split, seconds)
    # A seed more than the exact share, from rounding.
    rounding = max(each / count for count, each in devices)
    assert expected_seconds(split, seconds, result) <= max(seconds) + rounding


def share(
    threads: tuple[int, int, int], prefetch: str, *, accelerator: bool = False
) -> DeviceShare:
    device = (
        Emulated(macs_per_s=1, memory_bandwidth=1, memory_bytes=1, link_bandwidth=1)
        if accelerator
        else Cpu()
    )
    sample, load, propagate = threads
    return DeviceShare(
        device=device,
        num_seeds=8,
        threads=Threads(sample=sample, load=load, propagate=propagate),
        prefetch=prefetch,
    )


def trade(
    shares: list[DeviceShare],
    stages: list[StageTimes],
    givers: list[str],
    bottleneck: str,
    *,
    barred: tuple[Trade, ...] = (),
) -> tuple[Trade, float] | None:
    plan = DevicePlan(shares=tuple(shares))
    pairs = zip(shares, stages, strict=True)
    devices = [TaskTimes.of_device(each, times) for each, times in pairs]
    return balance_thread(plan, devices, givers=givers, bottleneck=bottleneck, barred=barred)


def lanes(giver: tuple[int, str], receiver: tuple[int, str]) -> Trade:
    return Trade(
        giver=Lane(device=giver[0], task=giver[1]),
        receiver=Lane(device=receiver[0], task=receiver[1]),
    )


def test_a_thread_goes_from_the_fastest_task_to_the_slowest_device() -> None:
    shares = [share((2, 2, 2), "two_stage"), share((3, 2, 0), "two_stage", accelerator=True)]
    stages = [StageTimes(sample=1, load=2, propagate=9), StageTimes(sample=1, load=12)]
    found = trade(shares, stages, ["T_SC", "T_TC", "T_Load"], "T_Load")
    # The accelerator's sampler has most threads; 12 s with two threads are 8 s with three.
    assert found == (lanes((1, "T_SC"), (1, "T_Load")), pytest.approx(1 / 3))
    after = found[0].apply(DevicePlan(shares=tuple(shares)))
    assert after.shares[1].threads == Threads(sample=2, load=3, propagate=0)
    assert after.shares[0] == shares[0]


def test_the_next_task_gives_where_the_fastest_has_one_thread() -> None:
    shares = [share((1, 2, 2), "two_stage")]
    stages = [StageTimes(sample=1, load=2, propagate=9)]
    found = trade(shares, stages, ["T_SC", "T_Load", "T_TC"], "T_TC")
    assert found == (lanes((0, "T_Load"), (0, "T_TC")), pytest.approx(1 / 3))


def test_no_thread_moves_where_it_is_missed_more() -> None:
    shares = [share((2, 2, 2), "two_stage")]
    stages = [StageTimes(sample=5, load=5, propagate=9)]
    # With one thread, sampling or loading would take 10 s.
    assert trade(shares, stages, ["T_SC", "T_Load", "T_TC"], "T_TC") is None


def test_no_thread_moves_without_one_to_spare() -> None:
    shares = [share((1, 1, 1), "two_stage")]
    assert trade(shares, [StageTimes(sample=1, load=1, propagate=9)], ["T_SC"], "T_TC") is None


def test_stages_that_take_turns_do_not_trade() -> None:
    shares = [share((4, 4, 4), "none")]
    assert trade(shares, [StageTimes(sample=1, propagate=9)], ["T_TC"], "T_TC") is None


def test_a_device_that_computes_itself_takes_no_thread() -> None:
    emulated_cpu = Emulated(macs_per_s=1, memory_bandwidth=1, memory_bytes=1)
    threads = Threads(sample=4, load=4, propagate=0)
    shares = [DeviceShare(device=emulated_cpu, num_seeds=8, threads=threads, prefetch="two_stage")]
    stages = [StageTimes(sample=1, load=1, propagate=9)]
    assert trade(shares, stages, ["T_SC", "T_Load", "T_TC"], "T_TC") is None


def test_sampling_and_loading_in_turn_share_the_thread_they_get() -> None:
    shares = [share((2, 2, 3), "one_stage")]
    stages = [StageTimes(sample=5, load=5, propagate=3)]
    found = trade(shares, stages, ["T_TC", "T_Load"], "T_Load")
    assert found == (lanes((0, "T_TC"), (0, "T_Load")), pytest.approx(1 / 3))
    after = found[0].apply(DevicePlan(shares=tuple(shares)))
    assert after.shares[0].threads == Threads(sample=3, load=3, propagate=2)
    assert after.host_threads == 5


def test_barred_trades_are_not_made() -> None:
    shares = [share((3, 1, 2), "two_stage")]
    stages = [StageTimes(sample=1, load=2, propagate=9)]
    barred = (lanes((0, "T_SC"), (0, "T_TC")),)
    givers = ["T_SC", "T_Load", "T_TC"]
    assert trade(shares, stages, givers, "T_TC") is not None
    assert trade(shares, stages, givers, "T_TC", barred=barred) is None


def test_the_reverse_undoes_a_trade() -> None:
    plan = DevicePlan(shares=(share((3, 1, 2), "two_stage"),))
    there = lanes((0, "T_SC"), (0, "T_TC"))
    assert there.reverse.apply(there.apply(plan)) == plan
