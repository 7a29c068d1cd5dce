import pytest
from small_plans import CPU, accelerator, plan_of, share

from gnnscale.core.stages import StageTimes
from gnnscale.planner import Device, Emulated
from gnnscale.training.drm.task_times import TaskTimes

EMULATED_CPU = Emulated(name="host", macs_per_s=1e9, memory_bandwidth=1e9, memory_bytes=1)
STAGES = StageTimes(sample=1, load=2, transfer=4, propagate=8, sync=100)


class Sampling(Device):
    samples = True


@pytest.mark.parametrize(
    ("device", "prefetch", "expected"),
    [
        (CPU, "none", TaskTimes(train_cpu=15)),
        (CPU, "one_stage", TaskTimes(load=7, train_cpu=8)),
        (CPU, "two_stage", TaskTimes(sample_cpu=1, load=6, train_cpu=8)),
        (EMULATED_CPU, "two_stage", TaskTimes(sample_cpu=1, load=6, train_cpu=8)),
        (accelerator(), "none", TaskTimes(train_accel=15)),
        (accelerator(), "one_stage", TaskTimes(load=7, train_accel=8)),
        (accelerator(), "two_stage", TaskTimes(sample_cpu=1, load=2, transfer=4, train_accel=8)),
        (Sampling(), "two_stage", TaskTimes(sample_accel=1, load=2, transfer=4, train_accel=8)),
    ],
)
def test_stages_that_take_turns_are_one_task(device, prefetch, expected) -> None:
    found = TaskTimes.for_device(share(device, prefetch=prefetch), STAGES)
    assert found == expected
    assert found.longest == (15 if prefetch == "none" else 8)


def test_each_task_is_the_slowest_of_its_devices() -> None:
    plan = plan_of(*(share(each, prefetch="two_stage") for each in (CPU, accelerator(), CPU)))
    stages = [
        StageTimes(sample=5, load=1, propagate=2),
        StageTimes(sample=1, load=4, transfer=3, propagate=9),
        StageTimes(sample=2, load=2, propagate=7),
    ]
    slowest = TaskTimes(sample_cpu=5, load=4, transfer=3, train_cpu=7, train_accel=9)
    assert TaskTimes.from_plan(plan, stages) == slowest


def test_transfer_and_training_of_an_accelerator_are_one() -> None:
    assert TaskTimes(transfer=3, train_accel=2).tasks() == {"T_Accel": 3}
    assert TaskTimes(transfer=3, train_accel=4).tasks() == {"T_Accel": 4}
    stages = StageTimes(sample=3, load=3, transfer=3, propagate=8)
    assert TaskTimes.for_device(share(accelerator(), prefetch="one_stage"), stages).longest == 9
    assert TaskTimes(train_cpu=2, train_accel=0.0).tasks() == {"T_TC": 2, "T_Accel": 0.0}
