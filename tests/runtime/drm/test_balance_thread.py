from __future__ import annotations

import pytest

from gnnscale.core.stages import StageTimes
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.runtime.drm.balance_thread import balance_thread
from gnnscale.runtime.drm.move import HostTask, Trade
from gnnscale.runtime.drm.task_times import TaskTimes


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
    tabu_trades: tuple[Trade, ...] = (),
) -> tuple[Trade, float] | None:
    plan = DevicePlan(shares=tuple(shares))
    pairs = zip(shares, stages, strict=True)
    tasks = [TaskTimes.of_device(each, times).tasks() for each, times in pairs]
    move = balance_thread(
        plan, tasks, givers=givers, bottleneck=bottleneck, tabu_trades=tabu_trades
    )
    if move is None:
        return None
    assert move.trade is not None
    assert move.plan == move.trade.apply(plan)
    return move.trade, move.promise


def lanes(giver: tuple[int, str], receiver: tuple[int, str]) -> Trade:
    return Trade(
        giver=HostTask(device=giver[0], task=giver[1]),
        receiver=HostTask(device=receiver[0], task=receiver[1]),
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
    tabu_trades = (lanes((0, "T_SC"), (0, "T_TC")),)
    givers = ["T_SC", "T_Load", "T_TC"]
    assert trade(shares, stages, givers, "T_TC") is not None
    assert trade(shares, stages, givers, "T_TC", tabu_trades=tabu_trades) is None


def test_the_reverse_undoes_a_trade() -> None:
    plan = DevicePlan(shares=(share((3, 1, 2), "two_stage"),))
    there = lanes((0, "T_SC"), (0, "T_TC"))
    assert there.reverse.apply(there.apply(plan)) == plan
