import pytest
from small_plans import accelerator, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.planner import DeviceShare, Emulated, Threads
from gnnscale.training.drm.balance import balance_thread
from gnnscale.training.drm.task_times import HostTask, TaskTimes, ThreadMove

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


def test_the_next_task_gives_where_the_fastest_has_one_thread() -> None:
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
def test_no_thread_moves_where_it_is_of_no_use(of: DeviceShare, stages: StageTimes) -> None:
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
