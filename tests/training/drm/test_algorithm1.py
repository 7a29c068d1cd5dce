import pytest

from gnnscale.training.drm.algorithm1 import algorithm_1
from gnnscale.training.drm.task_times import TaskTimes

# Algorithm 1, case by case: times of T_SC, T_SA, T_Load, T_TC and T_TA, all with T_Tran = 1.
CASES = {
    "line 11, T_SA": ((5, 9, 4, 3, 2), "T_SA", "balance_work"),
    "line 13, T_Accel": ((5, 4, 3, 2, 9), "T_Accel", "balance_work"),
    "line 15, T_Load": ((5, 2, 9, 3, 2), "T_Load", "balance_thread"),
    "line 18, T_SC, the accelerator samples fastest": ((9, 2, 5, 4, 3), "T_SC", "balance_work"),
    "line 20, T_SC, it trains fastest and samples next": ((9, 3, 5, 4, 2), "T_SC", "balance_work"),
    "line 22, T_SC, a CPU task is fastest": ((9, 3, 2, 5, 4), "T_SC", "balance_thread"),
    "line 22, T_SC, a CPU task is second": ((9, 4, 3, 5, 2), "T_SC", "balance_thread"),
    "line 26, T_TC, the accelerator trains fastest": ((4, 3, 5, 9, 2), "T_TC", "balance_work"),
    "line 28, T_TC, it samples fastest and trains next": ((4, 2, 5, 9, 3), "T_TC", "balance_work"),
    "line 30, T_TC, a CPU task is fastest": ((2, 3, 5, 9, 4), "T_TC", "balance_thread"),
    "line 30, T_TC, a CPU task is second": ((3, 2, 5, 9, 4), "T_TC", "balance_thread"),
}


@pytest.mark.parametrize(("times", "bottleneck", "move"), CASES.values(), ids=CASES)
def test_every_branch_of_algorithm_1(times, bottleneck, move) -> None:
    names = ("sample_cpu", "sample_accel", "load", "train_cpu", "train_accel")
    choice = algorithm_1(TaskTimes(transfer=1, **dict(zip(names, times, strict=True))).tasks())
    assert (choice.bottleneck, choice.move) == (bottleneck, move)
    if move == "balance_thread":
        t_sc, _, t_load, t_tc, _ = times
        cpu = {"T_SC": t_sc, "T_Load": t_load, "T_TC": t_tc}
        assert choice.givers == tuple(sorted(cpu, key=lambda task: cpu[task]))


@pytest.mark.parametrize(
    ("times", "bottleneck", "move"),
    [
        # Without an accelerator's sampler, its trainer counts as fastest by itself.
        (TaskTimes(sample_cpu=2, load=3, train_cpu=9, train_accel=1), "T_TC", "balance_work"),
        (TaskTimes(sample_cpu=9, load=3, train_cpu=2, train_accel=1), "T_SC", "balance_thread"),
        # Without accelerators only threads are left.
        (TaskTimes(sample_cpu=2, load=3, train_cpu=9), "T_TC", "balance_thread"),
        # Without a trainer on the CPU.
        (TaskTimes(sample_cpu=2, load=9, train_accel=1), "T_Load", "balance_thread"),
        (TaskTimes(sample_cpu=2, load=3, train_accel=9), "T_Accel", "balance_work"),
        # Without prefetching there are trainers only.
        (TaskTimes(train_cpu=9, train_accel=1), "T_TC", "balance_work"),
        (TaskTimes(train_cpu=1), "T_TC", "balance_thread"),
        # A slow link is a slow accelerator.
        (TaskTimes(sample_cpu=1, load=2, transfer=9, train_accel=1), "T_Accel", "balance_work"),
    ],
)
def test_absent_tasks_are_not_sorted(times, bottleneck, move) -> None:
    choice = algorithm_1(times.tasks())
    assert (choice.bottleneck, choice.move) == (bottleneck, move)
