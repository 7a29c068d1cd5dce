from dataclasses import replace
from typing import Any

import pytest
import round_figures as figures
from hypothesis import given
from hypothesis import strategies as st
from one_line import one_line
from owning_device import Owning

from gnnscale.core.errors import ConfigError
from gnnscale.planner import Cpu, DevicePlan, DevicePlanConfig, DeviceShare
from gnnscale.planner.device_plan import CpuEachConfig, apportion


def share(num_seeds: int = 1, prefetch: str = "none", *threads: int) -> DeviceShare:
    return figures.share(Cpu(), num_seeds, prefetch, threads or (1, 1, 1))


def plan(*split: int) -> DevicePlan:
    return figures.plan_of(*(share(n) for n in split))


weights = st.lists(st.integers(0, 10**6), min_size=1, max_size=8).filter(any)


@given(weights, st.integers(0, 10**6))
def test_parts_are_the_nearest_whole_numbers(weights: list[int], total: int) -> None:
    parts = apportion(weights, total)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + 1e-6
        assert part == 0 or weight


def test_splits_by_hand() -> None:
    assert apportion([1, 1, 1], 8) == [3, 3, 2]  # of equal remainders, the first
    assert apportion([0.5, 0.25, 0.25], 4) == [2, 1, 1]
    assert apportion([0, 7], 3) == [0, 3]
    assert apportion([10, 1], 5) == [5, 0]  # 4.55 and 0.45
    for split, message in (
        ([3], r"split=\[3\]: expected a number for each of 2 devices"),
        ([2, 2], r"split=\[2, 2\]: expected a sum of batch_size=3, got 4"),
        ([4, -1], r"split=\[4, -1\]: expected numbers from 0 to"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan(1, 2).with_split(split)


@given(weights, st.integers(0, 5000), st.data())
def test_counts_share_out_a_mini_batch(split, num_seeds: int, data: st.DataObject) -> None:
    found = plan(*split)
    counts = found.counts(num_seeds)
    assert sum(counts) == num_seeds
    assert min(counts) >= 0
    assert list(found.counts(found.batch_size)) == split
    # Another split of the same mini-batch.
    order = data.draw(st.permutations(split))
    other = found.with_split(order)
    assert other.split == tuple(order)
    assert other.batch_size == found.batch_size
    assert found.with_split(split) == found


@pytest.mark.parametrize(("prefetch", "threads"), [("none", 4), ("one_stage", 7), ("two_stage", 9)])
def test_threads_of_stages_that_overlap_add_up(prefetch: str, threads: int) -> None:
    one = share(1, prefetch, 2, 3, 4)
    assert one.host_threads == threads
    assert figures.plan_of(one, share(1, "none", 1, 1, 0)).host_threads == threads + 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1, "none", 0, 1, 1), "threads.sample=0: must be at least 1"),
        ((1, "none", 1, 1, -1), "threads.propagate=-1: must be at least 0"),
        ((1, "much"), "prefetch=much: allowed are none, one_stage, two_stage"),
        ((-1,), "num_seeds=-1: must be at least 0"),
    ],
)
def test_shares_that_are_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        share(*given)
    with pytest.raises(ConfigError, match="host_samples=9"):
        replace(share(), host_samples=9)


@given(st.integers(0, 8), st.integers(0, 10**6))
def test_the_host_samples_so_many_of_any_eight_steps(count: int, first: int) -> None:
    found = replace(share(), host_samples=count)
    by_host = [found.host_samples_at(step) for step in range(first, first + 16)]
    assert sum(by_host[:8]) == count
    # Spread evenly: in any run of steps there are as many as there should be, give or take one.
    for length in range(1, 9):
        assert abs(sum(by_host[:length]) - count * length / 8) < 1


def test_plans_that_are_refused() -> None:
    for fields, message in (
        ({"devices": []}, "device_plan.devices=[]: expected at least one"),
        ({"devices": ["cpu", {"kind": "cpu", "name": "cpu:0"}]}, "distinct names, got cpu:0 twice"),
        ({"devices": ["cpu"], "split": [1, 2]}, "split=[1, 2]: expected a number for each of"),
        ({"devices": ["cpu", "cpu"], "split": [3, -1]}, "split=[3, -1]: expected numbers from 0"),
    ):
        with one_line(message):
            DevicePlanConfig(**fields)
        # A device may get nothing.
        assert DevicePlanConfig(devices=["cpu", "cpu"], split=[0, 8]).split == [0, 8]


def test_only_a_device_that_owns_its_steps_overlaps_them() -> None:
    figures_of = {"macs_per_s": 1, "memory_bandwidth": 1, "memory_bytes": 1, "link_bandwidth": 1}
    owning = figures.share(Owning(**figures_of), 8, "device", (1, 1, 0))
    values = DevicePlan(shares=(owning,)).to_values()
    assert DevicePlan.from_values([owning.device], values).shares == (owning,)
    for devices in ([Cpu()], [owning.device, Cpu()]):
        with pytest.raises(ConfigError, match="prefetch=device"):
            DevicePlan.from_values(devices, values * len(devices))


def test_a_cpu_worker_for_each_process_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CpuEachConfig().parsed() == DevicePlanConfig(devices=["cpu"]).parsed()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in names:
        monkeypatch.setenv(name, "3")
    assert CpuEachConfig().parsed() == DevicePlanConfig(devices=["cpu"] * 3).parsed()
    with pytest.raises(ConfigError, match=r"split=\[1, 2\]: expected a number for each of 3"):
        CpuEachConfig(split=[1, 2])
    with pytest.raises(ConfigError, match="devices: expected none with cpu_each"):
        CpuEachConfig(devices=["cpu"])
